// torchtune: its own modules in the type of the weights, no autocast; rotary positions in FP32; chunked cross-entropy.
// Compiled, each layer and the loss are graphs of their own (torchtune/training/_compile.py). AOTAutograd's partitioner
// keeps what matrix products and attention read or make and recomputes the rest in backward
// (torch/_functorch/partitioners.py): what is left of norm, rotation and gated product are single kernels.
#include "frameworks.hpp"

namespace vramplan {

FrameworkSwitches torchtune_switches(const TrainingChoice& t) {
  FrameworkSwitches s;
  s.source = "torchtune";
  s.norm = t.compile ? NormKernel::fused : NormKernel::composite;
  s.rotary = t.compile ? RotaryKernel::fused : RotaryKernel::composite_fp32;
  s.gated_mlp = t.compile ? GatedMlpKernel::fused : GatedMlpKernel::composite;
  s.compiled_loss = t.compile;
  s.key_repeats.sdpa = true;  // modules/attention.py expands keys and values to all heads
  s.double_quantizes = true;
  s.loss = t.cross_entropy.value_or(CrossEntropy::full_logits) == CrossEntropy::full_logits ? LossKind::upcast_full
                                                                                            : LossKind::in_type_chunked;
  s.loss_chunks = s.loss == LossKind::in_type_chunked ? 8 : 1;  // CEWithChunkedOutputLoss, num_output_chunks
  s.autocast = t.precision == Precision::bf16_amp || t.precision == Precision::fp16_amp;
  // Its configurations ask for the fused AdamW (recipes/configs, fused: True); others are as PyTorch makes them.
  s.foreach_optimizer = t.optimizer.foreach.value_or(t.optimizer.name != OptimizerName::adamw);
  return s;
}

}  // namespace vramplan
