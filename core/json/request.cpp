#include "request.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config.hpp"
#include "lora_targets.hpp"
#include "vramplan/enum_names.hpp"

namespace vramplan {
namespace {

constexpr std::size_t kMostTargets = 64;
constexpr IntegerRange kZeroStage{0, 3};
constexpr NumberRange kDropout{0.0, 1.0};
constexpr NumberRange kEngineShare{0.0, 1.0};

// ---- model

ModelOverrides read_overrides(const Json& value, const std::string& pointer, Problems& problems) {
  ModelOverrides overrides;
  ObjectReader reader(value, pointer, problems);
  reader.integer("num_hidden_layers", overrides.num_hidden_layers, limits::kLayers);
  reader.integer("hidden_size", overrides.hidden_size, limits::kWidth);
  reader.integer("intermediate_size", overrides.intermediate_size, limits::kWidth);
  reader.integer("num_attention_heads", overrides.num_attention_heads, limits::kHeads);
  reader.integer("num_key_value_heads", overrides.num_key_value_heads, limits::kHeads);
  reader.integer("head_dim", overrides.head_dim, limits::kWidth);
  reader.integer("vocab_size", overrides.vocab_size, limits::kVocabulary);
  reader.integer("num_experts", overrides.num_experts, limits::kExperts);
  reader.integer("moe_intermediate_size", overrides.moe_intermediate_size, limits::kWidth);
  reader.integer("max_position_embeddings", overrides.max_position_embeddings, limits::kSequenceLength);
  reader.boolean("tie_word_embeddings", overrides.tie_word_embeddings);
  reader.boolean("text_only", overrides.text_only);
  reader.finish();
  return overrides;
}

ModelById read_model_by_id(ObjectReader& reader) {
  ModelById model;
  reader.string("id", model.id, Need::required);
  if (const Json* overrides = reader.object("overrides")) {
    model.overrides = read_overrides(*overrides, reader.pointer_to("overrides"), reader.problems());
  }
  return model;
}

ModelBySize read_model_by_size(ObjectReader& reader) {
  ModelBySize model;
  reader.integer("parameters", model.parameters.value, limits::kParameters, Need::required);
  return model;
}

ModelByConfig read_model_by_config(ObjectReader& reader) {
  ModelByConfig model;
  const Json* config = reader.object("config", Need::required);
  if (config == nullptr) return model;
  Result<ModelArchitecture> read = read_config(*config, reader.pointer_to("config"));
  if (!read.ok()) {
    reader.problems().insert(reader.problems().end(), read.problems().begin(), read.problems().end());
    return model;
  }
  model.architecture = std::move(read).value();
  const auto type = config->find("model_type");
  if (type != config->end() && type->is_string()) model.model_type = shortened(type->get_ref<const std::string&>());
  return model;
}

// A model is given in one way. Fields of another way contradict it.
void refuse_other_ways(ObjectReader& reader, std::string_view chosen) {
  constexpr std::array<std::string_view, 4> ways = {"id", "overrides", "config", "parameters"};
  for (const std::string_view way : ways) {
    if (way == chosen || (chosen == "id" && way == "overrides")) continue;
    reader.ignore(way);
    if (!reader.has(way)) continue;
    report(reader.problems(), ProblemCode::inconsistent, reader.pointer_to(way),
           {{"field", std::string(way)}, {"other", std::string(chosen)}});
  }
}

ModelChoice read_model(const Json& value, const std::string& pointer, Problems& problems) {
  if (value.is_string()) return ModelById{value.get<std::string>(), {}};
  if (!value.is_object()) {
    report_wrong_type(problems, pointer, "string", value);
    return {};
  }
  ObjectReader reader(value, pointer, problems);
  const std::string_view way = reader.has("config") ? "config" : reader.has("parameters") ? "parameters" : "id";
  ModelChoice choice;
  if (way == "config") {
    choice = read_model_by_config(reader);
  } else if (way == "parameters") {
    choice = read_model_by_size(reader);
  } else {
    choice = read_model_by_id(reader);
  }
  refuse_other_ways(reader, way);
  reader.finish();
  return choice;
}

// ---- training

OptimizerChoice read_optimizer(const Json& value, const std::string& pointer, Problems& problems) {
  OptimizerChoice optimizer;
  ObjectReader reader(value, pointer, problems);
  reader.enumerator("name", optimizer.name);
  reader.enumerator("states", optimizer.states);
  reader.boolean("paged", optimizer.paged);
  reader.boolean("foreach", optimizer.foreach);
  reader.boolean("fused", optimizer.fused);
  reader.boolean("in_backward", optimizer.in_backward);
  reader.boolean("momentum", optimizer.momentum);
  reader.boolean("master_weights", optimizer.master_weights);
  reader.integer("rank", optimizer.rank, limits::kOptimizerRank);
  reader.finish();
  return optimizer;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t comma = text.find(',');
    parts.push_back(trimmed(text.substr(0, comma)));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

void add_target(std::string_view name, const std::string& pointer, Problems& problems,
                std::vector<std::string>& targets) {
  const std::vector<std::string> modules = lora_target_modules(name);
  if (modules.empty()) report_unknown_value(problems, pointer, name, lora_target_names());
  for (const std::string& module : modules) {
    if (std::find(targets.begin(), targets.end(), module) == targets.end()) targets.push_back(module);
  }
}

bool is_sensible_count(std::size_t count, const std::string& pointer, Problems& problems) {
  if (count >= 1 && count <= kMostTargets) return true;
  report(problems, ProblemCode::out_of_range, pointer,
         {{"value", static_cast<std::int64_t>(count)},
          {"minimum", std::int64_t{1}},
          {"maximum", static_cast<std::int64_t>(kMostTargets)}});
  return false;
}

void add_targets(const Json& value, const std::string& pointer, Problems& problems, std::vector<std::string>& targets) {
  std::string text;
  if (!read_string(value, pointer, problems, text)) return;
  const std::vector<std::string_view> names = split_at_commas(text);
  if (!is_sensible_count(names.size(), pointer, problems)) return;
  for (const std::string_view name : names) add_target(name, pointer, problems, targets);
}

// A list of names, or one string with commas between them.
std::vector<std::string> read_targets(const Json& value, const std::string& pointer, Problems& problems) {
  std::vector<std::string> targets;
  if (!value.is_array()) {
    add_targets(value, pointer, problems, targets);
  } else if (is_sensible_count(value.size(), pointer, problems)) {
    for (std::size_t i = 0; i < value.size(); ++i) add_targets(value[i], child_pointer(pointer, i), problems, targets);
  }
  return targets;
}

// A list of names, each once.
template <NamedEnum Enum>
std::vector<Enum> read_set(const Json& value, const std::string& pointer, Problems& problems) {
  std::vector<Enum> set;
  if (!value.is_array()) {
    report_wrong_type(problems, pointer, "array", value);
    return set;
  }
  for (std::size_t i = 0; i < value.size(); ++i) {
    Enum read{};
    if (!read_enumerator(value[i], child_pointer(pointer, i), problems, read)) continue;
    if (std::find(set.begin(), set.end(), read) == set.end()) set.push_back(read);
  }
  return set;
}

LoraChoice read_lora(const Json& value, const std::string& pointer, Problems& problems) {
  LoraChoice lora;
  ObjectReader reader(value, pointer, problems);
  reader.integer("rank", lora.rank, limits::kLoraRank);
  if (const Json* targets = reader.any("targets")) {
    lora.targets = read_targets(*targets, reader.pointer_to("targets"), problems);
  }
  reader.number("dropout", lora.dropout, kDropout);
  if (const Json* modules = reader.any("modules_to_save")) {
    lora.modules_to_save = read_set<SavedModule>(*modules, reader.pointer_to("modules_to_save"), problems);
  }
  reader.boolean("rslora", lora.rslora);
  reader.finish();
  return lora;
}

GenerationChoice read_generation(const Json& value, const std::string& pointer, Problems& problems) {
  GenerationChoice generation;
  ObjectReader reader(value, pointer, problems);
  reader.integer("completion_length", generation.completion_length, limits::kSequenceLength);
  reader.number("engine_share", generation.engine_share, kEngineShare);
  reader.integer("generations", generation.generations, limits::kGenerations);
  reader.finish();
  return generation;
}

MoeChoice read_moe(const Json& value, const std::string& pointer, Problems& problems) {
  MoeChoice moe;
  ObjectReader reader(value, pointer, problems);
  reader.number("imbalance", moe.imbalance, limits::kImbalance);
  reader.number("capacity_factor", moe.capacity_factor, limits::kCapacityFactor);
  reader.finish();
  return moe;
}

OffloadChoice read_offload(const Json& value, const std::string& pointer, Problems& problems) {
  OffloadChoice offload;
  ObjectReader reader(value, pointer, problems);
  reader.boolean("optimizer", offload.optimizer);
  reader.boolean("parameters", offload.parameters);
  reader.boolean("activations", offload.activations);
  reader.finish();
  return offload;
}

// "4.48", "4.48.1", "5": what follows the second number says nothing about memory.
std::optional<Version> parse_version(std::string_view text) {
  constexpr std::size_t kMostDigits = 4;
  std::array<std::int32_t, 2> numbers{};
  std::size_t digits = 0;
  std::size_t at = 0;
  for (const char c : text) {
    if (c == '.' && digits > 0) {
      if (++at == numbers.size()) break;
      digits = 0;
    } else if (c >= '0' && c <= '9' && ++digits <= kMostDigits) {
      numbers[at] = numbers[at] * 10 + (c - '0');
    } else {
      return std::nullopt;
    }
  }
  if (digits == 0) return std::nullopt;
  return Version{numbers[0], numbers[1]};
}

void read_version(ObjectReader& reader, std::optional<Version>& version) {
  std::string text;
  if (!reader.string("framework_version", text)) return;
  version = parse_version(text);
  constexpr std::array<std::string_view, 2> kExamples = {"4.48", "5.24"};
  if (!version) report_unknown_value(reader.problems(), reader.pointer_to("framework_version"), text, kExamples);
}

void read_sizes(ObjectReader& reader, TrainingChoice& training) {
  reader.integer("sequence_length", training.sequence_length, limits::kSequenceLength);
  reader.integer("micro_batch", training.micro_batch, limits::kMicroBatch);
  reader.integer("global_batch", training.global_batch, limits::kGlobalBatch);
  reader.integer("trainable_layers", training.trainable_layers, limits::kLayers);
  reader.number("tokens", training.tokens, kTokens);
}

void read_switches(ObjectReader& reader, TrainingChoice& training) {
  reader.boolean("packing", training.packing);
  reader.enumerator("recompute", training.recompute);
  if (const Json* modules = reader.any("recompute_modules")) {
    const std::string pointer = reader.pointer_to("recompute_modules");
    training.recompute_modules = read_set<RecomputeModule>(*modules, pointer, reader.problems());
  }
  reader.enumerator("attention", training.attention);
  reader.enumerator("cross_entropy", training.cross_entropy);
  reader.boolean("logits_upcast", training.logits_upcast);
  reader.enumerator("kernels", training.kernels);
  reader.enumerator("recurrence", training.recurrence);
  reader.boolean("kbit_upcast", training.kbit_upcast);
  reader.boolean("compile", training.compile);
  reader.boolean("ema", training.ema);
  reader.boolean("fp8_parameters", training.fp8_parameters);
  reader.integer("mtp_layers", training.mtp_layers, limits::kMtpLayers);
  reader.boolean("fp32_gradients", training.fp32_gradients);
}

TrainingChoice read_training(const Json& value, const std::string& pointer, Problems& problems) {
  TrainingChoice training;
  ObjectReader reader(value, pointer, problems);
  reader.enumerator("objective", training.objective);
  reader.enumerator("method", training.method);
  reader.enumerator("framework", training.framework);
  read_version(reader, training.framework_version);
  reader.enumerator("trainer", training.trainer);
  reader.enumerator("precision", training.precision);
  reader.enumerator("base_weights", training.base_weights);
  if (const Json* optimizer = reader.any("optimizer")) {
    training.optimizer = read_optimizer(*optimizer, reader.pointer_to("optimizer"), problems);
  }
  if (const Json* lora = reader.any("lora")) training.lora = read_lora(*lora, reader.pointer_to("lora"), problems);
  read_sizes(reader, training);
  read_switches(reader, training);
  if (const Json* moe = reader.any("moe")) training.moe = read_moe(*moe, reader.pointer_to("moe"), problems);
  if (const Json* offload = reader.any("offload")) {
    training.offload = read_offload(*offload, reader.pointer_to("offload"), problems);
  }
  reader.enumerator("reference", training.reference);
  reader.enumerator("value_model", training.value_model);
  reader.enumerator("reward_model", training.reward_model);
  if (const Json* generation = reader.any("generation")) {
    training.generation = read_generation(*generation, reader.pointer_to("generation"), problems);
  }
  reader.finish();
  return training;
}

// ---- hardware and layout

HardwareChoice read_hardware(const Json& value, const std::string& pointer, Problems& problems) {
  HardwareChoice hardware;
  ObjectReader reader(value, pointer, problems);
  reader.string("gpu", hardware.gpu, Need::required);
  reader.integer("count", hardware.count, limits::kGpuCount);
  reader.integer("per_node", hardware.per_node, limits::kGpuCount);
  reader.finish();
  return hardware;
}

LayoutChoice read_layout(const Json& value, const std::string& pointer, Problems& problems) {
  LayoutChoice layout;
  ObjectReader reader(value, pointer, problems);
  reader.integer("dp", layout.dp, limits::kGpuCount);
  reader.integer("zero", layout.zero, kZeroStage);
  reader.integer("tp", layout.tp, limits::kGpuCount);
  reader.boolean("sp", layout.sp);
  reader.boolean("loss_parallel", layout.loss_parallel);
  reader.integer("pp", layout.pp, limits::kGpuCount);
  reader.integer("vpp", layout.vpp, limits::kGpuCount);
  reader.integer("first_stage_layers", layout.first_stage_layers, limits::kLayers);
  reader.integer("last_stage_layers", layout.last_stage_layers, limits::kLayers);
  reader.integer("cp", layout.cp, limits::kGpuCount);
  reader.enumerator("cp_exchange", layout.cp_exchange);
  reader.integer("ep", layout.ep, limits::kGpuCount);
  reader.integer("etp", layout.etp, limits::kGpuCount);
  reader.integer("shard", layout.shard, limits::kGpuCount);
  reader.integer("fsdp", layout.fsdp, limits::kFsdpVersion);
  reader.boolean("reshard", layout.reshard);
  reader.boolean("no_sync", layout.no_sync);
  reader.finish();
  return layout;
}

ServingChoice read_serving(const Json& value, const std::string& pointer, Problems& problems) {
  ServingChoice serving;
  ObjectReader reader(value, pointer, problems);
  reader.integer("context", serving.context, limits::kSequenceLength);
  reader.integer("users", serving.users, limits::kUsers);
  reader.finish();
  return serving;
}

bool has_problem_at(const Problems& problems, std::string_view pointer) {
  return std::any_of(problems.begin(), problems.end(), [&](const Problem& problem) {
    const std::string_view at = problem.pointer;
    return at.starts_with(pointer) && (at.size() == pointer.size() || at[pointer.size()] == '/');
  });
}

// The fields that a problem of check_request() compares.
std::vector<std::string_view> compared_fields(const Problem& problem) {
  const std::string_view at = problem.pointer;
  if (problem.code == ProblemCode::not_supported) return {at};
  if (problem.code == ProblemCode::layout_mismatch) return {"/layout", "/hardware"};
  if (at == "/training/global_batch") return {at, "/training/micro_batch", "/layout"};
  if (at.starts_with("/training/optimizer")) {
    return {"/training/optimizer",    "/training/method",      "/training/framework",
            "/training/global_batch", "/training/micro_batch", "/layout"};
  }
  if (at == "/training/reference" || at == "/training/value_model" || at == "/training/reward_model") {
    return {at, "/training/objective", "/training/method", "/training/base_weights"};
  }
  if (at.starts_with("/training/generation")) {
    return {at, "/training/objective", "/training/sequence_length", "/training/global_batch", "/training/micro_batch"};
  }
  if (problem.code == ProblemCode::inconsistent) return {at, "/layout", "/training/framework"};
  return {at, "/training/method"};
}

// A field that could not be read holds its default, and what check_request() makes of a default is nobody's mistake.
void add_checks(const PlanRequest& request, Problems& problems) {
  Problems found;
  for (Problem& problem : check_request(request)) {
    const std::vector<std::string_view> fields = compared_fields(problem);
    const bool all_read = std::none_of(fields.begin(), fields.end(),
                                       [&](std::string_view field) { return has_problem_at(problems, field); });
    if (all_read) found.push_back(std::move(problem));
  }
  problems.insert(problems.end(), found.begin(), found.end());
}

}  // namespace

Problems read_request(const Json& document, PlanRequest& request) {
  Problems problems;
  ObjectReader reader(document, "", problems);
  if (const Json* model = reader.any("model", Need::required)) request.model = read_model(*model, "/model", problems);
  if (const Json* training = reader.any("training")) request.training = read_training(*training, "/training", problems);
  if (const Json* hardware = reader.any("hardware")) request.hardware = read_hardware(*hardware, "/hardware", problems);
  if (const Json* layout = reader.any("layout")) request.layout = read_layout(*layout, "/layout", problems);
  if (const Json* serving = reader.any("serving")) request.serving = read_serving(*serving, "/serving", problems);
  reader.finish();
  add_checks(request, problems);
  return problems;
}

Result<PlanRequest> read_request(const Json& document) {
  PlanRequest request;
  Problems problems = read_request(document, request);
  if (!problems.empty()) return problems;
  return request;
}

}  // namespace vramplan
