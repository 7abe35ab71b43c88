// Gradients of everything that is trained, in the type of the weight that they belong to.
#include "vramplan/states.hpp"

namespace vramplan {

void add_gradients(Contributions& out, const Inventory& n, const StateTypes& types, const Sharding& sharding) {
  if (n.trained_base.value > 0) {
    out.add({Component::gradients,
             bytes_per_element(types.weights),
             {{"P_trained", n.trained_base.value}},
             sharding.gradients});
  }
  if (n.adapters.value > 0) {
    out.add({Component::gradients,
             bytes_per_element(types.adapters),
             {{"P_adapter", n.adapters.value}},
             sharding.gradients});
  }
  if (n.copies.value > 0) {
    out.add(
        {Component::gradients, bytes_per_element(types.leftovers), {{"P_copy", n.copies.value}}, sharding.gradients});
  }
}

}  // namespace vramplan
