// torchtune: its own modules in the type of the weights, no autocast; rotary positions in FP32; chunked cross-entropy.
#include "frameworks.hpp"

namespace vramplan {

FrameworkSwitches torchtune_switches(const TrainingChoice& t) {
  FrameworkSwitches s;
  s.source = "torchtune";
  s.norm = NormKernel::composite;
  s.rotary = RotaryKernel::composite_fp32;
  s.loss = t.cross_entropy.value_or(CrossEntropy::full_logits) == CrossEntropy::full_logits ? LossKind::upcast_full
                                                                                            : LossKind::in_type_chunked;
  s.loss_chunks = s.loss == LossKind::in_type_chunked ? 8 : 1;  // CEWithChunkedOutputLoss, num_output_chunks
  s.autocast = t.precision == Precision::bf16_amp || t.precision == Precision::fp16_amp;
  s.fp32_adapters = t.precision == Precision::fp32;
  s.foreach_optimizer = t.optimizer.foreach.value_or(true);
  return s;
}

}  // namespace vramplan
