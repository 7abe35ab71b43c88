// Optimizer states and the temporaries of the optimizer step.
// AdamW: Loshchilov and Hutter 2017 (arXiv 1711.05101); 8-bit states: Dettmers et al. 2021 (arXiv 2110.02861);
// Adafactor: Shazeer and Stern 2018 (arXiv 1804.04235); Lion: Chen et al. 2023 (arXiv 2302.06675). Temporaries follow
// torch/optim/adamw.py, _multi_tensor_adamw and _fused_adamw.
#include <algorithm>

#include "vramplan/states.hpp"

namespace vramplan {
namespace {

constexpr Component kStates = Component::optimizer_states;

// Moments a parameter; 0 for plain SGD.
std::int64_t moments(OptimizerName name) {
  switch (name) {
    case OptimizerName::adamw: return 2;
    case OptimizerName::lion: return 1;
    default: return 0;
  }
}

void add_8bit_states(Contributions& out, const Inventory& n, std::int64_t count, std::int64_t ranks) {
  const Params large = n.trained() - n.small;
  out.add({kStates, count, {{"P_8bit", large.value}}, ranks});
  out.add({kStates, count * 4, {{"B_256", n.quantized_blocks}}, ranks});
  out.add({kStates, count * 4, {{"P_32bit", n.small.value}}, ranks});
}

// `count` tensors as large as what is trained. Copies of modules keep the type that they have; PyTorch makes states in
// the type of their parameter.
void add_like_weights(Contributions& out, Component component, std::int64_t count, const Inventory& n,
                      const StateTypes& types, const Sharding& sharding) {
  const Params others = n.trained() - n.copies;
  out.add({component, count * bytes_per_element(types.optimizer), {{"P_trained", others.value}}, sharding.optimizer});
  if (n.copies.value == 0) return;
  out.add({component, count * bytes_per_element(types.leftovers), {{"P_copy", n.copies.value}}, sharding.optimizer});
}

bool is_8bit(const TrainingChoice& t) { return t.optimizer.states == StateFormat::int8; }

// DeepSpeed joins the gradients of a shard into one tensor and makes that FP32, then drops the parts: an update that
// makes a temporary of its own needs no more than this did (zero/stage_1_and_2.py, step; stage3.py,
// _prepare_fp32_grad_for_sub_group; at stage 0 fp16/fused_optimizer.py, step, which casts first). At stage 3 for one
// group of parameters at a time.
constexpr std::int64_t kSubGroup = 1'000'000'000;  // sub_group_size, elements of a rank

bool add_flat_gradients(Contributions& out, const Inventory& n, const StateTypes& types, const Sharding& sharding) {
  const std::int64_t type = bytes_per_element(n.trained_base.value > 0 ? types.weights : types.adapters);
  const bool half = type == 2;
  if (sharding.stage == 0 && !half) return false;  // no wrapper: a plain optimizer
  const std::int64_t flat = sharding.stage == 0 ? bytes_per_element(ElementType::fp32) : type;
  const std::int64_t each = flat + (half ? bytes_per_element(ElementType::fp32) : 0);
  std::int64_t shard = divide_up(n.trained().value, sharding.optimizer);
  if (sharding.stage == 3) shard = std::min(shard, kSubGroup);
  out.add({Component::optimizer_temporaries, each, {{"P_shard", shard}}});
  return true;
}

}  // namespace

void add_optimizer_states(Contributions& out, const Inventory& n, const TrainingChoice& t, const FrameworkSwitches&,
                          const StateTypes& types, const Sharding& sharding) {
  if (sharding.host_states) return;
  if (t.optimizer.paged) return;  // in host memory that the driver pages: torch does not see it
  if (t.optimizer.name == OptimizerName::adafactor) {
    out.add({kStates, 4, {{"P_factored", n.row_and_column_sums.value}}, sharding.optimizer});
    return;
  }
  const std::int64_t count = moments(t.optimizer.name);
  if (is_8bit(t)) {
    add_8bit_states(out, n, count, sharding.optimizer);
  } else {
    add_like_weights(out, kStates, count, n, types, sharding);
  }
}

void add_optimizer_temporaries(Contributions& out, const Inventory& n, const TrainingChoice& t,
                               const FrameworkSwitches& framework, const StateTypes& types, const Sharding& sharding) {
  if (sharding.host_states) return;
  if (sharding.engine == Engine::deepspeed && add_flat_gradients(out, n, types, sharding)) return;
  constexpr Component kTemporaries = Component::optimizer_temporaries;
  switch (t.optimizer.name) {
    case OptimizerName::adamw:
      if (is_8bit(t)) return;                    // one kernel a tensor, in place
      if (!framework.foreach_optimizer) return;  // the fused kernel has none
      // The root of the second moments, for all parameters at once.
      add_like_weights(out, kTemporaries, 1, n, types, sharding);
      return;
    case OptimizerName::adafactor:  // FP32 gradient, its square and the update of one tensor
      out.add({kTemporaries, 3 * 4, {{"P_largest", n.largest_trained.value}}, sharding.optimizer});
      return;
    case OptimizerName::lion:
      if (is_8bit(t)) return;
      out.add({kTemporaries,
               2 * bytes_per_element(types.weights),
               {{"P_largest", n.largest_trained.value}},
               sharding.optimizer});
      return;
    default: return;
  }
}

}  // namespace vramplan
