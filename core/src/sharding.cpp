#include "vramplan/sharding.hpp"

#include <algorithm>

namespace vramplan {
namespace {

Engine engine_of(const TrainingChoice& training, const LayoutChoice& layout) {
  if (training.framework == FrameworkId::deepspeed) return Engine::deepspeed;
  if (training.framework == FrameworkId::megatron) return Engine::megatron;
  if (layout.zero < 2 || data_ranks(layout) == 1) return Engine::ddp;
  const bool second = layout.fsdp ? *layout.fsdp == 2 : uses_fully_shard(training.framework);
  return second ? Engine::fsdp2 : Engine::fsdp1;
}

// Trainer and Fabric accumulate under no_sync (transformers/trainer.py; lightning/fabric/strategies/fsdp.py);
// torchtune and torchtitan reduce in each pass. A pipeline of PyTorch's leaves weights and gradients whole until the
// last micro-batch (torch/distributed/pipelining/stage.py, backward_maybe_with_nosync; torchtitan's
// reshard_after_forward, "default").
bool is_piped(const LayoutChoice& layout) { return layout.pp > 1; }
bool defers_by_default(const TrainingChoice& training, const LayoutChoice& layout) {
  return is_piped(layout) || !uses_fully_shard(training.framework);
}

// FSDP's CPUOffload moves parameters, and with them gradients and states; DeepSpeed's offload_optimizer moves the
// gradients and the states, its offload_param the weights.
void place(Sharding& s, const OffloadChoice& offload) {
  s.host_weights = offload.parameters;
  s.host_states = s.is_fsdp() ? offload.parameters : offload.optimizer;
  s.host_gradients = s.host_states;
}

template <class Shares>
void share(Shares& shares, const Sharding& s, std::int64_t stage, std::int64_t ranks) {
  if (stage >= 1) shares.optimizer = ranks;
  if (stage >= 2) shares.gradients = ranks;
  if (s.gathers) shares.weights = ranks;
}

}  // namespace

Sharding sharding_of(const TrainingChoice& training, const LayoutChoice& layout) {
  Sharding s;
  s.engine = engine_of(training, layout);
  s.ranks = data_ranks(layout);
  s.stage = layout.zero;
  s.gathers = s.is_fsdp() || (s.engine == Engine::deepspeed && layout.zero == 3);
  s.reshards = layout.reshard.value_or(layout.zero == 3 && !is_piped(layout));
  s.defers_reduction = s.is_fsdp() && layout.no_sync.value_or(defers_by_default(training, layout));
  place(s, training.offload);
  const std::int64_t shard = layout.shard.value_or(s.ranks);
  share(s, s, layout.zero, shard);
  share(s.experts, s, layout.zero, std::min(shard, expert_data_ranks(layout)));
  // FOAK's fused adapters read their matrices past FSDP, which is told to ignore them
  // (fms_acceleration_foak/utils.py, lora_adapters_switch_ddp_from_fsdp).
  s.whole_adapters = s.is_fsdp() && fuses_adapters_of_quantized(training);
  if (s.whole_adapters) s.gradients = s.optimizer = s.experts.gradients = s.experts.optimizer = 1;
  return s;
}

}  // namespace vramplan
