// The core computes and does nothing else, and it computes the same bits natively and in WebAssembly.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { code, cpp, filesBelow, includes } from './sources.mjs';

// No I/O, clock, threads, chance or exceptions; nor unordered containers, whose order differs between libraries.
const allowedHeaders = new Set(
  (
    'algorithm array bit bitset cassert climits charconv cmath compare concepts cstddef cstdint cstring deque functional ' +
    'initializer_list iterator limits map memory numbers numeric optional queue ranges set span stack string ' +
    'string_view system_error tuple type_traits utility variant vector version'
  ).split(' '),
);

// Only + - * / sqrt fma and rounding give the same bits everywhere.
const inexact =
  /(?:(?<![\w.>:])|\bstd::)(?:exp|exp2|expm1|log|log2|log10|log1p|pow|cbrt|hypot|a?sinh?|a?cosh?|a?tanh?|atan2|erfc?|[lt]gamma)[fl]?\s*\(/;

/** Variables at namespace scope that can change, as texts. */
function globals(text) {
  const found = [];
  const open = []; // of each brace around us: does it belong to a namespace?
  let statement = '';
  const end = () => {
    const plain = statement.replace(/\[\[.*?\]\]/g, '').trim();
    statement = '';
    const isOther = /^(using|typedef|struct|class|enum|union|template|friend|namespace|static_assert|concept)\b/.test(
      plain,
    );
    if (!plain || isOther || plain.includes('(') || /\b(const|constexpr|consteval)\b/.test(plain)) return;
    if (/[\w>\]&*]\s+[&*]*\w+(\[[^\]]*\])?\s*(=|\{\}|$)/.test(plain)) found.push(plain);
  };
  for (const character of code(text)) {
    const outside = open.every((isNamespace) => isNamespace);
    if (character === '{') {
      const isNamespace = outside && /\bnamespace\b[\w:\s]*$|\bextern\s*""\s*$/.test(statement);
      open.push(isNamespace);
      if (isNamespace) statement = '';
    } else if (character === '}') {
      const wasNamespace = open.pop();
      if (wasNamespace || !open.every((isNamespace) => isNamespace)) continue;
      statement += '{}';
      if (statement.includes('(')) statement = ''; // the end of a function
    } else if (outside) {
      if (character === ';') end();
      else statement += character;
    }
  }
  return found;
}

const rules = {
  'includes only headers that compute': (text) =>
    includes(text)
      .filter(({ name, quoted }) => !quoted && !allowedHeaders.has(name))
      .map(({ name }) => `<${name}>`),
  'throws and catches nothing': (text) => code(text).match(/\b(?:try|throw|catch)\b/g) ?? [],
  'calls no function whose last bit depends on the library': (text) => code(text).match(inexact) ?? [],
  'has no long double, which differs between machines': (text) => code(text).match(/\blong\s+double\b/g) ?? [],
  'has no static or thread-local variable that can change': (text) =>
    [...code(text).matchAll(/\b(static|thread_local)\b([^;{}=()]*)[;{=]/g)]
      .filter(([, word, between]) => word === 'thread_local' || !/\b(const|constexpr|consteval)\b/.test(between))
      .map(([match]) => match),
  'has no global variable that can change': globals,
};

const bad = {
  'includes only headers that compute': ['#include <iostream>', '#include <nlohmann/json.hpp>', '  #include <chrono>'],
  'throws and catches nothing': ['void f() { throw 1; }', 'void f() { try { } catch (...) { } }'],
  'calls no function whose last bit depends on the library': ['double y = std::pow(x, 2);', 'return log2(x);'],
  'has no long double, which differs between machines': ['long double x = 0;'],
  'has no static or thread-local variable that can change': [
    'int next() { static int n = 0; return ++n; }',
    'struct S { static std::vector<int> all; };',
    'thread_local int n{0};',
  ],
  'has no global variable that can change': [
    'int count = 0;',
    'namespace a::b {\nnamespace {\nstd::map<int, int> cache;\n}\n}',
    'inline double scale{1.5};\n',
  ],
};

const good = `
// throw, std::pow(x), static int n;
#include <vector>
#include "vramplan/units.hpp"
namespace vramplan {
class Plan; enum class Kind : int { one, two };
constexpr double kScale = 1'000.5; inline constexpr int kRows[] = {1, 2};
const char* const kNames[] = {"try", "throw"};
static int helper(int x) { int local = x; local += 1; return local; }
struct S { int member = 0; static S make(); static constexpr int kSize = 4; double pow = 0; };
template <class T> T twice(T x) { return x + x; }
int declared(int x); using Row = int;
double root(double x) { static const double half = 0.5; return std::sqrt(x) + half + s.log(1); }
}`;

const sources = [...filesBelow('core/include', cpp), ...filesBelow('core/src', cpp)];

for (const [name, violations] of Object.entries(rules)) {
  test(`core ${name}`, () => {
    for (const { path, text } of sources) assert.deepEqual([...violations(text)], [], path);
  });
  test(`the rule sees: core ${name}`, () => {
    for (const text of bad[name]) assert.notEqual(violations(text).length, 0, text);
    assert.deepEqual([...violations(good)], []);
  });
}
