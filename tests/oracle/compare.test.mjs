// The planner against PyTorch itself (README.md in this folder): the peak of a step within 2 %, what the first block keeps
// for backward within 1 %, on every row whose model or method is settled.
import assert from 'node:assert/strict';
import test from 'node:test';
import { compare, readRows } from './compare.mjs';

// Not settled yet, and why. A row that is mended leaves this list; none may join it.
const OPEN = [
  [
    /^Qwen3-Next.*\/lora\//,
    'adapters in attention layers only: the catalogue does not say which layers lie below the first',
  ],
];

const rows = compare(readRows(), process.env.VRAMPLAN_BIN);
const isOpen = (id, list) => list.some(([pattern]) => pattern.test(id));

test('every row can be planned', () => {
  assert.equal(rows.length, readRows().length);
});

test('peak of a step within 2 %', () => {
  const settled = rows.filter(({ id }) => !isOpen(id, OPEN));
  assert.ok(settled.length >= 400, `${settled.length} settled rows`);
  assert.deepEqual(
    settled.filter(({ error }) => Math.abs(error) > 0.02).map(({ id, error }) => `${id} ${error}`),
    [],
  );
});

test('bytes that the first block keeps for backward within 1 %', () => {
  const settled = rows.filter(({ id }) => !isOpen(id, OPEN));
  assert.deepEqual(
    settled.filter(({ savedError }) => Math.abs(savedError) > 0.01).map(({ id, savedError }) => `${id} ${savedError}`),
    [],
  );
});
