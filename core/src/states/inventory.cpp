// Which parameters are trained, quantized, adapted: counted once from the list of tensors.
#include <algorithm>
#include <initializer_list>

#include "vramplan/enum_names.hpp"
#include "vramplan/states.hpp"

namespace vramplan {
namespace {

constexpr std::uint64_t bit(Module m) { return std::uint64_t{1} << static_cast<unsigned>(m); }

constexpr std::uint64_t bits(std::initializer_list<Module> modules) {
  std::uint64_t sum = 0;
  for (const Module m : modules) sum |= bit(m);
  return sum;
}

// A target that the model holds in a fused module lands on that module.
std::uint64_t with_fused(std::uint64_t wanted) {
  if ((wanted & bits({Module::q, Module::k, Module::v})) != 0) wanted |= bit(Module::qkv);
  if ((wanted & bits({Module::gate, Module::up})) != 0) wanted |= bit(Module::gate_up);
  return wanted;
}

// Megatron-Bridge finds modules by the names that Megatron-Core gives them (peft/module_matcher.py): one for q, k and
// v, one for gate and up, and those of an MLP are also those of experts and shared experts. Routers, and what recurrent
// layers are made of, are no linear layers of its list (peft/lora.py, target_modules).
std::uint64_t with_joined(std::uint64_t wanted) {
  using enum Module;
  std::uint64_t names = wanted & bits({o, q_a, q_b, kv_a, kv_b});
  if ((wanted & bits({q, k, v, qkv})) != 0) names |= bit(qkv);
  if ((wanted & bits({gate, up, gate_up, shared_gate, shared_up})) != 0) names |= bits({gate_up, shared_gate});
  if ((wanted & bits({down, shared_down})) != 0) names |= bits({down, shared_down});
  return names;
}

std::uint64_t wanted_targets(const TrainingChoice& training) {
  std::uint64_t wanted = 0;
  for (const std::string& name : training.lora.targets) {
    if (name == "all-linear") {
      wanted = ~std::uint64_t{0};
    } else if (const auto module = parse_enum<Module>(name)) {
      wanted |= bit(*module);
    }
  }
  return training.framework == FrameworkId::megatron ? with_joined(wanted) : with_fused(wanted);
}

// How many layers of each group are trained: all, the last n, or the one that BAdam has chosen.
std::vector<Dim> trained_layers(const ModelArchitecture& model, const TrainingChoice& training, const Inventory& n) {
  const Dim layers = layers_of(model);
  std::vector<Dim> trained(model.groups.size(), 0);
  if (!trains_everything(training) && trains_all_weights(training.method)) {
    if (!trained.empty()) trained[largest_group(n)] = 1;
    return trained;
  }
  const Dim count = trains_all_weights(training.method) ? layers
                    : training.method == Method::freeze ? std::min(training.trainable_layers.value_or(0), layers)
                                                        : 0;
  const std::vector<Dim> frozen = first_layers(model, layers - count);
  for (std::size_t i = 0; i < trained.size(); ++i) trained[i] = model.groups[i].count - frozen[i];
  return trained;
}

Dim trained_layers_of(const ParameterGroup& g, const TrainingChoice& training, const std::vector<Dim>& trained) {
  if (!g.trainable) return 0;
  if (g.layer_group == kOutsideLayers) {
    const bool new_head = g.module == Module::head && training.objective == Objective::reward;
    return trains_everything(training) || (new_head && !has_adapters(training.method)) ? g.layers : 0;
  }
  return trained[static_cast<std::size_t>(g.layer_group)];
}

std::vector<Params> layer_sizes(const ModelArchitecture& model, const std::vector<ParameterGroup>& groups) {
  std::vector<Params> layers(model.groups.size());
  for (const ParameterGroup& g : groups) {
    if (g.layer_group == kOutsideLayers) continue;
    layers[static_cast<std::size_t>(g.layer_group)] += parameters_per_copy(g) * g.copies;
  }
  return layers;
}

// stage3_param_persistence_threshold where it is "auto" (accelerate/accelerator.py): 10 x hidden size.
constexpr std::int64_t kPersistentPerHidden = 10;

void add_trained(Inventory& n, const TrainedTensor& tensor) {
  n.largest_trained = std::max(n.largest_trained, Params(tensor.elements()));
  n.tensors.push_back(tensor);
}

void add_adapter_tensor(Inventory& n, bool expert, Dim rows, Dim columns, std::int64_t count) {
  const TrainedTensor tensor{.adapter = true, .expert = expert, .rows = rows, .columns = columns, .count = count};
  const Params size(tensor.elements());
  n.adapters += size * count;
  if (expert) n.expert_adapters += size * count;
  if (size <= n.persistent_size) n.persistent += size * count;
  add_trained(n, tensor);
}

void count_quantizer(Inventory& n, const ParameterGroup& g, std::int64_t tensors) {
  const std::int64_t blocks = divide_up(parameters_per_copy(g).value, 64);
  n.absmax_blocks = saturating_add(n.absmax_blocks, saturating_multiply(blocks, tensors));
  n.absmax_second_blocks = saturating_add(n.absmax_second_blocks, saturating_multiply(divide_up(blocks, 256), tensors));
  n.largest_quantized = std::max(n.largest_quantized, parameters_per_copy(g));
  n.rows += Params(g.rows) * tensors;
  n.columns += Params(g.columns) * tensors;
  n.gptq_groups = saturating_add(n.gptq_groups,
                                 saturating_multiply(saturating_multiply(divide_up(g.columns, 128), g.rows), tensors));
}

// Merged adapters of gate and up are one pair of factors of twice the rank, as the parameter of both is one: each side
// has its half of the first factor, and of the second its rows over all of the doubled rank.
bool shares_factors(const ParameterGroup& g, const std::vector<ParameterGroup>& groups) {
  if (g.kind != ParameterKind::expert || (g.module != Module::gate && g.module != Module::up)) return false;
  return std::any_of(groups.begin(), groups.end(), [&](const ParameterGroup& other) {
    return other.module == Module::gate && other.kind == g.kind && other.layer_group == g.layer_group;
  });
}

// ParallelLinearAdapter of Megatron-Bridge (peft/utils.py): the first matrix is cut along the rank, but along the
// inputs where its base is; the second along its outputs, as its base is or else by itself. All experts of a rank share
// one adapter (LoRA.share_expert_adapters).
void count_parallel_adapter(Inventory& n, const ParameterGroup& g, std::int64_t rank, AdapterRanks ranks) {
  const bool expert = g.cut == Cut::expert;
  const std::int64_t cut = expert ? ranks.expert : ranks.tensor;
  const bool row = g.cut == Cut::row || (expert && g.module == Module::down);
  const bool outputs_are_cut = g.cut == Cut::column || (expert && !row);
  add_adapter_tensor(n, expert, row ? rank : divide_up(rank, cut), g.columns, g.layers);
  add_adapter_tensor(n, expert, outputs_are_cut ? g.rows : divide_up(g.rows, cut), rank, g.layers);
}

void count_adapter(Inventory& n, const ParameterGroup& g, const TrainingChoice& t, std::int64_t up_rank) {
  const bool expert = g.cut == Cut::expert;
  const std::int64_t tensors = saturating_multiply(g.copies, g.layers);
  add_adapter_tensor(n, expert, t.lora.rank, g.columns, tensors);
  add_adapter_tensor(n, expert, g.rows, up_rank, tensors);
  if (t.method == Method::dora) add_adapter_tensor(n, expert, g.rows, 1, tensors);
}

void count_adapters(Inventory& n, const TrainingChoice& t, const std::vector<ParameterGroup>& groups,
                    AdapterRanks ranks) {
  const bool merges = switches_for(t, {}).merges_expert_adapters;
  for (const ParameterGroup& g : adapted_groups(t, groups)) {
    n.adapted_groups |= std::uint64_t{1} << static_cast<unsigned>(g.layer_group);
    if (t.framework == FrameworkId::megatron) {
      count_parallel_adapter(n, g, t.lora.rank, ranks);
    } else {
      count_adapter(n, g, t, t.lora.rank * (merges && shares_factors(g, groups) ? 2 : 1));
    }
  }
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

// peft/utils/other.py, ModulesToSaveWrapper: a copy of the module in the type that it has, trained beside the original.
// A new head for classification is always one (peft/peft_model.py, PeftModelForSequenceClassification).
bool keeps_copy(const TrainingChoice& t, Module module) {
  if (!has_adapters(t.method)) return false;
  if (module == Module::head && t.objective == Objective::reward) return true;
  const SavedModule saved = module == Module::head ? SavedModule::head : SavedModule::embedding;
  return std::find(t.lora.modules_to_save.begin(), t.lora.modules_to_save.end(), saved) != t.lora.modules_to_save.end();
}

// A head that is tied to the embedding has no tensor of its own: its copy is one of the embedding.
void count_copies(Inventory& n, const TrainingChoice& t, const std::vector<ParameterGroup>& groups) {
  const bool tied = std::none_of(groups.begin(), groups.end(), [](const ParameterGroup& g) {
    return g.module == Module::head && g.kind == ParameterKind::head;
  });
  for (const ParameterGroup& g : groups) {
    const auto copy = [&](ParameterKind kind, Module module) {
      n.copies += parameters_per_copy(g);
      add_trained(n, {.kind = kind, .module = module, .copy = true, .rows = g.rows, .columns = g.columns});
    };
    if (g.module == Module::embedding && keeps_copy(t, Module::embedding)) copy(g.kind, g.module);
    if (g.module == Module::embedding && tied && keeps_copy(t, Module::head)) copy(ParameterKind::head, Module::head);
    if (g.module == Module::head && keeps_copy(t, Module::head)) copy(g.kind, g.module);
  }
  n.outside_layers += n.copies;
}

// A module is fetched with the parameters of its own: a linear layer with its weight, all experts together.
void count_fetch(Inventory& n, const ParameterGroup& g, std::vector<Params>& experts) {
  if (g.layer_group == kOutsideLayers) return;
  Params fetched = parameters_per_copy(g);
  if (g.kind == ParameterKind::expert) {
    fetched = experts[static_cast<std::size_t>(g.layer_group)] += fetched * g.copies;
  }
  n.largest_fetch = std::max(n.largest_fetch, fetched);
}

}  // namespace

std::size_t largest_group(const Inventory& n) {
  return static_cast<std::size_t>(std::max_element(n.layers.begin(), n.layers.end()) - n.layers.begin());
}

bool trains_outside(const TrainingChoice& t, Module module) {
  const bool new_head = module == Module::head && t.objective == Objective::reward;
  return trains_everything(t) || new_head || keeps_copy(t, module);
}

std::vector<ParameterGroup> groups_for(const ModelArchitecture& model, const TrainingChoice& training,
                                       const WholeModel& whole) {
  std::vector<ParameterGroup> groups = parameter_groups(model);
  if (training.mtp_layers > 0 && model.holds_head) {
    add_prediction_parameters(model, training.mtp_layers, whole, groups);
  }
  if (training.objective != Objective::reward) return groups;
  std::erase_if(groups, [](const ParameterGroup& g) { return g.module == Module::head; });
  ParameterGroup& score = groups.emplace_back();
  score.module = Module::head;
  score.kind = ParameterKind::head;
  score.rows = 1;
  score.columns = model.hidden_size;
  return groups;
}

std::vector<ParameterGroup> adapted_groups(const TrainingChoice& training, const std::vector<ParameterGroup>& groups) {
  if (!has_adapters(training.method)) return {};
  const std::uint64_t wanted = wanted_targets(training);
  std::vector<ParameterGroup> adapted = training.framework == FrameworkId::megatron ? joined_matrices(groups) : groups;
  std::erase_if(adapted, [&](const ParameterGroup& g) {
    const bool takes = g.quantizable && g.columns > 1 && g.layer_group != kOutsideLayers;
    return !takes || (wanted & bit(g.module)) == 0;
  });
  return adapted;
}

std::uint64_t adapter_targets(const TrainingChoice& training, const std::vector<ParameterGroup>& groups) {
  std::uint64_t found = 0;
  for (const ParameterGroup& g : adapted_groups(training, groups)) found |= bit(g.module);
  return found;
}

Inventory take_inventory(const ModelArchitecture& model, const TrainingChoice& training,
                         const std::vector<ParameterGroup>& groups, AdapterRanks ranks) {
  Inventory n;
  n.layers = layer_sizes(model, groups);
  const std::vector<Dim> trained = trained_layers(model, training, n);
  std::vector<Params> experts(model.groups.size());
  n.persistent_size = Params(saturating_multiply(kPersistentPerHidden, model.hidden_size));
  // Lightning Fabric's quantizer replaces every linear (plugins/precision/bitsandbytes.py).
  const bool quantizes_head = training.framework == FrameworkId::litgpt;
  for (const ParameterGroup& g : groups) {
    n.total += parameters_of(g);
    if (g.cut == Cut::expert) n.experts += parameters_of(g);
    n.active += active_parameters_of(g);
    const bool outside = g.layer_group == kOutsideLayers;
    const bool quantized = (g.quantizable && !outside) || (quantizes_head && g.kind == ParameterKind::head);
    (quantized ? n.block_linear : n.leftovers) += parameters_of(g);
    if (quantized && g.cut == Cut::expert) n.quantized_experts += parameters_of(g);
    const bool table = g.kind == ParameterKind::embedding || g.kind == ParameterKind::head;
    if (table && !quantized) n.tables += parameters_of(g);
    if (outside) n.outside_layers += parameters_of(g);
    if (parameters_per_copy(g) <= n.persistent_size) n.persistent += parameters_of(g);
    count_fetch(n, g, experts);
    const std::int64_t tensors = saturating_multiply(g.copies, g.layers);
    if (is_matrix(g) && g.kind != ParameterKind::head) n.matrices += parameters_of(g);
    if (quantized) count_quantizer(n, g, tensors);
    const std::int64_t trained_tensors = saturating_multiply(g.copies, trained_layers_of(g, training, trained));
    if (trained_tensors == 0) continue;
    n.trained_base += parameters_per_copy(g) * trained_tensors;
    if (g.cut == Cut::expert) n.trained_experts += parameters_per_copy(g) * trained_tensors;
    n.with_gradients = n.trained_base;
    add_trained(n, {.kind = g.kind,
                    .module = g.module,
                    .in_block = !outside,
                    .expert = g.cut == Cut::expert,
                    .rows = g.rows,
                    .columns = g.columns,
                    .count = trained_tensors});
  }
  count_adapters(n, training, groups, ranks);
  n.attention_head = attention_head(model);
  n.distinct_matrices = distinct_matrices(groups);
  for (const Params p : n.layers) n.largest_layer = std::max(n.largest_layer, p);
  count_copies(n, training, groups);
  return n;
}

StateTypes state_types(const TrainingChoice& t, const FrameworkSwitches& framework) {
  StateTypes types;
  types.base = t.base_weights.value_or(WeightFormat::bf16);
  if (types.base == WeightFormat::nf4 && framework.double_quantizes) types.base = WeightFormat::nf4_dq;
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
  if (framework.raises_trained && !is_quantized(types.base)) types.weights = ElementType::fp32;
  types.leftovers = is_quantized(types.base) && framework.raises_leftovers ? ElementType::fp32 : types.weights;
  types.tables = framework.lowers_tables ? types.compute : types.leftovers;
  types.adapters = framework.fp32_adapters ? ElementType::fp32 : types.compute;
  switch (t.optimizer.states.value_or(StateFormat::fp32)) {
    case StateFormat::bf16: types.optimizer = ElementType::bf16; break;
    case StateFormat::fp16: types.optimizer = ElementType::fp16; break;
    case StateFormat::int8:
    case StateFormat::int4: types.optimizer = ElementType::int8; break;
    case StateFormat::fp32:
    case StateFormat::factored: types.optimizer = ElementType::fp32; break;
  }
  // States take the type of the weights when the first step runs, whatever these were loaded as.
  if (framework.raises_trained && bytes_per_element(types.optimizer) == 2) types.optimizer = ElementType::fp32;
  return types;
}

}  // namespace vramplan
