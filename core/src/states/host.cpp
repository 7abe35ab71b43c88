// Host memory of one rank: shards that are offloaded, and what stands beside them there. DeepSpeed:
// deepspeed/runtime/zero/stage_1_and_2.py and stage3.py (cpu_offload); FSDP: torch/distributed/fsdp/_flat_param.py
// (_local_shard, _cpu_grad); paged states: bitsandbytes/functional.py (get_paged).
#include "vramplan/states.hpp"

namespace vramplan {
namespace {

void add_host_weights(Contributions& out, const Inventory& n, const TrainingChoice& training, const StateTypes& types,
                      const Sharding& sharding) {
  Contributions all;
  add_weights(all, n, training, types, sharding);
  for (const Contribution& c : all) {
    if (c.component != Component::quantization_constants) out.add(c);
  }
}

// The FP32 gradient that DeepSpeed's CPU optimizer reads, and 16-bit copies: at stage 3 of the gradients as they come
// in; below it of the updated weights on their way back, and of gradients while they accumulate.
void add_host_gradients(Contributions& out, const Inventory& n, const StateTypes& types, const Sharding& sharding,
                        bool accumulates) {
  if (sharding.engine != Engine::deepspeed) return add_gradients(out, n, types, sharding);
  const std::int64_t trained = n.trained().value;
  const std::int64_t half = bytes_per_element(n.trained_base.value > 0 ? types.weights : types.adapters);
  const bool below_three = sharding.stage < 3;
  out.add({Component::gradients, bytes_per_element(ElementType::fp32), {{"P_trained", trained}}, sharding.optimizer});
  out.add({below_three ? Component::communication_buffers : Component::gradients,
           half,
           {{"P_trained", trained}},
           sharding.optimizer});
  if (!below_three) return;
  out.add({Component::communication_buffers, half, {{"P_largest", n.largest_trained.value}}});
  if (accumulates) out.add({Component::gradients, half, {{"P_trained", trained}}, sharding.optimizer});
}

// All states where they are offloaded; of paged ones those that are not on the GPU, which are the large ones.
void add_host_states(Contributions& out, const Inventory& n, const TrainingChoice& training,
                     const FrameworkSwitches& framework, const StateTypes& types, const Sharding& sharding,
                     const Sharding& here) {
  if (!sharding.host_states && !training.optimizer.paged) return;
  TrainingChoice unpaged = training;
  unpaged.optimizer.paged = false;
  Contributions all;
  Contributions on_gpu;
  add_optimizer_states(all, optimizer_memory(n, unpaged, framework, types), here);
  add_optimizer_states(on_gpu, optimizer_memory(n, training, framework, types), sharding);
  const Bytes paged = all.total() - on_gpu.total();
  out.add({Component::optimizer_states, 1, {{"bytes", paged.value}}});
}

}  // namespace

void add_host_memory(Contributions& out, const Inventory& n, const TrainingChoice& training,
                     const FrameworkSwitches& framework, const StateTypes& types, const Sharding& sharding,
                     bool accumulates) {
  Sharding here = sharding;
  here.host_weights = here.host_gradients = here.host_states = false;
  if (sharding.host_weights) add_host_weights(out, n, training, types, here);
  if (sharding.host_states) add_master_weights(out, n, training, types, here);
  add_host_states(out, n, training, framework, types, sharding, here);
  if (sharding.host_gradients) add_host_gradients(out, n, types, here, accumulates);
}

}  // namespace vramplan
