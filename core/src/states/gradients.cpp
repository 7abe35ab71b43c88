// Gradients of everything that is trained, in the type of the weight that they belong to.
#include "vramplan/states.hpp"

namespace vramplan {
namespace {

void add_all(Contributions& out, const Inventory& n, ElementType weights, const StateTypes& types, SharedBy shared) {
  constexpr Component kGradients = Component::gradients;
  add_shared(out, kGradients, "P_trained", n.with_gradients, n.trained_experts, weights, shared);
  add_shared(out, kGradients, "P_adapter", n.adapters, n.expert_adapters, types.adapters, shared);
  add_shared(out, kGradients, "P_copy", n.copies, Params(0), types.tables, shared);
}

}  // namespace

void add_gradients(Contributions& out, const Inventory& n, const StateTypes& types, const Sharding& sharding) {
  if (sharding.host_gradients) return;
  // DeepSpeed's stage 1 frees what the rank does not update when it has reduced (zero/stage_1_and_2.py, step).
  const bool first_stage = sharding.engine == Engine::deepspeed && sharding.stage == 1;
  const SharedBy optimizer{sharding.optimizer, sharding.experts.optimizer};
  const SharedBy gradients{sharding.gradients, sharding.experts.gradients};
  add_all(out, n, types.weights, types, first_stage ? optimizer : gradients);
}

void add_gradients_between_passes(Contributions& out, const Inventory& n, const StateTypes& types,
                                  const Sharding& sharding, ElementType unsharded) {
  if (sharding.defers_reduction) return add_all(out, n, unsharded, types, {});
  if (sharding.gradients > 1 || sharding.stage >= 2) return add_gradients(out, n, types, sharding);
  add_all(out, n, types.weights, types, {});
}

}  // namespace vramplan
