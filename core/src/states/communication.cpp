// Buffers in which gradients wait for other ranks. DDP: Li et al. 2020 (arXiv 2006.15704),
// torch/csrc/distributed/c10d/reducer.cpp. ZeRO: Rajbhandari et al. 2020 (arXiv 1910.02054), deepspeed/runtime/zero:
// config.py (sizes), stage_1_and_2.py (setup_buckets, reduce_ipg_grads), stage3.py (_setup_for_real_optimizer),
// ../comm/coalesced_collectives.py (reduce_scatter_coalesced).
#include <algorithm>

#include "vramplan/states.hpp"

namespace vramplan {
namespace {

constexpr Component kBuffers = Component::communication_buffers;
constexpr std::int64_t kReduceBucket = 500'000'000;  // reduce_bucket_size, elements

// DistributedDataParallel keeps the gradients a second time, in its buckets; gradient_as_bucket_view is off.
void add_ddp_buckets(Contributions& out, const Inventory& n, const StateTypes& types) {
  out.add({kBuffers, bytes_per_element(types.weights), {{"P_trained", n.trained_base.value}}});
  out.add({kBuffers, bytes_per_element(types.adapters), {{"P_adapter", n.adapters.value}}});
  out.add({kBuffers, bytes_per_element(types.tables), {{"P_copy", n.copies.value}}});
}

ElementType gradient_type(const Inventory& n, const StateTypes& types) {
  return n.trained_base.value > 0 ? types.weights : types.adapters;
}

}  // namespace

// Stage 3: what Accelerate puts where a configuration says "auto", as Transformers' examples do for this stage only.
ZeroSizes zero_sizes(const Sharding& sharding, Dim hidden_size) {
  if (sharding.stage < 3) return {kReduceBucket, 0};
  const std::int64_t square = saturating_multiply(hidden_size, hidden_size);
  return {square, saturating_multiply(square, 9) / 10};
}

void add_standing_buffers(Contributions& out, const Inventory& n, const StateTypes& types, const Sharding& sharding,
                          const ZeroSizes& sizes) {
  if (sharding.engine == Engine::ddp && sharding.stage == 0 && sharding.ranks > 1) add_ddp_buckets(out, n, types);
  if (sharding.engine != Engine::deepspeed || sharding.stage == 0) return;
  const std::int64_t bytes = bytes_per_element(gradient_type(n, types));
  if (sharding.stage == 3) {
    out.add({kBuffers, bytes, {{"bucket", sizes.reduce_bucket}}});
    out.add({Component::gathered_parameters, bytes_per_element(types.weights), {{"P_persistent", n.persistent.value}}});
  } else if (sharding.host_gradients) {  // temp_grad_buffer_for_gpu_offload
    out.add({kBuffers, bytes, {{"P_largest", n.largest_trained.value}}});
  }
}

void add_backward_buffers(Contributions& out, const Inventory& n, const StateTypes& types, const Sharding& sharding,
                          const ZeroSizes& sizes) {
  if (sharding.engine != Engine::deepspeed || sharding.stage == 0) return;
  const std::int64_t bytes = bytes_per_element(gradient_type(n, types));
  if (sharding.stage < 3) {
    out.add({kBuffers, bytes, {{"bucket", sizes.reduce_bucket}}});
  } else {  // the bucket's parts in the order of the ranks
    out.add({kBuffers, bytes, {{"bucket", std::min(sizes.reduce_bucket, n.trained().value)}}});
  }
}

}  // namespace vramplan
