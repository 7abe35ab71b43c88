// catalogue(): what the page offers. Lists, limits and defaults come from the core, so that no page repeats them.
#include <functional>

#include "report.hpp"
#include "request.hpp"
#include "vramplan/device.hpp"
#include "vramplan/parameters.hpp"

namespace vramplan {
namespace {

// What the page proposes for the method `freeze`: LLaMA-Factory's default, freeze_trainable_layers.
constexpr Dim kProposedTrainableLayers = 2;

OrderedJson model_row(const ModelCard& card) {
  const std::vector<ParameterGroup> groups = parameter_groups(card.architecture);
  return {{"id", card.id},
          {"label", card.label},
          {"family", card.family},
          {"release", card.release},
          {"parameters", total_parameters(groups).value},
          {"active", active_parameters(groups).value},
          {"layers", layers_of(card.architecture)},
          {"max_position_embeddings", card.architecture.max_position_embeddings},
          {"aliases", card.aliases},
          {"confidence", name_of(card.confidence)}};
}

OrderedJson unsupported_precisions(const Gpu& gpu) {
  OrderedJson out = OrderedJson::array();
  for (const std::string_view name : EnumNames<Precision>::values) {
    if (precision_refusal(gpu, *parse_enum<Precision>(name))) out.push_back(name);
  }
  return out;
}

OrderedJson gpu_row(const Gpu& gpu) {
  return {{"id", gpu.id},
          {"name", gpu.name},
          {"vendor", gpu.vendor},
          {"architecture", gpu.architecture},
          {"form_factor", name_of(gpu.form_factor)},
          {"status", name_of(gpu.status)},
          {"memory_gb", gpu.memory_gb},
          {"usable_bytes", usable_bytes(gpu).value},
          {"memory_bandwidth_gb_per_s", gpu.memory_bandwidth_gb_per_s},
          {"link_gb_per_s", gpu.link_gb_per_s},
          {"group", name_of(group_of(gpu))},
          {"max_per_server", gpu.max_per_server},
          {"unsupported_precisions", unsupported_precisions(gpu)},
          {"confidence", name_of(gpu.confidence)},
          {"doubtful", gpu.doubtful}};
}

OrderedJson system_row(const System& s) {
  return {{"id", s.id},
          {"name", s.name},
          {"vendor", s.vendor},
          {"type", name_of(s.type)},
          {"group", name_of(group_of(s))},
          {"status", name_of(s.status)},
          {"gpus", s.gpus},
          {"gpu_counts", s.gpu_counts},
          {"topology", name_of(s.topology)},
          {"max_power_kw", s.max_power_kw},
          {"confidence", name_of(s.confidence)}};
}

bool supported(const TrainingChoice& training, std::string_view pointer) {
  PlanRequest request;
  request.training = training;
  for (const Problem& p : check_request(request)) {
    if (p.code == ProblemCode::not_supported && p.pointer == pointer) return false;
  }
  return true;
}

// An option that some frameworks do not have names the others.
OrderedJson of_some(OrderedJson option, const std::function<bool(FrameworkId)>& has) {
  OrderedJson names = OrderedJson::array();
  for (const std::string_view name : EnumNames<FrameworkId>::values) {
    if (has(*parse_enum<FrameworkId>(name))) names.push_back(name);
  }
  if (names.size() < EnumNames<FrameworkId>::values.size()) option["frameworks"] = std::move(names);
  return option;
}

// One that some refuse.
OrderedJson where_taken(OrderedJson option, void (*set)(TrainingChoice&)) {
  const auto pointer = option["pointer"].get<std::string>();
  return of_some(std::move(option), [&](FrameworkId framework) {
    TrainingChoice training;
    training.framework = framework;
    set(training);
    return supported(training, pointer);
  });
}

// The values that can be planned today are those that check_request() does not refuse.
template <NamedEnum Enum>
OrderedJson choice(std::string_view pointer, OrderedJson fallback,
                   const std::function<void(TrainingChoice&, Enum)>& set) {
  OrderedJson values = OrderedJson::array();
  for (const std::string_view name : EnumNames<Enum>::values) {
    TrainingChoice training;
    set(training, *parse_enum<Enum>(name));
    if (supported(training, pointer)) values.push_back(name);
  }
  return {{"pointer", pointer}, {"values", std::move(values)}, {"default", std::move(fallback)}};
}

OrderedJson range(std::string_view pointer, IntegerRange r, OrderedJson fallback) {
  return {{"pointer", pointer}, {"minimum", r.minimum}, {"maximum", r.maximum}, {"default", std::move(fallback)}};
}

OrderedJson toggle(std::string_view pointer, OrderedJson fallback) {
  return {{"pointer", pointer}, {"default", std::move(fallback)}};
}
// For those whose support depends on the framework alone.
OrderedJson toggle(std::string_view pointer, OrderedJson fallback, void (*set)(TrainingChoice&)) {
  return where_taken(toggle(pointer, std::move(fallback)), set);
}

void add_choices(OrderedJson& out, const TrainingChoice& d) {
  using T = TrainingChoice;
  out.push_back(
      choice<Objective>("/training/objective", name_of(d.objective), [](T& t, Objective v) { t.objective = v; }));
  out.push_back(choice<Method>("/training/method", name_of(d.method), [](T& t, Method v) { t.method = v; }));
  out.push_back(
      choice<FrameworkId>("/training/framework", name_of(d.framework), [](T& t, FrameworkId v) { t.framework = v; }));
  out.push_back(
      choice<Precision>("/training/precision", name_of(d.precision), [](T& t, Precision v) { t.precision = v; }));
  out.push_back(
      choice<WeightFormat>("/training/base_weights", nullptr, [](T& t, WeightFormat v) { t.base_weights = v; }));
  out.push_back(choice<OptimizerName>("/training/optimizer/name", name_of(d.optimizer.name),
                                      [](T& t, OptimizerName v) { t.optimizer.name = v; }));
  out.push_back(
      choice<StateFormat>("/training/optimizer/states", nullptr, [](T& t, StateFormat v) { t.optimizer.states = v; }));
  out.push_back(
      choice<Recompute>("/training/recompute", name_of(d.recompute), [](T& t, Recompute v) { t.recompute = v; }));
  out.push_back(choice<AttentionKernel>("/training/attention", name_of(d.attention),
                                        [](T& t, AttentionKernel v) { t.attention = v; }));
  out.push_back(
      choice<CrossEntropy>("/training/cross_entropy", nullptr, [](T& t, CrossEntropy v) { t.cross_entropy = v; }));
  out.push_back(choice<Kernels>("/training/kernels", nullptr, [](T& t, Kernels v) { t.kernels = v; }));
  out.push_back(choice<Reference>("/training/reference", nullptr, [](T& t, Reference v) { t.reference = v; }));
  out.push_back(choice<Trainer>("/training/trainer", nullptr, [](T& t, Trainer v) { t.trainer = v; }));
  out.push_back(choice<Recurrence>("/training/recurrence", nullptr, [](T& t, Recurrence v) { t.recurrence = v; }));
  out.push_back(choice<ValueModel>("/training/value_model", nullptr, [](T& t, ValueModel v) { t.value_model = v; }));
  out.push_back(
      choice<RewardModel>("/training/reward_model", nullptr, [](T& t, RewardModel v) { t.reward_model = v; }));
  out.push_back(choice<RecomputeModule>("/training/recompute_modules", OrderedJson::array(),
                                        [](T& t, RecomputeModule v) { t.recompute_modules = {v}; }));
  out.push_back(choice<SavedModule>("/training/lora/modules_to_save", OrderedJson::array(),
                                    [](T& t, SavedModule v) { t.lora.modules_to_save = {v}; }));
}

OrderedJson fraction(std::string_view pointer, NumberRange r, OrderedJson fallback) {
  return {{"pointer", pointer}, {"minimum", r.minimum}, {"maximum", r.maximum}, {"default", std::move(fallback)}};
}

void add_ranges(OrderedJson& out, const TrainingChoice& d) {
  out.push_back(range("/training/sequence_length", limits::kSequenceLength, d.sequence_length));
  out.push_back(range("/training/micro_batch", limits::kMicroBatch, d.micro_batch));
  out.push_back(range("/training/global_batch", limits::kGlobalBatch, nullptr));
  out.push_back(range("/training/lora/rank", limits::kLoraRank, d.lora.rank));
  out.push_back(where_taken(range("/training/mtp_layers", limits::kMtpLayers, d.mtp_layers),
                            [](TrainingChoice& t) { t.mtp_layers = 1; }));
  out.push_back(range("/training/optimizer/rank", limits::kOptimizerRank, nullptr));
  out.push_back({{"pointer", "/training/lora/dropout"}, {"minimum", 0}, {"maximum", 1}, {"default", nullptr}});
  out.push_back(range("/training/trainable_layers", limits::kLayers, kProposedTrainableLayers));
  out.push_back(range("/serving/context", limits::kSequenceLength, nullptr));
  out.push_back(range("/serving/users", limits::kUsers, ServingChoice{}.users));
  out.push_back(range("/hardware/count", limits::kGpuCount, 1));
  out.push_back(range("/model/parameters", limits::kParameters, nullptr));
  out.push_back(range("/training/generation/completion_length", limits::kSequenceLength, nullptr));
  out.push_back(range("/training/generation/generations", limits::kGenerations, nullptr));
  out.push_back(
      {{"pointer", "/training/generation/engine_share"}, {"minimum", 0}, {"maximum", 1}, {"default", nullptr}});
  out.push_back(fraction("/training/moe/imbalance", limits::kImbalance, d.moe.imbalance));
  out.push_back(fraction("/training/moe/capacity_factor", limits::kCapacityFactor, nullptr));
  out.push_back(fraction("/training/tokens", kTokens, nullptr));
  out.push_back(range("/hardware/per_node", limits::kGpuCount, nullptr));
}

// An option of the frameworks that have this kind of parallelism.
OrderedJson split(OrderedJson option, bool Parallelism::*kind) {
  return of_some(std::move(option), [&](FrameworkId framework) { return parallelism_of(framework).*kind; });
}

void add_layout(OrderedJson& out, const LayoutChoice& d) {
  using P = Parallelism;
  out.push_back(range("/layout/zero", {0, 3}, d.zero));
  out.push_back(range("/layout/dp", limits::kGpuCount, d.dp));
  out.push_back(split(range("/layout/tp", limits::kGpuCount, d.tp), &P::tensor));
  out.push_back(split(range("/layout/pp", limits::kGpuCount, d.pp), &P::pipeline));
  out.push_back(split(range("/layout/vpp", limits::kGpuCount, d.vpp), &P::interleaved));
  out.push_back(split(range("/layout/first_stage_layers", limits::kLayers, nullptr), &P::pipeline));
  out.push_back(split(range("/layout/last_stage_layers", limits::kLayers, nullptr), &P::pipeline));
  out.push_back(split(range("/layout/cp", limits::kGpuCount, d.cp), &P::context));
  out.push_back(split(range("/layout/ep", limits::kGpuCount, d.ep), &P::expert));
  out.push_back(split(range("/layout/etp", limits::kGpuCount, nullptr), &P::expert));
  out.push_back(range("/layout/shard", limits::kGpuCount, nullptr));
  out.push_back(
      split({{"pointer", "/layout/cp_exchange"}, {"values", EnumNames<ContextExchange>::values}, {"default", nullptr}},
            &P::context));
  out.push_back(split(toggle("/layout/sp", d.sp), &P::tensor));
  out.push_back(range("/layout/fsdp", limits::kFsdpVersion, nullptr));
  out.push_back(toggle("/layout/reshard", nullptr));
  out.push_back(toggle("/layout/no_sync", nullptr));
}

OrderedJson options() {
  using T = TrainingChoice;
  const T d;
  OrderedJson out = OrderedJson::array();
  add_choices(out, d);
  add_ranges(out, d);
  add_layout(out, {});
  out.push_back({{"pointer", "/training/framework_version"}, {"format", "version"}, {"default", nullptr}});
  out.push_back({{"pointer", "/training/lora/targets"},
                 {"values", {"all-linear", "q", "k", "v", "o", "gate", "up", "down"}},
                 {"default", d.lora.targets}});
  out.push_back(toggle("/training/kbit_upcast", nullptr, [](T& t) { t.kbit_upcast = true; }));
  out.push_back(toggle("/training/optimizer/paged", d.optimizer.paged));
  out.push_back(toggle("/training/optimizer/foreach", nullptr));
  out.push_back(
      toggle("/training/optimizer/in_backward", d.optimizer.in_backward, [](T& t) { t.optimizer.in_backward = true; }));
  out.push_back(toggle("/training/optimizer/momentum", d.optimizer.momentum));
  out.push_back(toggle("/training/optimizer/master_weights", d.optimizer.master_weights));
  out.push_back(toggle("/training/ema", d.ema));
  out.push_back(toggle("/training/fp8_parameters", d.fp8_parameters, [](T& t) { t.fp8_parameters = true; }));
  out.push_back(toggle("/training/fp32_gradients", nullptr, [](T& t) { t.fp32_gradients = true; }));
  out.push_back(toggle("/training/lora/rslora", d.lora.rslora));
  out.push_back(toggle("/training/packing", d.packing));
  out.push_back(toggle("/training/optimizer/fused", nullptr));
  out.push_back(toggle("/training/logits_upcast", nullptr));
  out.push_back(toggle("/training/compile", d.compile));
  out.push_back(toggle("/training/offload/optimizer", d.offload.optimizer));
  out.push_back(toggle("/training/offload/parameters", d.offload.parameters));
  out.push_back(toggle("/training/offload/activations", d.offload.activations));
  return out;
}

OrderedJson source_rows(std::string_view sources_json) {
  OrderedJson out = OrderedJson::array();
  const Json sources = Json::parse(sources_json, nullptr, false);
  for (const auto& [id, source] : sources.items()) {
    out.push_back({{"id", id}, {"title", source.value("title", "")}, {"url", source.value("url", "")}});
  }
  return out;
}

template <class Row, class Write>
OrderedJson rows(const std::vector<Row>& list, Write write) {
  OrderedJson out = OrderedJson::array();
  for (const Row& row : list) out.push_back(write(row));
  return out;
}

}  // namespace

OrderedJson write_catalogue(const Catalogue& catalogue, std::string_view sources_json, std::string_view version) {
  return {{"version", version},
          {"models", rows(catalogue.models, model_row)},
          {"gpus", rows(catalogue.gpus, gpu_row)},
          {"systems", rows(catalogue.systems, system_row)},
          {"options", options()},
          {"sources", source_rows(sources_json)}};
}

}  // namespace vramplan
