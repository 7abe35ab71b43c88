// Which parameters are trained, quantized, adapted: counted once from the list of tensors.
#include <algorithm>

#include "vramplan/enum_names.hpp"
#include "vramplan/states.hpp"

namespace vramplan {
namespace {

constexpr std::uint64_t bit(Module m) { return std::uint64_t{1} << static_cast<unsigned>(m); }

bool has_adapters(Method method) { return method == Method::lora || method == Method::dora || method == Method::qlora; }

// A target that the model holds in a fused module lands on that module.
std::uint64_t with_fused(std::uint64_t wanted) {
  if ((wanted & (bit(Module::q) | bit(Module::k) | bit(Module::v))) != 0) wanted |= bit(Module::qkv);
  if ((wanted & (bit(Module::gate) | bit(Module::up))) != 0) wanted |= bit(Module::gate_up);
  return wanted;
}

bool adapts(const ParameterGroup& g, std::uint64_t targets) {
  return g.quantizable && g.columns > 1 && (targets & bit(g.module)) != 0;
}

// The last n layers are trained: how many layers of each group those are, walking from the end.
std::vector<Dim> trained_layers(const ModelArchitecture& model, const TrainingChoice& training) {
  std::vector<Dim> trained(model.groups.size(), 0);
  Dim left = trains_all_weights(training.method) ? layers_of(model)
             : training.method == Method::freeze ? training.trainable_layers.value_or(0)
                                                 : 0;
  for (std::size_t i = model.groups.size(); i-- > 0;) {
    trained[i] = std::min(left, model.groups[i].count);
    left -= trained[i];
  }
  return trained;
}

Dim trained_layers_of(const ParameterGroup& g, const TrainingChoice& training, const std::vector<Dim>& trained) {
  if (!g.trainable) return 0;
  if (g.layer_group == kOutsideLayers) return trains_all_weights(training.method) ? 1 : 0;
  return trained[static_cast<std::size_t>(g.layer_group)];
}

void add_trained(Inventory& n, const ParameterGroup& g, bool in_block, std::int64_t count) {
  n.tensors.push_back({g.kind, g.module, in_block, false, g.rows, g.columns, count});
}

void add_adapter_tensor(Inventory& n, Dim rows, Dim columns, std::int64_t count) {
  n.tensors.push_back({ParameterKind::linear, Module::other, false, true, rows, columns, count});
}

void count_quantizer(Inventory& n, const ParameterGroup& g, std::int64_t tensors) {
  const std::int64_t blocks = divide_up(parameters_per_copy(g).value, 64);
  n.absmax_blocks = saturating_add(n.absmax_blocks, saturating_multiply(blocks, tensors));
  n.absmax_second_blocks = saturating_add(n.absmax_second_blocks, saturating_multiply(divide_up(blocks, 256), tensors));
  n.rows += Params(g.rows) * tensors;
  n.columns += Params(g.columns) * tensors;
  n.gptq_groups = saturating_add(n.gptq_groups,
                                 saturating_multiply(saturating_multiply(divide_up(g.columns, 128), g.rows), tensors));
}

void count_adapter(Inventory& n, const ParameterGroup& g, const TrainingChoice& t, std::int64_t tensors) {
  n.adapters += Params(t.lora.rank) * saturating_add(g.rows, g.columns) * tensors;
  add_adapter_tensor(n, t.lora.rank, g.columns, tensors);
  add_adapter_tensor(n, g.rows, t.lora.rank, tensors);
  if (t.method != Method::dora) return;
  n.adapters += Params(g.rows) * tensors;
  add_adapter_tensor(n, g.rows, 1, tensors);
}

// Adam-mini's head_numel: hidden size squared over the number of heads.
Params attention_head(const ModelArchitecture& model) {
  for (const LayerGroup& group : model.groups) {
    for (const Mixer& mixer : group.mixers) {
      const auto* a = std::get_if<Attention>(&mixer);
      if (a != nullptr && a->heads > 0)
        return Params(saturating_multiply(model.hidden_size, model.hidden_size) / a->heads);
    }
  }
  return {};
}

}  // namespace

std::uint64_t adapter_targets(const TrainingChoice& training, const std::vector<ParameterGroup>& groups) {
  if (!has_adapters(training.method)) return 0;
  std::uint64_t wanted = 0;
  for (const std::string& name : training.lora.targets) {
    if (name == "all-linear") {
      wanted = ~std::uint64_t{0};
    } else if (const auto module = parse_enum<Module>(name)) {
      wanted |= bit(*module);
    }
  }
  wanted = with_fused(wanted);
  std::uint64_t found = 0;
  for (const ParameterGroup& g : groups) {
    if (g.quantizable && g.columns > 1 && g.layer_group != kOutsideLayers) found |= bit(g.module);
  }
  return wanted & found;
}

Inventory take_inventory(const ModelArchitecture& model, const TrainingChoice& training,
                         const std::vector<ParameterGroup>& groups) {
  Inventory n;
  const std::uint64_t targets = adapter_targets(training, groups);
  const std::vector<Dim> trained = trained_layers(model, training);
  std::vector<Params> layer(model.groups.size());
  for (const ParameterGroup& g : groups) {
    n.total += parameters_of(g);
    n.active += active_parameters_of(g);
    const bool outside = g.layer_group == kOutsideLayers;
    (g.quantizable && !outside ? n.block_linear : n.leftovers) += parameters_of(g);
    if (outside) {
      n.outside_layers += parameters_of(g);
    } else {
      layer[static_cast<std::size_t>(g.layer_group)] += parameters_per_copy(g) * g.copies;
    }
    const std::int64_t tensors = saturating_multiply(g.copies, g.layers);
    if (g.quantizable && !outside) count_quantizer(n, g, tensors);
    if (!outside && adapts(g, targets)) count_adapter(n, g, training, tensors);
    const std::int64_t trained_tensors = saturating_multiply(g.copies, trained_layers_of(g, training, trained));
    if (trained_tensors == 0) continue;
    n.trained_base += parameters_per_copy(g) * trained_tensors;
    add_trained(n, g, !outside, trained_tensors);
  }
  n.attention_head = attention_head(model);
  for (const Params p : layer) n.largest_layer = std::max(n.largest_layer, p);
  return n;
}

StateTypes state_types(const TrainingChoice& t, const FrameworkSwitches& framework) {
  StateTypes types;
  types.base = t.base_weights.value_or(WeightFormat::bf16);
  switch (t.precision) {
    case Precision::fp32: types.compute = ElementType::fp32; break;
    case Precision::fp16_amp:
    case Precision::fp16: types.compute = ElementType::fp16; break;
    case Precision::bf16_amp:
    case Precision::bf16:
    case Precision::fp8: types.compute = ElementType::bf16; break;
  }
  const ElementType half = types.compute == ElementType::fp16 ? ElementType::fp16 : ElementType::bf16;
  types.weights = types.base == WeightFormat::fp32   ? ElementType::fp32
                  : types.base == WeightFormat::fp16 ? ElementType::fp16
                                                     : half;
  types.leftovers = is_quantized(types.base) && framework.raises_leftovers ? ElementType::fp32 : types.weights;
  types.adapters = framework.fp32_adapters ? ElementType::fp32 : types.compute;
  switch (t.optimizer.states.value_or(StateFormat::fp32)) {
    case StateFormat::bf16: types.optimizer = ElementType::bf16; break;
    case StateFormat::fp16: types.optimizer = ElementType::fp16; break;
    case StateFormat::int8:
    case StateFormat::int4: types.optimizer = ElementType::int8; break;
    case StateFormat::fp32:
    case StateFormat::factored: types.optimizer = ElementType::fp32; break;
  }
  return types;
}

Sharding sharding_of(const LayoutChoice& layout) {
  Sharding s;
  if (layout.zero >= 1) s.optimizer = layout.dp;
  if (layout.zero >= 2) s.gradients = layout.dp;
  if (layout.zero >= 3) s.weights = layout.dp;
  return s;
}

}  // namespace vramplan
