// Gradients of everything that is trained, in the type of the weight that they belong to.
#include "vramplan/states.hpp"

namespace vramplan {
namespace {

void add_all(Contributions& out, const Inventory& n, ElementType weights, const StateTypes& types, std::int64_t ranks) {
  constexpr Component kGradients = Component::gradients;
  const auto add = [&](std::string_view name, Params count, ElementType type) {
    if (count.value > 0) out.add({kGradients, bytes_per_element(type), {{name, count.value}}, ranks});
  };
  add("P_trained", n.with_gradients, weights);
  add("P_adapter", n.adapters, types.adapters);
  add("P_copy", n.copies, types.leftovers);
}

}  // namespace

void add_gradients(Contributions& out, const Inventory& n, const StateTypes& types, const Sharding& sharding) {
  if (sharding.host_gradients) return;
  // DeepSpeed's stage 1 frees what the rank does not update when it has reduced (zero/stage_1_and_2.py, step).
  const bool first_stage = sharding.engine == Engine::deepspeed && sharding.stage == 1;
  add_all(out, n, types.weights, types, first_stage ? sharding.optimizer : sharding.gradients);
}

void add_gradients_between_passes(Contributions& out, const Inventory& n, const StateTypes& types,
                                  const Sharding& sharding, ElementType unsharded) {
  if (sharding.defers_reduction) return add_all(out, n, unsharded, types, 1);
  if (sharding.gradients > 1 || sharding.stage >= 2) return add_gradients(out, n, types, sharding);
  add_all(out, n, types.weights, types, 1);
}

}  // namespace vramplan
