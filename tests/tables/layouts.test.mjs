// Published layouts (layouts.jsonl ran, layout_failures.jsonl did not) against what the planner says of them: whatever
// ran must not be called too large, and of a grid with its failures nearly all of these must be called so.
//
// The rows hold what their tables say. What the code behind a table does and no row says stands here, source by source.
// Cards are those of the catalogue: Modalities ran on cards of 64 GB.
import assert from 'node:assert/strict';
import test from 'node:test';
import { answer, notSupported, readRows, reasons } from './ask.mjs';

const ALEPH_ALPHA = 'Aleph-Alpha/NeurIPS-WANT-submission-efficient-parallelization-layouts';
const BRIDGE = 'NVIDIA-NeMo/Megatron-Bridge';

// Aleph-Alpha/scaling deals out modules evenly, one more to the first stages: embedding, layers, final norm and head
// (core/nn/parallel_module/pipeline_partitioning.py, pipe_partition_uniform).
function dealtModules({ model, layout }) {
  const pp = layout.pp ?? 1;
  if (pp === 1) return {};
  const modules = model.config.num_hidden_layers + 3;
  const share = Math.floor(modules / pp);
  const first = modules % pp > 0 ? share + 1 : share;
  return { layout: { first_stage_layers: first - 1, last_stage_layers: share - 2 } };
}

// `change`: what the request gets, or a function of it.
const SETTINGS = [
  // Their own code. Fused kernels: FlashAttention's, with its kernel of RMSNorm.
  { rows: ({ source }) => source === ALEPH_ALPHA, change: { training: { framework: 'scaling' } } },
  { rows: ({ source }) => source === ALEPH_ALPHA, change: dealtModules },
  {
    // perf_recipes/_common.py: grad_reduce_in_fp32 off, the loss of TransformerEngine.
    rows: ({ source }) => source === BRIDGE,
    change: { training: { fp32_gradients: false, cross_entropy: 'fused' } },
  },
  {
    // training/mixed_precision.py: fp8_param_gather with every recipe but the one of blocks.
    rows: ({ source, request }) => source === BRIDGE && request.training.precision === 'fp8',
    change: { training: { fp8_parameters: true } },
  },
  {
    // perf_recipes/llama: adapters on one module.
    rows: ({ source, request }) => source === BRIDGE && request.training.method === 'lora',
    change: { training: { lora: { targets: ['linear_qkv'] } } },
  },
  {
    // perf_recipes/deepseek.
    rows: ({ source, request }) =>
      source === BRIDGE && request.model === 'deepseek-ai/DeepSeek-V3' && request.training.recompute === 'selective',
    change: { training: { recompute_modules: ['mla_up_proj', 'mlp', 'moe_act'] } },
  },
  {
    // Composer shards every micro-batch's gradients; llm-foundry's default loss is FlashAttention's kernel.
    rows: ({ source }) => source === 'mosaicml/llm-foundry',
    change: { training: { cross_entropy: 'fused' }, layout: { no_sync: false } },
  },
  {
    // Plain modules under PyTorch's own mixed precision: torchtitan's, not Transformers'. GELU is one kernel.
    rows: ({ source, request }) => source === 'Modalities/modalities' && request.model.config !== undefined,
    change: { model: { config: { activation_function: 'gelu' } } },
  },
  {
    rows: ({ source }) => source === 'Modalities/modalities',
    change: { training: { framework: 'torchtitan' }, layout: { fsdp: undefined } },
  },
];

// Ran, and is planned not to fit. Each with what is known about it.
const EXPLAINED = [
  {
    ids: ['foundry-056', 'foundry-058', 'foundry-165', 'foundry-168', 'foundry-170', 'foundry-176', 'foundry-177'],
    because: 'norms in 16 bits (low_precision_layernorm), where autocast would run LayerNorm in FP32: 2 of 12 bytes',
  },
  {
    ids: ['bridge2606-025', 'bridge260401-039', 'bridge260201-035'],
    because: 'the recipe of a hybrid model; what it computes again is not stated',
  },
  {
    ids: ['moezoo-016'],
    because: 'activations of the experts wait in host memory, which no field of the contract says',
  },
  {
    ids: ['kempner-001'],
    because: 'weights and states of one GPU in 16 bits: 80.7 GB were reported, AdamW in FP32 is 128 GB',
  },
];
const explained = new Set(EXPLAINED.flatMap(({ ids }) => ids));

// Failed, and is called comfortable.
const UNEXPLAINED_FAILURES = new Map([
  ['bloom-134', "Megatron-DeepSpeed's BF16 optimizer: FP32 gradients of all weights beside the 16-bit ones"],
  ['bloom-135', 'the same'],
]);

const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);
function merged(base, change) {
  const result = { ...base };
  for (const [key, value] of Object.entries(change)) {
    result[key] = isObject(value) && isObject(base[key]) ? merged(base[key], value) : value;
  }
  return result;
}
const settled = (row) =>
  SETTINGS.filter(({ rows }) => rows(row)).reduce(
    (request, { change }) => merged(request, typeof change === 'function' ? change(request) : change),
    row.request,
  );

function judge(file, ran) {
  const rows = readRows(file);
  return answer(rows.map(settled)).map((report, i) => ({ ...rows[i], ran, report }));
}
const all = [...judge('layouts.jsonl', true), ...judge('layout_failures.jsonl', false)];
const planned = all.filter(({ report }) => report.problems.length === 0);
const VERDICTS = ['comfortable', 'tight', 'at_risk', 'does_not_fit'];
const verdictOf = ({ report }) => report.fit.verdict;
const tooLarge = (row) => ['at_risk', 'does_not_fit'].includes(verdictOf(row));
const share = (rows, holds) => rows.filter(holds).length / rows.length;

test('every row is planned, or refused as not supported or as a layout that it does not cut', (t) => {
  const refused = all.filter(({ report }) => report.problems.length > 0);
  const kinds = new Map();
  for (const { id, report } of refused) {
    const uneven = report.problems.every(({ code }) => code === 'illegal_layout');
    assert.ok(notSupported(report) || uneven, `${id}: ${JSON.stringify(report.problems)}`);
    const kind = uneven ? `uneven ${report.problems[0].pointer}` : reasons(report);
    kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
  }
  t.diagnostic(`${planned.length} of ${all.length} rows are planned`);
  for (const [kind, number] of kinds) t.diagnostic(`not planned: ${number} x ${kind}`);
  assert.ok(planned.length / all.length >= 0.96);
});

test('what ran is not called too large, but for rows that are explained', (t) => {
  for (const source of new Set(planned.map((row) => row.source))) {
    for (const ran of [true, false]) {
      const rows = planned.filter((row) => row.source === source && row.ran === ran);
      if (rows.length === 0) continue;
      const counts = VERDICTS.map((verdict) => rows.filter((row) => verdictOf(row) === verdict).length);
      t.diagnostic(`${source}, ${ran ? 'ran' : 'failed'}: ${VERDICTS.map((v, i) => `${counts[i]} ${v}`).join(', ')}`);
    }
  }
  const wrong = planned.filter((row) => row.ran && row.source !== ALEPH_ALPHA && verdictOf(row) === 'does_not_fit');
  assert.deepEqual(wrong.map(({ id }) => id).sort(), [...explained].sort());
});

// The code of these runs was published a year after them, without their kernels (core/src/frameworks/scaling.cpp).
test("Aleph Alpha's grid: nine failures in ten are too large or at risk, and one success in twenty", (t) => {
  const grid = planned.filter(({ source }) => source === ALEPH_ALPHA);
  const failed = grid.filter(({ ran }) => !ran);
  const succeeded = grid.filter(({ ran }) => ran);
  t.diagnostic(`failed: ${failed.filter(tooLarge).length} of ${failed.length}`);
  t.diagnostic(`ran: ${succeeded.filter(tooLarge).length} of ${succeeded.length}`);
  assert.ok(failed.length >= 340 && succeeded.length >= 263);
  assert.ok(share(failed, tooLarge) >= 0.9, `${share(failed, tooLarge)}`);
  assert.ok(share(succeeded, tooLarge) <= 0.05, `${share(succeeded, tooLarge)}`);
});

test('other failures are never comfortable, but for those that are explained', () => {
  const wrong = planned.filter((row) => !row.ran && row.source !== ALEPH_ALPHA && verdictOf(row) === 'comfortable');
  assert.deepEqual(wrong.map(({ id }) => id).sort(), [...UNEXPLAINED_FAILURES.keys()].sort());
});
