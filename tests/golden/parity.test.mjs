// Native and WebAssembly answer with the same bytes: what a visitor sees is what the tests here have checked.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { readRequests, run } from './golden.mjs';

const folder = process.env.VRAMPLAN_WASM_DIR ?? fileURLToPath(new URL('../../build/wasm/wasm', import.meta.url));
const script = join(folder, 'vramplan.mjs');
// A native build alone has nothing to compare with; tests/run builds the module before it comes here.
const skip = existsSync(script) ? false : 'no module: run web/serve --build-only';

async function load() {
  const { default: createVramplan } = await import(pathToFileURL(script));
  const wasmBinary = readFileSync(join(folder, 'vramplan.wasm'));
  return createVramplan({ wasmBinary, locateFile: (name) => name });
}

// Texts that are no request at all take other ways through the door.
const strange = [
  '',
  'null',
  '[]',
  '{',
  '"\\ud800"',
  '1e999',
  '{"model":1,"model":2}',
  '['.repeat(1000),
  '{"model":"a"}\u0000',
  '{"é":"\u{1F600}"}',
];

test('a golden request has the same answer', { skip }, async (t) => {
  const module = await load();
  for (const { name, text } of readRequests()) {
    await t.test(name, () => assert.equal(`${module.plan(text)}\n`, run('plan', text).text));
    const { timeline, ...glance } = JSON.parse(run('answer', text).text);
    assert.deepEqual(JSON.parse(module.glance(text)), glance);
  }
});

test('a text that is no request has the same answer', { skip }, async () => {
  const module = await load();
  for (const text of strange) assert.equal(`${module.plan(text)}\n`, run('plan', text).text, text.slice(0, 40));
});

test('the catalogue and the version are the same', { skip }, async () => {
  const module = await load();
  assert.equal(`${module.catalogue()}\n`, run('catalogue').text);
  assert.equal(`${module.version()}\n`, run('version').text);
});

test('an instance keeps nothing from one request to the next', { skip }, async () => {
  const module = await load();
  const texts = readRequests().map(({ text }) => text);
  const first = texts.map((text) => module.plan(text));
  const backwards = [...texts].reverse().map((text) => module.plan(text));
  assert.deepEqual(backwards.reverse(), first);
});
