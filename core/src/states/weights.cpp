// The weights themselves: trained, frozen, quantized, adapters.
#include "vramplan/states.hpp"

namespace vramplan {
namespace {

void store(Contributions& out, Component component, std::string_view name, Params count, ElementType type,
           std::int64_t ranks) {
  if (count.value > 0) out.add({component, bytes_per_element(type), {{name, count.value}}, ranks});
}

// The base model without what is trained of it.
void add_frozen(Contributions& out, const Inventory& n, Params trained, const StateTypes& types, std::int64_t ranks) {
  if (!is_quantized(types.base)) {
    store(out, Component::frozen_weights, "P_frozen", n.total - trained, types.weights, ranks);
    return;
  }
  const BlockFormat format = storage_of(types.base);
  out.add({Component::frozen_weights,
           1,
           {{"P_linear", divide_up(saturating_multiply(n.block_linear.value, format.bytes), format.elements)}},
           ranks});
  store(out, Component::frozen_weights, "P_other", n.leftovers, types.leftovers, ranks);
  add_quantization_constants(out, n, types.base, ranks);
}

}  // namespace

void add_weights(Contributions& out, const Inventory& n, const TrainingChoice& training, const StateTypes& types,
                 const Sharding& sharding) {
  const std::int64_t ranks = sharding.weights;
  if (training.method == Method::full) {
    store(out, Component::weights, "P", n.total, types.weights, ranks);
    return;
  }
  add_frozen(out, n, n.trained_base, types, ranks);
  store(out, Component::weights, "P_trained", n.trained_base, types.weights, ranks);
  store(out, Component::weights, "P_copy", n.copies, types.leftovers, ranks);
  store(out, Component::adapters, "P_adapter", n.adapters, types.adapters, ranks);
}

void add_reference_weights(Contributions& out, const Inventory& n, const StateTypes& types, const Sharding& sharding) {
  add_frozen(out, n, Params(0), types, sharding.weights);
}

}  // namespace vramplan
