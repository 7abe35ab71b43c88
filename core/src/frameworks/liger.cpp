// Transformers with Liger's kernels patched in (liger_kernel 0.8, transformers/monkey_patch.py,
// apply_liger_kernel_to_llama and its kin; arXiv 2410.10989): RMSNorm, rotary positions and the gated MLP are one
// kernel each, and head and loss are one function. Everything else is Transformers.
#include "frameworks.hpp"

namespace vramplan {

FrameworkSwitches liger_switches(const TrainingChoice& t, const Sharding& sharding) {
  FrameworkSwitches s = transformers_switches(t, sharding);
  s.source = "liger";
  s.norm = NormKernel::fused;
  s.rotary = RotaryKernel::fused;
  s.gated_mlp = GatedMlpKernel::fused;
  // With fused_linear_cross_entropy=False and cross_entropy=True the kernel takes the place of torch's cross_entropy
  // in ForCausalLMLoss, behind its upcast.
  const bool materialised = t.cross_entropy == CrossEntropy::full_logits;
  s.loss = materialised ? LossKind::fused_kernel : LossKind::fused_linear;
  s.loss_chunk = LossChunk::in_type;
  s.chunk_rule = ChunkRule::as_small_as_hidden;
  return s;
}

}  // namespace vramplan
