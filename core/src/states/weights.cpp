// The weights themselves: trained, frozen, quantized, adapters.
#include "vramplan/states.hpp"

namespace vramplan {

void add_weights(Contributions& out, const Inventory& n, const TrainingChoice& training, const StateTypes& types,
                 const Sharding& sharding) {
  const std::int64_t ranks = sharding.weights;
  const auto stored = [&](Component component, std::string_view name, Params count, ElementType type) {
    if (count.value > 0) out.add({component, bytes_per_element(type), {{name, count.value}}, ranks});
  };
  // The moving average has the shape and the type of what it averages (EMAModel of Diffusers; AveragedModel of
  // torch.optim.swa_utils copies frozen weights too).
  if (training.ema) {
    stored(Component::weights, "P_ema", n.trained_base, types.weights);
    stored(Component::adapters, "P_ema", n.adapters, types.adapters);
  }
  if (trains_all_weights(training.method)) {
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

// The fused optimizers of Apex and TransformerEngine with `master_weights` keep one, as Megatron and DeepSpeed do.
void add_master_weights(Contributions& out, const Inventory& n, const TrainingChoice& training, const StateTypes& types,
                        const Sharding& sharding) {
  if (!training.optimizer.master_weights) return;
  const auto copied = [&](std::string_view name, Params count, ElementType type) {
    if (bytes_per_element(type) != 2 || count.value == 0) return;
    out.add(
        {Component::master_weights, bytes_per_element(ElementType::fp32), {{name, count.value}}, sharding.optimizer});
  };
  copied("P_trained", n.trained_base, types.weights);
  copied("P_adapter", n.adapters, types.adapters);
}

}  // namespace vramplan
