// What comes after training, and room to grow. Numbers by hand from the models' own shapes.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { run } from '../golden/golden.mjs';

const ask = (request) => {
  const report = JSON.parse(run('plan', JSON.stringify(request)).text);
  assert.deepEqual(report.problems, []);
  return report;
};
const after = (model, training = {}, serving) => ask({ model, training, ...(serving && { serving }) }).after_training;

const llama = 'meta-llama/Llama-3.1-8B';
const parameters = 8_030_261_248;
// Rank 16 on the seven linear layers of each of 32 blocks: q and o 4096 + 4096, k and v 4096 + 1024, three of the MLP
// 4096 + 14336.
const adapters = 32 * 16 * (2 * 8192 + 2 * 5120 + 3 * 18432);
const linear = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336);
const rows = 32 * (2 * 4096 + 2 * 1024 + 2 * 14336 + 4096);

test('L7: merged adapters, and the weights are 16-bit again', () => {
  const { merge, merged_bytes: merged, checkpoints } = after(llama, { method: 'qlora' });
  assert.equal(merged, 2 * parameters);
  // The base in 16 bits, adapters in FP32, the update of the largest weight and the same scaled in FP32.
  assert.equal(merge.host_bytes, 2 * parameters + 4 * adapters + 2 * 4 * 4096 * 14336);
  assert.equal(merge.card_bytes, merge.host_bytes);
  assert.equal(checkpoints.adapter_bytes, 4 * adapters);
  assert.equal(checkpoints.weights_bytes, 2 * parameters);
  // Adapters and AdamW's two moments in FP32.
  assert.equal(checkpoints.training_state_bytes, 12 * adapters);
});

test('the weights of DoRA have the update, its sum with the weight and that sum scaled', () => {
  const { merge } = after(llama, { method: 'dora', lora: { targets: ['down'] } });
  const dora = 32 * (16 * 18432 + 4096);
  assert.equal(merge.host_bytes, 2 * parameters + 4 * dora + 3 * 4 * 4096 * 14336);
});

test('full fine-tuning merges nothing and saves what it trains', () => {
  const small = 494_032_768; // Qwen2.5-0.5B
  const amp = after('Qwen/Qwen2.5-0.5B', { method: 'full', precision: 'bf16_amp' });
  assert.equal(amp.merge, null);
  assert.equal(amp.checkpoints.adapter_bytes, null);
  assert.equal(amp.checkpoints.weights_bytes, 4 * small);
  assert.equal(amp.checkpoints.training_state_bytes, 12 * small);
  const pure = after('Qwen/Qwen2.5-0.5B', { method: 'full', precision: 'bf16' });
  assert.equal(pure.checkpoints.weights_bytes, 2 * small);
  assert.equal(pure.checkpoints.training_state_bytes, 6 * small);
});

test('serving: 131,072 bytes a token of Llama 3.1 8B in 16 bits', () => {
  const { serving } = after(llama, {}, { context: 8192, users: 16 });
  assert.equal(serving.cache_bytes_per_token, 2 * 32 * 8 * (128 + 128));
  assert.equal(serving.cache_bytes_per_token, 131_072);
  assert.equal(serving.state_bytes_per_user, 0);
  assert.equal(serving.cache_bytes, 131_072 * 8192 * 16);
  const weights = Object.fromEntries(serving.rows.map((row) => [row.weights, row.weights_bytes]));
  const rest = 2 * (parameters - linear);
  assert.deepEqual(weights, {
    bf16: 2 * parameters,
    int8: linear + 4 * rows + rest, // an FP32 scale a row
    nf4: linear / 2 + (4 * linear) / 64 + rest, // an FP32 scale for 64 values
  });
  for (const row of serving.rows) assert.equal(row.total_bytes, row.weights_bytes + serving.cache_bytes);
});

test('serving: the context of training and one user unless told otherwise', () => {
  const report = ask({ model: llama, training: { sequence_length: 1024 } });
  assert.deepEqual(report.request.serving, { context: 1024, users: 1 });
  assert.equal(report.after_training.serving.cache_bytes, 131_072 * 1024);
  assert.equal(ask({ model: llama, serving: { users: 3 } }).after_training.serving.cache_bytes, 131_072 * 2048 * 3);
});

test('serving: latent attention caches its compressed keys and values', () => {
  const { serving } = after('deepseek-ai/DeepSeek-V3');
  assert.equal(serving.cache_bytes_per_token, 2 * 61 * (512 + 64));
});

test('serving: a window keeps no more than its length', () => {
  // Gemma 2 9B: every second of 42 layers has a window of 4096; 8 key heads of 256.
  const token = 2 * 8 * (256 + 256);
  const { serving } = after('google/gemma-2-9b', {}, { context: 8192 });
  assert.equal(serving.cache_bytes_per_token, 42 * token);
  assert.equal(serving.cache_bytes, token * 21 * (4096 + 8192));
});

test('serving: the states of recurrent layers do not grow with the context', () => {
  // Qwen3-Next: 36 of 48 layers are Gated DeltaNet with 16 key and 32 value heads of 128 and a convolution over 4.
  const state = 36 * (4 * 32 * 128 * 128 + 2 * 3 * (2 * 16 * 128 + 32 * 128));
  const { serving } = after('Qwen/Qwen3-Next-80B-A3B-Instruct', {}, { context: 100_000, users: 2 });
  assert.equal(serving.state_bytes_per_user, state);
  assert.equal(serving.cache_bytes_per_token, 2 * 12 * 2 * (256 + 256));
  assert.equal(serving.cache_bytes, 2 * (state + 100_000 * serving.cache_bytes_per_token));
});

test('serving: what would not fit in a number of the page is a problem', () => {
  const request = { model: llama, serving: { context: 16_777_216, users: 1_000_000 } };
  const { problems } = JSON.parse(run('plan', JSON.stringify(request)).text);
  assert.deepEqual(
    problems.map(({ code, pointer }) => [code, pointer]),
    [['too_large', '/serving']],
  );
});

test('serving: bad input is named by its pointer', () => {
  const request = { model: llama, serving: { context: 0, users: 'many', seats: 1 } };
  const { problems } = JSON.parse(run('plan', JSON.stringify(request)).text);
  assert.deepEqual(problems.map(({ code, pointer }) => `${code} ${pointer}`).sort(), [
    'out_of_range /serving/context',
    'unknown_field /serving/seats',
    'wrong_type /serving/users',
  ]);
});

// ---------------------------------------------------------------- growth

const grow = (gpu, count, training = {}) => ask({ model: llama, training, hardware: { gpu, count } }).growth;
const rowsOf = (growth) => Object.fromEntries(growth.map((row) => [row.method, row]));

test('C13: plan for growth: what else fits on this system', () => {
  const { full, lora, qlora } = rowsOf(grow('h100-sxm-80gb', 1));
  assert.ok(full.largest.parameters < lora.largest.parameters);
  assert.ok(lora.largest.parameters < qlora.largest.parameters);
  // 7B today, 13B or 30B tomorrow: on one card of 80 GB with LoRA, and 70B with QLoRA.
  assert.ok(lora.largest.parameters >= 30e9 && lora.largest.parameters < 45e9, String(lora.largest.parameters));
  assert.ok(qlora.largest.parameters >= 70e9, String(qlora.largest.parameters));
});

test('applying a row of growth gives exactly the promised figures', () => {
  for (const { method, largest, next } of grow('rtx-4090', 2)) {
    assert.equal(largest.gpus, 2);
    for (const { model, gpus, device, verdict } of [largest, next].filter(Boolean)) {
      const report = ask({ model, training: { method }, hardware: { gpu: 'rtx-4090', count: gpus } });
      assert.deepEqual(report.memory.per_gpu.device, device, `${method} ${model}`);
      assert.equal(report.fit.verdict, verdict);
      assert.match(verdict, /comfortable|tight/);
    }
    if (next) assert.ok(next.gpus > 2 && next.parameters >= 1.25 * largest.parameters, method);
  }
});

test('no larger model of the catalogue fits than growth says', () => {
  const { models } = JSON.parse(run('catalogue').text);
  const { lora } = rowsOf(grow('rtx-4090', 1));
  const larger = models.filter((model) => model.parameters > lora.largest.parameters);
  assert.ok(larger.length > 100);
  // Far above the bound the weights alone do not fit: 2 bytes a parameter on 24 GB.
  for (const { id } of larger.filter((model) => model.parameters < 13e9)) {
    const report = ask({ model: id, training: { method: 'lora' }, hardware: { gpu: 'rtx-4090', count: 1 } });
    assert.doesNotMatch(report.fit.verdict, /comfortable|tight/, id);
  }
});

test('without a GPU there is nothing to grow on', () => {
  assert.deepEqual(ask({ model: llama }).growth, []);
});
