// Megatron-LM with Megatron-Core and TransformerEngine. Read at Megatron-LM 23e00ed (October 2025) and
// TransformerEngine 2.11: megatron/training/arguments.py for the defaults.
#include "frameworks.hpp"

namespace vramplan {

FrameworkSwitches megatron_switches(const TrainingChoice& t) {
  constexpr std::int64_t kVocabularyMultiple = 128;  // --make-vocab-size-divisible-by
  FrameworkSwitches s;
  s.source = "megatron";
  s.megatron_modules = true;
  s.fp8 = t.precision == Precision::fp8;
  s.vocabulary_multiple = kVocabularyMultiple;
  s.norm = t.kernels != Kernels::eager ? NormKernel::fused : NormKernel::composite;
  s.recurrence = RecurrenceKernel::fused;
  s.loss = t.cross_entropy == CrossEntropy::fused ? LossKind::fused_kernel : LossKind::vocab_parallel;
  // tensor_parallel/random.py, CheckpointFunction: backward runs the layer with a graph of its own.
  s.reentrant_checkpoints = true;
  s.foreach_optimizer = false;  // TransformerEngine's FusedAdam
  return s;
}

}  // namespace vramplan
