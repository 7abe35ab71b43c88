// litgpt: one model for all families (lit_gpt/model.py), adapters inside its linears (lit_gpt/lora.py), the loop of
// finetune/lora.py, Lightning Fabric's wrapper around the model, bitsandbytes through Fabric's BitsandbytesPrecision.
// Read at the end of October 2023, when its resource tables were measured: commit 8641822 with the half-precision fixes
// of 6178c7c, since which RMSNorm works in FP32.
#include "frameworks.hpp"

namespace vramplan {
namespace {

constexpr std::int64_t kHeadChunkTokens = 128;  // finetune/lora.py: lm_head_chunk_size; chunked_cross_entropy's default

constexpr std::int64_t kBatchSize = 128;  // finetune/lora.py: batch_size

}  // namespace

FrameworkSwitches litgpt_switches(const TrainingChoice& t, const Sharding& sharding) {
  FrameworkSwitches s;
  s.source = "litgpt";
  s.norm = NormKernel::composite;
  s.rotary = RotaryKernel::composite_joined;
  s.loss = t.cross_entropy.value_or(CrossEntropy::full_logits) == CrossEntropy::full_logits ? LossKind::upcast_full
                                                                                            : LossKind::kept_chunked;
  s.loss_chunk_tokens = kHeadChunkTokens;
  s.autocast = t.precision == Precision::bf16_amp || t.precision == Precision::fp16_amp;
  s.fp32_adapters = s.autocast;  // of the type that modules are made in
  s.fuses_qkv = true;
  s.native_gelu = true;
  s.quantizes_head = true;
  s.quantized_output_follows_input = true;
  s.quantized_keeps_input = true;
  s.dequantizes_through_fp16 = true;  // BitsandbytesPrecision quantizes weight.to(torch.half)
  s.trains_whole_units = sharding.is_fsdp() && !trains_all_weights(t.method);
  s.gathers_ahead = true;  // Fabric's FSDPStrategy leaves backward_prefetch to PyTorch
  s.sequences_per_device = kBatchSize;
  s.foreach_optimizer = t.optimizer.foreach.value_or(true);  // torch.optim.AdamW as it comes
  return s;
}

}  // namespace vramplan
