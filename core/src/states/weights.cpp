// The weights themselves: trained, frozen, quantized, adapters.
#include "vramplan/states.hpp"

namespace vramplan {

void add_shared(Contributions& out, Component component, std::string_view name, Params count, Params experts,
                ElementType type, SharedBy shared) {
  const auto store = [&](std::string_view called, Params stored, std::int64_t ranks) {
    if (stored.value > 0) out.add({component, bytes_per_element(type), {{called, stored.value}}, ranks});
  };
  if (shared.ranks == shared.of_experts) experts = Params(0);
  store(name, count - experts, shared.ranks);
  store("P_expert", experts, shared.of_experts);
}

namespace {

// Expert weights of which none are dealt out have no name of their own.
constexpr Params kNone{0};

// The base model without what is trained of it.
void add_frozen(Contributions& out, const Inventory& n, Params trained, Params trained_experts, const StateTypes& types,
                SharedBy shared) {
  if (!is_quantized(types.base)) {
    add_shared(out, Component::frozen_weights, "P_frozen", n.total - trained, n.experts - trained_experts,
               types.weights, shared);
    return;
  }
  const BlockFormat format = storage_of(types.base);
  const auto packed = [&](std::string_view name, Params count, std::int64_t ranks) {
    const std::int64_t bytes = divide_up(saturating_multiply(count.value, format.bytes), format.elements);
    if (bytes > 0) out.add({Component::frozen_weights, 1, {{name, bytes}}, ranks});
  };
  const Params experts = shared.ranks == shared.of_experts ? kNone : n.quantized_experts;
  packed("P_linear", n.block_linear - experts, shared.ranks);
  packed("P_expert", experts, shared.of_experts);
  const Params lowered = types.tables == types.leftovers ? kNone : n.tables;
  add_shared(out, Component::frozen_weights, "P_other", n.leftovers - lowered, n.experts - n.quantized_experts,
             types.leftovers, shared);
  add_shared(out, Component::frozen_weights, "P_tables", lowered, kNone, types.tables, shared);
}

// It has the shape and the type of what it averages (EMAModel of Diffusers; AveragedModel of torch.optim.swa_utils
// copies frozen weights too).
void add_moving_average(Contributions& out, const Inventory& n, const StateTypes& types, SharedBy shared,
                        SharedBy adapters) {
  add_shared(out, Component::weights, "P_ema", n.trained_base, n.trained_experts, types.weights, shared);
  add_shared(out, Component::weights, "P_ema", n.copies, kNone, types.tables, shared);
  add_shared(out, Component::adapters, "P_ema", n.adapters, n.expert_adapters, types.adapters, adapters);
}

// GPTQ's scales and zeros, and LLM.int8's, are tensors of the module.
bool shares_constants(WeightFormat base) {
  return base != WeightFormat::nf4 && base != WeightFormat::nf4_dq && base != WeightFormat::fp4;
}

// Along rows, and along columns for the gradient of the input (transformer_engine/pytorch/tensor/float8_tensor.py).
void add_fp8_weights(Contributions& out, const Inventory& n, const StateTypes& types) {
  const Component base = n.trained_base.value > 0 ? Component::weights : Component::frozen_weights;
  out.add({base, 2 * bytes_per_element(ElementType::fp8), {{"P_matrix", n.matrices.value}}});
  add_shared(out, base, "P_other", n.total - n.matrices, kNone, types.weights, {});
  add_shared(out, Component::adapters, "P_adapter", n.adapters, kNone, types.adapters, {});
}

}  // namespace

void add_weights(Contributions& out, const Inventory& n, const TrainingChoice& training, const StateTypes& types,
                 const Sharding& sharding) {
  const SharedBy shared{sharding.weights, sharding.experts.weights};
  const SharedBy adapters = sharding.whole_adapters ? SharedBy{1, 1} : shared;
  // A 4-bit module keeps its constants beside its weight, as no parameter of its own (bitsandbytes/nn/modules.py,
  // Params4bit.quant_state): sharding and offload pass them by.
  if (is_quantized(types.base)) {
    add_quantization_constants(out, n, types.base, shares_constants(types.base) ? shared.ranks : 1);
  }
  if (sharding.host_weights) return;
  if (training.ema) add_moving_average(out, n, types, shared, adapters);
  if (training.fp8_parameters) return add_fp8_weights(out, n, types);
  if (trains_everything(training)) {
    add_shared(out, Component::weights, "P", n.total, n.experts, types.weights, shared);
    return;
  }
  add_frozen(out, n, n.trained_base, n.trained_experts, types, shared);
  add_shared(out, Component::weights, "P_trained", n.trained_base, n.trained_experts, types.weights, shared);
  add_shared(out, Component::weights, "P_copy", n.copies, kNone, types.tables, shared);
  add_shared(out, Component::adapters, "P_adapter", n.adapters, n.expert_adapters, types.adapters, adapters);
}

void add_reference_weights(Contributions& out, const Inventory& n, const StateTypes& types, const Sharding& sharding) {
  const SharedBy shared{sharding.weights, sharding.experts.weights};
  if (is_quantized(types.base)) {
    add_quantization_constants(out, n, types.base, shares_constants(types.base) ? shared.ranks : 1);
  }
  if (!sharding.host_weights) add_frozen(out, n, kNone, kNone, types, shared);
}

// The fused optimizers of Apex and TransformerEngine keep an FP32 copy of 16-bit weights, as Megatron does. DeepSpeed
// clones FP32 weights too (zero/stage_1_and_2.py, single_partition_of_fp32_groups), as BAdam does (block_optim.py).
void add_master_weights(Contributions& out, const Inventory& n, const TrainingChoice& training, const StateTypes& types,
                        const Sharding& sharding) {
  if (!training.optimizer.master_weights || sharding.host_states) return;
  const bool clones =
      (sharding.engine == Engine::deepspeed && sharding.stage > 0) || training.optimizer.name == OptimizerName::badam;
  const SharedBy shared{sharding.optimizer, sharding.experts.optimizer};
  const auto copied = [&](std::string_view name, Params count, Params experts, ElementType type) {
    if (bytes_per_element(type) != 2 && !clones) return;
    add_shared(out, Component::master_weights, name, count, experts, ElementType::fp32, shared);
  };
  copied("P_trained", n.trained_base, n.trained_experts, types.weights);
  copied("P_adapter", n.adapters, n.expert_adapters, types.adapters);
  copied("P_copy", n.copies, kNone, types.tables);
}

}  // namespace vramplan
