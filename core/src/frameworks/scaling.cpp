// Aleph Alpha's Scaling. Read at Aleph-Alpha/scaling 737f855 (October 2024): modules written in PyTorch (core/nn,
// transformer/model), weights in 16 bits with FP32 ones in flat shards (core/optimizer), a pipeline of its own
// (core/nn/parallel_module, core/nn/pipeline_schedule).
//
// Fused kernels are FlashAttention's, for norm, rotation and gated product (flash_attn/ops,
// flash_attn/layers/rotary.py). The public code has none of them; the runs of 2023 (arXiv 2311.05610) had its RMSNorm
// by name. That they had all three follows from runs that fitted: with the public code's own operations two of them
// allocate 87 and 90 GB on cards of 85 (tests/tables/layouts.jsonl, alephalpha-948 and -947).
#include "frameworks.hpp"

namespace vramplan {

FrameworkSwitches scaling_switches(const TrainingChoice& t) {
  FrameworkSwitches s;
  s.source = "scaling";
  const bool fused = t.kernels == Kernels::fused;
  s.norm = fused ? NormKernel::fused : NormKernel::composite;
  s.rotary = fused ? RotaryKernel::fused_forward : RotaryKernel::composite;
  s.gated_mlp = fused ? GatedMlpKernel::fused : GatedMlpKernel::composite;
  s.norms_in_type = true;                        // core/nn/norm/rms_norm.py
  s.gathers_rotary_tables = true;                // core/nn/rotary.py, vector_gather
  s.joins_equal_heads = true;                    // core/nn/attention/attention.py, qkv_in_one
  s.joins_heads_with_batch = true;               // the same, multi_head_attention and flash_attention
  s.masks_scores_in_place = true;                // core/nn/masked_softmax/masked_softmax.py
  s.loss = LossKind::upcast_full;                // transformer/model/losses/cross_entropy.py
  s.gathers_logits = true;                       // core/nn/linear/column_parallel_linear.py, parallel_output
  s.keeps_stage_outputs = true;                  // core/nn/parallel_module/buffers.py, communicator.py
  s.sends_by_world = true;                       // communicator.py, send_data
  constexpr std::int64_t kBucket = 500'000'000;  // core/optimizer/optimizer_config.py, allreduce_bucket_size
  s.reduction_bucket = kBucket;
  return s;
}

}  // namespace vramplan
