// Hugging Face Transformers with PEFT, bitsandbytes and Accelerate: modules written in plain tensor operations
// (modeling_llama.py and its kin), autocast for mixed precision, FSDP or DeepSpeed through Accelerate.
#include "frameworks.hpp"

namespace vramplan {

FrameworkSwitches transformers_switches(const TrainingChoice& t, bool sharded) {
  FrameworkSwitches s;
  s.source = "transformers";
  const bool fused = t.kernels == Kernels::fused;  // Liger or FOAK kernels patched in
  s.norm = fused ? NormKernel::fused : NormKernel::composite;
  s.rotary = fused ? RotaryKernel::fused : RotaryKernel::composite;
  s.gated_mlp = GatedMlpKernel::composite;
  const bool without_logits = t.cross_entropy != CrossEntropy::full_logits;
  s.loss = without_logits ? LossKind::fused_linear : fused ? LossKind::fused_kernel : LossKind::upcast_full;
  s.loss_chunks = without_logits ? 8 : 1;
  s.autocast = t.precision == Precision::bf16_amp || t.precision == Precision::fp16_amp;
  s.fp32_adapters = true;  // peft: autocast_adapter_dtype raises 16-bit adapters to FP32, whatever the precision
  s.adapter_casts_input =
      !(s.autocast && t.method == Method::qlora);  // peft/tuners/lora/bnb.py casts outside autocast only
  s.quantized_output_follows_input = true;         // bitsandbytes/nn/modules.py, Linear4bit.forward
  s.masks_sdpa_windows = true;
  s.foreach_optimizer = t.optimizer.foreach.value_or(false);  // Trainer's default since 4.58 is the fused kernel
  s.hugging_face_optimizers = true;
  s.fp32_embedding_states = true;  // trainer.py, create_optimizer: bitsandbytes' 8-bit optimizers only
  s.torchao_block = 256;           // trainer_optimizer.py, _get_torchao_optimizer: also for 4 bits
  s.raises_leftovers = t.kbit_upcast.value_or(false) && !sharded;  // FSDP's mixed precision lowers them again
  const bool adapters = !trains_all_weights(t.method) && t.method != Method::freeze;
  s.keeps_stream_in_backward = sharded && adapters;
  return s;
}

}  // namespace vramplan
