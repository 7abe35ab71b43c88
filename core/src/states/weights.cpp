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
}

// It has the shape and the type of what it averages (EMAModel of Diffusers; AveragedModel of torch.optim.swa_utils
// copies frozen weights too).
void add_moving_average(Contributions& out, const Inventory& n, const StateTypes& types, std::int64_t ranks) {
  store(out, Component::weights, "P_ema", n.trained_base, types.weights, ranks);
  store(out, Component::weights, "P_ema", n.copies, types.leftovers, ranks);
  store(out, Component::adapters, "P_ema", n.adapters, types.adapters, ranks);
}

// GPTQ's scales and zeros, and LLM.int8's, are tensors of the module.
bool shares_constants(WeightFormat base) {
  return base != WeightFormat::nf4 && base != WeightFormat::nf4_dq && base != WeightFormat::fp4;
}

}  // namespace

void add_weights(Contributions& out, const Inventory& n, const TrainingChoice& training, const StateTypes& types,
                 const Sharding& sharding) {
  const std::int64_t ranks = sharding.weights;
  // A 4-bit module keeps its constants beside its weight, as no parameter of its own (bitsandbytes/nn/modules.py,
  // Params4bit.quant_state): sharding and offload pass them by.
  if (is_quantized(types.base)) {
    add_quantization_constants(out, n, types.base, shares_constants(types.base) ? ranks : 1);
  }
  if (sharding.host_weights) return;
  if (training.ema) add_moving_average(out, n, types, ranks);
  if (trains_all_weights(training.method)) {
    store(out, Component::weights, "P", n.total, types.weights, ranks);
    return;
  }
  add_frozen(out, n, n.trained_base, types, ranks);
  store(out, Component::weights, "P_trained", n.trained_base, types.weights, ranks);
  store(out, Component::weights, "P_copy", n.copies, types.leftovers, ranks);
  store(out, Component::adapters, "P_adapter", n.adapters, types.adapters, ranks);
}

void add_reference_weights(Contributions& out, const Inventory& n, const StateTypes& types, const Sharding& sharding) {
  const std::int64_t ranks = sharding.weights;
  if (is_quantized(types.base)) {
    add_quantization_constants(out, n, types.base, shares_constants(types.base) ? ranks : 1);
  }
  if (!sharding.host_weights) add_frozen(out, n, Params(0), types, ranks);
}

// The fused optimizers of Apex and TransformerEngine keep an FP32 copy of 16-bit weights, as Megatron does. DeepSpeed
// clones FP32 weights too (zero/stage_1_and_2.py, single_partition_of_fp32_groups).
void add_master_weights(Contributions& out, const Inventory& n, const TrainingChoice& training, const StateTypes& types,
                        const Sharding& sharding) {
  if (!training.optimizer.master_weights || sharding.host_states) return;
  const bool clones = sharding.engine == Engine::deepspeed && sharding.stage > 0;
  const auto copied = [&](std::string_view name, Params count, ElementType type) {
    if ((bytes_per_element(type) != 2 && !clones) || count.value == 0) return;
    out.add(
        {Component::master_weights, bytes_per_element(ElementType::fp32), {{name, count.value}}, sharding.optimizer});
  };
  copied("P_trained", n.trained_base, types.weights);
  copied("P_adapter", n.adapters, types.adapters);
  copied("P_copy", n.copies, types.leftovers);
}

}  // namespace vramplan
