// Habits of the code that a reader would otherwise have to check: functions stay short, and no sentence that a visitor
// reads stands in the core.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { code, cpp, filesBelow } from './sources.mjs';

// Three words in a row: ids, units, notations and names of files have fewer.
const sentence = /[A-Za-z]{2,} [a-z]{2,} [a-z]{2,}/;

/** The string literals of a C++ text, without those of preprocessor lines. */
function literals(text) {
  const bare = text.replace(/^[ \t]*#[^\n]*/gm, '');
  const found = bare.matchAll(/\/\/[^\n]*|\/\*[\s\S]*?\*\/|'(?:\\.|[^'\\\n])'|"((?:\\.|[^"\\\n])*)"/g);
  return [...found].map(([, literal]) => literal).filter((literal) => literal !== undefined);
}

const sentences = (text) => literals(text).filter((literal) => sentence.test(literal));

const functionHead = /\)\s*(?:const|noexcept|override|mutable|final|->\s*[\w:<>,\s*&]+|:\s[\s\S]+|\s)*$/;
const control = /^\s*(?:\}?\s*else\s+)?(?:if|for|while|switch|catch)\b/;

/** The lengths in lines of the functions of a C++ text, their braces included: [{name, lines}]. */
function functions(text) {
  const bare = code(text);
  const found = [];
  let open = []; // of each brace around us: where the function begins, or null
  let begin = 0; // of the statement that is being read
  for (let i = 0; i < bare.length; i++) {
    if (bare[i] === '{') {
      const head = bare.slice(begin, i);
      const inside = open.some((brace) => brace !== null);
      const isFunction = !inside && functionHead.test(head) && !control.test(head);
      open.push(isFunction ? { head, from: begin + head.search(/\S/) } : null);
      begin = i + 1;
    } else if (bare[i] === '}') {
      const brace = open.pop();
      if (brace)
        found.push({ name: brace.head.trim().split('\n')[0], lines: bare.slice(brace.from, i).split('\n').length });
      begin = i + 1;
    } else if (bare[i] === ';') {
      begin = i + 1;
    }
  }
  return found;
}

const longest = (text) => functions(text).filter(({ lines }) => lines > 60);

const core = ['core/include', 'core/src', 'core/json'].flatMap((folder) => filesBelow(folder, cpp));
const planner = core.filter(({ path }) => !path.startsWith('core/json/'));

test('the core holds no sentence', () => {
  for (const { path, text } of planner) assert.deepEqual(sentences(text), [], path);
});

test('no function is longer than 60 lines', () => {
  for (const { path, text } of core) assert.deepEqual(longest(text), [], path);
});

test('half of the functions are under 10 lines, nine in ten under 30', () => {
  const lengths = core
    .flatMap(({ text }) => functions(text))
    .map(({ lines }) => lines)
    .sort((a, b) => a - b);
  const share = (limit) => lengths.filter((lines) => lines < limit).length / lengths.length;
  assert.ok(lengths.length > 100, `only ${lengths.length} functions found`);
  assert.ok(share(10) >= 0.5, `${share(10)} of the functions are under 10 lines`);
  assert.ok(share(30) >= 0.9, `${share(30)} of the functions are under 30 lines`);
});

test('the rules see what they look for', () => {
  const long = `int f(int x) {\n${'  x += 1;\n'.repeat(60)}  return x;\n}\n`;
  assert.deepEqual(
    longest(long).map(({ name }) => name),
    ['int f(int x)'],
  );
  assert.equal(
    functions('namespace a {\nint g() { return 1; }\nstruct S {\n  int h() const { return 2; }\n};\n}\n').length,
    2,
  );
  assert.equal(functions('int k() {\n  for (;;) { if (true) { } }\n  const auto l = [] { };\n}\n').length, 1);
  assert.equal(sentences('const char* a = "this does not fit";  // "but not this one here"').length, 1);
  assert.deepEqual(
    sentences('f("activations_mlp", \'"\', "P_linear", "micro_batch * dp");\n#include "some file name.hpp"\n'),
    [],
  );
});
