// The planner against PyTorch itself (README.md in this folder): the peak of a step within 2 %, what the first block keeps
// for backward within 1 %, on every row whose model or method is settled.
import assert from 'node:assert/strict';
import test from 'node:test';
import { compare, readRows } from './compare.mjs';

// Not settled yet, and why. A row that is mended leaves this list; none may join it.
const OPEN = [
  [/^gpt2\//, 'dropout layers are not in the catalogue'],
  [/^gpt-oss-20b\//, 'clamped experts with biases, sinks; all-linear reaches attention only'],
  [
    /^Qwen3-Next.*\/lora\//,
    'adapters in attention layers only: the catalogue does not say which layers lie below the first',
  ],
  [/^(Mixtral|Qwen3-30B).*\/lora\//, 'adapters on expert parameters keep weight-sized sums'],
  [/\/dora\/.*(d0\.05|recompute-full)/, 'DoRA under dropout runs the base twice; its merged weight in backward'],
  [
    /^Mistral-7B-v0\.1\/l2\/lora\/bf16_amp.*recompute-full.*d0\.05/,
    'dropout at the last adapter of a recomputed block',
  ],
  [/^gemma-2-9b.*\/fp32\/flash/, 'FP32 through a 16-bit kernel: nobody trains so'],
];
// What one block keeps alone: rows where the difference is known to be one of counting.
const OPEN_SAVED = [
  [/^gemma-3-4b-pt.*\/sdpa\/recompute-none/, 'the mask of all blocks is booked on the first'],
  [/^Phi-3-mini.*(fp32\/sdpa|b1\/s2048)/, 'the copy of the kernel output depends on its layout'],
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
  const settled = rows.filter(({ id }) => !isOpen(id, [...OPEN, ...OPEN_SAVED]));
  assert.deepEqual(
    settled.filter(({ savedError }) => Math.abs(savedError) > 0.01).map(({ id, savedError }) => `${id} ${savedError}`),
    [],
  );
});
