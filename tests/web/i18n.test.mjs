// Everything that the planner can name has words in both languages, and both languages have the same keys.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { root } from './browser.mjs';

const read = (...path) => readFileSync(join(root, ...path), 'utf8');
const words = Object.fromEntries(
  ['nl', 'en'].map((language) => [language, JSON.parse(read('web', 'src', 'i18n', `${language}.json`))]),
);

/** The names of an enumeration: the table that the core writes them from. */
function namesOf(enumeration) {
  for (const header of [
    'enum_names',
    'component',
    'step',
    'report',
    'fit',
    'memory',
    'suggestion',
    'estimate',
    'evidence',
    'diagnosis',
  ]) {
    let text;
    try {
      text = read('core', 'include', 'vramplan', `${header}.hpp`);
    } catch {
      continue;
    }
    const table = text.match(new RegExp(`EnumNames<${enumeration}>\\s*\\{[^;]*?values\\s*=\\s*\\{([^}]*)\\}`));
    if (table) return [...table[1].matchAll(/"([^"]+)"/g)].map((match) => match[1]);
  }
  return assert.fail(`no table of names for ${enumeration}`);
}

function assertWords(keys) {
  const missing = [...new Set(keys)].flatMap((key) =>
    Object.keys(words)
      .filter((language) => !words[language][key]?.trim())
      .map((language) => `${language}: ${key}`),
  );
  assert.deepEqual(missing, []);
}

test('both languages have the same keys, in the same order', () => {
  assert.deepEqual(Object.keys(words.nl), Object.keys(words.en));
});

test('both languages use the same arguments', () => {
  const argumentsOf = (text) => [...new Set(text.match(/\{\w+\}/g) ?? [])].sort();
  for (const key of Object.keys(words.nl))
    assert.deepEqual(argumentsOf(words.nl[key]), argumentsOf(words.en[key]), key);
});

test('a text with plurals has both forms', () => {
  for (const key of Object.keys(words.nl).filter((name) => name.endsWith('.one'))) {
    assert.ok(key.replace(/one$/, 'other') in words.nl, key);
  }
});

test('no text is empty or holds markup', () => {
  for (const [language, texts] of Object.entries(words)) {
    for (const [key, text] of Object.entries(texts))
      assert.ok(text.trim() !== '' && !/<\/?[a-z]/i.test(text), `${language}: ${key}`);
  }
});

const tables = {
  ProblemCode: 'problem.',
  WarningCode: 'warning.',
  Verdict: 'verdict.',
  FitReason: 'fit.',
  Certainty: 'certainty.',
  EventKind: 'event.',
  Component: 'component.',
  Status: 'status.',
  SystemGroup: 'group.',
  Method: 'value.method.',
  Objective: 'value.objective.',
  FrameworkId: 'value.framework.',
  Precision: 'value.precision.',
  WeightFormat: 'value.base_weights.',
  OptimizerName: 'value.optimizer.name.',
  StateFormat: 'value.optimizer.states.',
  Recompute: 'value.recompute.',
  AttentionKernel: 'value.attention.',
  CrossEntropy: 'value.cross_entropy.',
  Kernels: 'value.kernels.',
  Module: 'value.lora.targets.',
  Metric: 'accuracy.metric.',
  CardPart: 'part.',
  Finding: 'finding.',
};
for (const [enumeration, prefix] of Object.entries(tables)) {
  test(`every ${enumeration} has words`, () => assertWords(namesOf(enumeration).map((name) => prefix + name)));
}

test('every component has an explanation, a formula in words and a colour', () => {
  const styles = read('web', 'src', 'styles.css');
  const names = namesOf('Component');
  assertWords(names.flatMap((name) => [`component.${name}.text`, `formula.${name}`]));
  for (const name of names) assert.ok(styles.includes(`.c-${name}`), `styles.css: .c-${name}`);
});

test('every symbol has a meaning', () =>
  assertWords(
    namesOf('Symbol')
      .filter((name) => name !== 'one' && name !== '1')
      .map((name) => `symbol.${name}`),
  ));

const binary = process.env.VRAMPLAN_BIN;
const skip = !binary && 'VRAMPLAN_BIN is not set';
// Exit status 1 says that a report holds problems: an answer like any other here.
const run = (args, input = '') => spawnSync(binary, args, { input, encoding: 'utf8', maxBuffer: 1 << 30 }).stdout;
const catalogue = () => JSON.parse(run(['catalogue']));

test('every option of the catalogue has a label, and every value a name', { skip }, () => {
  const keyOf = (pointer) => pointer.replace(/^\/(training\/)?/, '').replaceAll('/', '.');
  assertWords(
    catalogue().options.flatMap(({ pointer, values = [] }) => [
      ...(pointer.startsWith('/model') ? [] : [`field.${keyOf(pointer)}`]),
      ...values.map((value) => `value.${keyOf(pointer)}.${value}`),
    ]),
  );
});

test('names of the catalogue that say what something is are said in both languages', { skip }, () => {
  const { gpus, systems } = catalogue();
  const names = [...gpus.map(({ name }) => name), ...systems.map(({ vendor, name }) => `${vendor} ${name}`)];
  const isTold = (name) => /\b(with|class|board|die|module|rack|liquid|air|workstation|server|cards?)\b/.test(name);
  assertWords(names.filter(isTold).map((name) => `name.${name}`));
  const translated = Object.keys(words.nl).filter((key) => key.startsWith('name.'));
  assert.deepEqual(
    translated.map((key) => key.slice('name.'.length)).filter((name) => !names.includes(name)),
    [],
  );
});

/** Each model of the catalogue, with the methods and the ways to use GPUs taken in turn. */
function manyRequests() {
  const { models, options } = catalogue();
  const methods = options.find(({ pointer }) => pointer === '/training/method').values;
  const places = [
    {},
    { hardware: { gpu: 'rtx-4090', count: 2 }, layout: { dp: 2, zero: 0 } },
    { hardware: { gpu: 'h100-sxm-80gb', count: 8 }, layout: { dp: 8, zero: 3 } },
  ];
  return models.map(({ id }, index) => ({
    model: id,
    training: { method: methods[index % methods.length], sequence_length: 1 << (8 + (index % 9)) },
    ...places[index % places.length],
  }));
}

/** The second value of a symbol in one notation has a number behind it: f_2. */
const symbolKey = (symbol) => `symbol.${`symbol.${symbol}` in words.nl ? symbol : symbol.replace(/_\d+$/, '')}`;

const keysOf = ({ memory, timeline = [], warnings = [], problems, suggestions }) => [
  ...[...(memory?.components ?? []), ...(memory?.beyond_allocated ?? [])].flatMap(({ id, formula, terms }) => [
    `component.${id}`,
    `formula.${formula}`,
    ...terms.map(({ symbol }) => symbolKey(symbol)),
  ]),
  ...timeline.map(({ event }) => `event.${event}`),
  ...warnings.map(({ code }) => `warning.${code}`),
  ...problems.map(({ code }) => `problem.${code}`),
  ...(suggestions?.changes ?? []).map(({ id }) => `change.${id}`),
  ...(suggestions?.not_fitting ?? []).map(({ reason }) => `reason.${reason}`),
];

test('everything that reports name has words', { skip }, () => {
  const requests = manyRequests().map((request) => JSON.stringify(request));
  const reports = run(['plan', '--lines'], `${requests.join('\n')}\n`)
    .trim()
    .split('\n');
  assert.equal(reports.length, requests.length);
  assertWords([...new Set(reports.flatMap((report) => keysOf(JSON.parse(report))))]);
});
