// The weights themselves: trained, frozen, quantized, adapters.
#include "vramplan/states.hpp"

namespace vramplan {

void add_weights(Contributions& out, const Inventory& n, const TrainingChoice& training, const StateTypes& types,
                 const Sharding& sharding) {
  const std::int64_t ranks = sharding.weights;
  const auto stored = [&](Component component, std::string_view name, Params count, ElementType type) {
    if (count.value > 0) out.add({component, bytes_per_element(type), {{name, count.value}}, ranks});
  };
  if (training.method == Method::full) {
    stored(Component::weights, "P", n.total, types.weights);
    return;
  }
  const Params frozen_linear = n.block_linear;
  if (is_quantized(types.base)) {
    const BlockFormat format = storage_of(types.base);
    out.add({Component::frozen_weights,
             1,
             {{"P_linear", divide_up(saturating_multiply(frozen_linear.value, format.bytes), format.elements)}},
             ranks});
    stored(Component::frozen_weights, "P_other", n.leftovers, types.leftovers);
    add_quantization_constants(out, n, types.base, ranks);
  } else {
    stored(Component::frozen_weights, "P_frozen", n.total - n.trained_base, types.weights);
    stored(Component::weights, "P_trained", n.trained_base, types.weights);
  }
  stored(Component::adapters, "P_adapter", n.adapters, types.adapters);
}

}  // namespace vramplan
