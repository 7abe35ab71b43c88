// Gradients of everything that is trained, in the type of the weight that they belong to.
#include "vramplan/states.hpp"

namespace vramplan {

void add_gradients(Contributions& out, const Inventory& n, const FrameworkSwitches& framework, const StateTypes& types,
                   std::int64_t shared_by) {
  const Params base = framework.trains_whole_units ? n.total - n.outside_layers : n.trained_base;
  if (base.value > 0) {
    out.add({Component::gradients, bytes_per_element(types.weights), {{"P_trained", base.value}}, shared_by});
  }
  if (n.adapters.value > 0) {
    out.add({Component::gradients, bytes_per_element(types.adapters), {{"P_adapter", n.adapters.value}}, shared_by});
  }
}

}  // namespace vramplan
