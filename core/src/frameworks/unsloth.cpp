// Unsloth (2026.10): PEFT adapters as fused autograd functions over frozen weights, Triton kernels for RMSNorm, rotary
// positions, the gated MLP and the loss, checkpoints in host memory. Norms, embedding and head keep the type in which
// they were loaded; adapters are FP32 (unsloth_zoo/training_utils.py, prepare_model_for_training).
#include "frameworks.hpp"

namespace vramplan {

FrameworkSwitches unsloth_switches(const TrainingChoice& t) {
  FrameworkSwitches s;
  s.source = "unsloth";
  s.norm = NormKernel::fused;
  s.rotary = RotaryKernel::fused_forward;
  s.gated_mlp = GatedMlpKernel::fused;
  s.recurrence = RecurrenceKernel::fused;
  // unsloth_fused_ce_loss, or with UNSLOTH_RETURN_LOGITS=1 fast_cross_entropy_loss.
  const bool materialised = t.cross_entropy == CrossEntropy::full_logits;
  s.loss = materialised ? LossKind::fused_kernel : LossKind::fused_linear;
  s.logits_upcast = false;
  s.gradient_over_logits = false;
  s.loss_chunk = LossChunk::fp32;
  s.chunk_rule = ChunkRule::unsloth;
  s.autocast = t.precision == Precision::bf16_amp || t.precision == Precision::fp16_amp;
  s.fp32_adapters = true;
  s.adapter_casts_input = !(s.autocast && t.method == Method::qlora);  // where PEFT runs the adapter: see transformers
  s.quantized_output_follows_input = true;
  s.foreach_optimizer = t.optimizer.foreach.value_or(false);  // the Trainer's
  set_trainer_optimizers(s);
  s.adapter_fusion = AdapterFusion::unsloth;
  s.offloads_checkpoints = t.recompute == Recompute::full;  // use_gradient_checkpointing="unsloth", its default
  return s;
}

}  // namespace vramplan
