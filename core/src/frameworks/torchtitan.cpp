// torchtitan: models in plain modules (torchtitan/models/llama3/model), fully_shard with 16-bit gathering and FP32
// reduction, tensor and sequence parallelism by DTensor (models/llama3/parallelize.py), checkpoints that keep the
// results of some operations (distributed/activation_checkpoint.py), each block and the loss compiled for themselves.
// Releases 0.1 (June 2025; it stands for everything since 2024) and 0.2 (February 2026); 0.0 is torchtrain, March 2024.
// Compiled, AOTAutograd's partitioner keeps what products and attention read or make, and makes the rest again
// (torch/_functorch/partitioners.py): what is left of norm, rotation and gated product are single kernels.
#include "frameworks.hpp"

namespace vramplan {
namespace {

constexpr Version kToday{0, 2};
constexpr Version kTorchtrain{0, 0};

void choose_kernels(FrameworkSwitches& s, const TrainingChoice& t, Version release) {
  // nn.RMSNorm since 0.1: one kernel.
  s.norm = t.compile || release > kTorchtrain ? NormKernel::fused : NormKernel::composite;
  s.rotary = t.compile ? RotaryKernel::fused : RotaryKernel::composite_complex;
  s.gated_mlp = t.compile ? GatedMlpKernel::fused : GatedMlpKernel::composite;
  s.compiled_blocks = t.compile;
  s.key_repeats.sdpa = release < kToday;  // repeat_kv, until SDPA was asked for grouped heads
}

// components/loss.py. Compiled, cross-entropy reads the logits as they come and makes their gradient at once; chunks
// (ChunkedLossWrapper) run head and loss back and forth before the rest of backward.
void choose_loss(FrameworkSwitches& s, const TrainingChoice& t, Version release) {
  s.compiled_loss = t.cross_entropy == CrossEntropy::fused || (t.cross_entropy == CrossEntropy::chunked && t.compile);
  if (t.cross_entropy == CrossEntropy::chunked) {
    s.loss = LossKind::fused_linear;
    s.loss_chunks = 8;  // num_chunks
    s.loss_chunk = s.compiled_loss ? LossChunk::with_gradient : LossChunk::composite;
    return;
  }
  s.loss = LossKind::upcast_full;
  // The loop drops its name for the logits before backward since June 2024 (train.py).
  s.keeps_logits = release <= kTorchtrain;
  s.leaves_logits_hole = !s.compiled_loss;
  s.composite_loss_parallel = true;
}

// fully_shard: at first the embedding, the final norm and the head were one unit, and the last block stayed whole
// (reshard_after_forward, "default").
void choose_sharding(FrameworkSwitches& s, Version release) {
  s.reduces_in_fp32 = true;  // mixed_precision_reduce
  s.ends_are_units = release >= kToday;
  s.keeps_last_unit = release < kToday;
}

}  // namespace

FrameworkSwitches torchtitan_switches(const TrainingChoice& t) {
  const Version release = t.framework_version.value_or(kToday);
  FrameworkSwitches s;
  s.source = "torchtitan";
  choose_kernels(s, t, release);
  choose_loss(s, t, release);
  choose_sharding(s, release);
  s.recurrence = RecurrenceKernel::fused;
  // Weights and gathered copies differ in type as under autocast; without FSDP it is autocast (maybe_enable_amp).
  s.autocast = t.precision == Precision::bf16_amp || t.precision == Precision::fp8;
  s.pipeline_cuts_batch = true;  // local_batch_size; pipeline_parallel_microbatch_size = 1
  s.caches_products = true;      // selective_ac_option "op", that of all its configurations
  s.foreach_optimizer = t.optimizer.foreach.value_or(release <= kTorchtrain);  // implementation = "fused" since 0.1
  return s;
}

}  // namespace vramplan
