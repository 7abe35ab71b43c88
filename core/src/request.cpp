#include "vramplan/request.hpp"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "vramplan/enum_names.hpp"

namespace vramplan {
namespace {

using Value = std::variant<std::int64_t, double, std::string>;

// One choice of the request, and whether the planner models it.
struct Choice {
  std::string_view pointer;
  Value value;
  bool supported = true;
};

template <NamedEnum Enum>
Choice one_of(std::string_view pointer, Enum value, std::initializer_list<Enum> supported) {
  return {pointer, std::string(name_of(value)),
          std::find(supported.begin(), supported.end(), value) != supported.end()};
}

// A choice that was left open never lacks support: what it resolves to is checked elsewhere.
template <NamedEnum Enum>
Choice one_of(std::string_view pointer, std::optional<Enum> value, std::initializer_list<Enum> supported) {
  return value ? one_of(pointer, *value, supported) : Choice{pointer, std::string(), true};
}

Choice only_off(std::string_view pointer, bool value) {
  return {pointer, std::string(value ? "true" : "false"), !value};
}
Choice only_one(std::string_view pointer, std::int64_t value) { return {pointer, value, value == 1}; }

bool trains_whole_weights(Method method) {
  return method == Method::full || method == Method::freeze || method == Method::galore || method == Method::lomo;
}

// FP16 weights can carry adapters; trained themselves they need loss scaling that no framework here gives them.
Choice base_weights(const TrainingChoice& t) {
  using enum WeightFormat;
  Choice choice =
      one_of("/training/base_weights", t.base_weights, {fp32, bf16, fp16, int8, nf4, nf4_dq, fp4, int4_gptq});
  if (t.base_weights == fp16 && trains_whole_weights(t.method)) choice.supported = false;
  return choice;
}

// Adafactor's states are factored by definition, so its name for them says nothing new.
Choice optimizer_states(const OptimizerChoice& optimizer) {
  using enum StateFormat;
  Choice choice = one_of("/training/optimizer/states", optimizer.states, {fp32, bf16, int8});
  if (optimizer.name == OptimizerName::adafactor && optimizer.states == factored) choice.supported = true;
  return choice;
}

// litgpt's scripts train everything or adapters without magnitudes.
Choice method(const TrainingChoice& t) {
  using enum Method;
  if (t.framework == FrameworkId::litgpt) return one_of("/training/method", t.method, {full, lora, qlora});
  return one_of("/training/method", t.method, {full, freeze, lora, dora, qlora});
}

// torchtune compiles layers and loss apart, and its chunked loss alone reads logits in their own type.
Choice compile(const TrainingChoice& t) {
  Choice choice = only_off("/training/compile", t.compile);
  if (t.framework == FrameworkId::torchtune && t.cross_entropy == CrossEntropy::chunked) choice.supported = true;
  return choice;
}

// torchtune sends to the host what checkpoints keep; without them it would be every saved tensor.
Choice activation_offload(const TrainingChoice& t) {
  Choice choice = only_off("/training/offload/activations", t.offload.activations);
  if (t.framework == FrameworkId::torchtune && t.recompute == Recompute::full) choice.supported = true;
  return choice;
}

// What the planner models today. Everything else of the contract is read, and refused by name.
std::vector<Choice> training_choices(const TrainingChoice& t) {
  return {
      one_of("/training/objective", t.objective, {Objective::pretrain, Objective::sft}),
      method(t),
      one_of("/training/framework", t.framework,
             {FrameworkId::transformers, FrameworkId::torchtune, FrameworkId::litgpt}),
      one_of("/training/precision", t.precision,
             {Precision::fp32, Precision::bf16_amp, Precision::bf16, Precision::fp16_amp}),
      base_weights(t),
      one_of("/training/optimizer/name", t.optimizer.name,
             {OptimizerName::adamw, OptimizerName::sgd, OptimizerName::adafactor, OptimizerName::lion}),
      optimizer_states(t.optimizer),
      only_off("/training/optimizer/in_backward", t.optimizer.in_backward),
      one_of("/training/recompute", t.recompute, {Recompute::none, Recompute::full}),
      one_of("/training/attention", t.attention,
             {AttentionKernel::eager, AttentionKernel::sdpa, AttentionKernel::flash}),
      one_of("/training/cross_entropy", t.cross_entropy, {CrossEntropy::full_logits, CrossEntropy::chunked}),
      // Fused kernels are patched into Transformers' modules; torchtune has none to switch.
      t.framework == FrameworkId::transformers
          ? one_of("/training/kernels", t.kernels, {Kernels::eager, Kernels::fused})
          : one_of("/training/kernels", t.kernels, {Kernels::eager}),
      compile(t),
      only_off("/training/offload/optimizer", t.offload.optimizer),
      only_off("/training/offload/parameters", t.offload.parameters),
      activation_offload(t),
  };
}

std::vector<Choice> layout_choices(const LayoutChoice& layout) {
  return {
      only_one("/layout/tp", layout.tp),   only_off("/layout/sp", layout.sp), only_one("/layout/pp", layout.pp),
      only_one("/layout/vpp", layout.vpp), only_one("/layout/cp", layout.cp), only_one("/layout/ep", layout.ep),
  };
}

void refuse_unsupported(const std::vector<Choice>& choices, Problems& problems) {
  for (const Choice& choice : choices) {
    if (choice.supported) continue;
    const std::string field(choice.pointer.substr(choice.pointer.rfind('/') + 1));
    problems.push_back(
        {ProblemCode::not_supported, std::string(choice.pointer), {{"field", field}, {"value", choice.value}}});
  }
}

// Quantized weights take no gradient: only adapters can train on top of them, and QLoRA is that by name.
void check_base_weights(const TrainingChoice& t, Problems& problems) {
  if (!t.base_weights) return;
  const bool quantized = is_quantized(*t.base_weights);
  const bool mismatch = t.method == Method::qlora ? !quantized : trains_whole_weights(t.method) && quantized;
  if (!mismatch) return;
  problems.push_back(
      {ProblemCode::method_mismatch,
       "/training/base_weights",
       {{"method", std::string(name_of(t.method))}, {"base_weights", std::string(name_of(*t.base_weights))}}});
}

void check_trainable_layers(const TrainingChoice& t, Problems& problems) {
  if (t.method == Method::freeze && !t.trainable_layers) {
    problems.push_back({ProblemCode::missing_field, "/training/trainable_layers", {}});
  }
}

void check_ranks(const PlanRequest& request, Problems& problems) {
  if (!request.layout || !request.hardware) return;
  const std::int64_t product = ranks_of(*request.layout);
  if (product == request.hardware->count) return;
  problems.push_back(
      {ProblemCode::layout_mismatch, "/layout", {{"product", product}, {"count", request.hardware->count}}});
}

// A step is a whole number of micro-batches on every data-parallel rank.
void check_global_batch(const PlanRequest& request, Problems& problems) {
  const TrainingChoice& t = request.training;
  if (!t.global_batch) return;
  const std::int64_t dp = request.layout ? request.layout->dp : 1;
  if (*t.global_batch % saturating_multiply(t.micro_batch, dp) == 0) return;
  problems.push_back({ProblemCode::inconsistent,
                      "/training/global_batch",
                      {{"field", "global_batch"}, {"other", dp == 1 ? "micro_batch" : "micro_batch * dp"}}});
}

WeightFormat default_base_weights(Method method, Precision precision) {
  const bool mixed = precision == Precision::bf16_amp || precision == Precision::fp16_amp;
  if (method == Method::qlora) return WeightFormat::nf4;
  if (precision == Precision::fp32) return WeightFormat::fp32;
  // Mixed precision keeps FP32 weights where an optimizer updates them; frozen ones have no need of it.
  if (mixed && trains_whole_weights(method)) return WeightFormat::fp32;
  const bool half = precision == Precision::fp16_amp || precision == Precision::fp16;
  return half ? WeightFormat::fp16 : WeightFormat::bf16;
}

// trl/trainer/model_config.py: lora_dropout 0.05, as in the trainers built on PEFT and in litgpt's scripts; torchtune's
// recipes: 0.
double default_dropout(FrameworkId framework) { return framework == FrameworkId::torchtune ? 0.0 : 0.05; }

// PEFT raises 16-bit adapters to FP32 whatever the precision of the run; torchtune and litgpt make them in the type of
// the weights.
bool has_fp32_adapters(const TrainingChoice& t) {
  const bool mixed = t.precision == Precision::bf16_amp || t.precision == Precision::fp16_amp;
  return t.framework == FrameworkId::transformers || t.precision == Precision::fp32 ||
         (t.framework == FrameworkId::litgpt && mixed);
}

// States take the type of the weights they belong to. `base` is resolved.
StateFormat default_states(const TrainingChoice& t, WeightFormat base) {
  if (t.optimizer.name == OptimizerName::adafactor) return StateFormat::fp32;
  if (!trains_whole_weights(t.method)) {
    if (has_fp32_adapters(t)) return StateFormat::fp32;
    const bool half = t.precision == Precision::fp16_amp || t.precision == Precision::fp16;
    return half ? StateFormat::fp16 : StateFormat::bf16;
  }
  if (base == WeightFormat::bf16) return StateFormat::bf16;
  return base == WeightFormat::fp16 ? StateFormat::fp16 : StateFormat::fp32;
}

}  // namespace

Problems check_request(const PlanRequest& request) {
  Problems problems;
  refuse_unsupported(training_choices(request.training), problems);
  if (request.layout) refuse_unsupported(layout_choices(*request.layout), problems);
  check_base_weights(request.training, problems);
  check_trainable_layers(request.training, problems);
  check_ranks(request, problems);
  check_global_batch(request, problems);
  return problems;
}

PlanRequest resolve_defaults(PlanRequest request) {
  TrainingChoice& t = request.training;
  if (!t.base_weights) t.base_weights = default_base_weights(t.method, t.precision);
  if (t.optimizer.states == StateFormat::factored) t.optimizer.states.reset();
  if (!t.optimizer.states) t.optimizer.states = default_states(t, *t.base_weights);
  if (!t.lora.dropout) t.lora.dropout = default_dropout(t.framework);
  if (!t.kbit_upcast) t.kbit_upcast = false;  // loaders differ: whoever calls prepare_model_for_kbit_training says so
  return request;
}

}  // namespace vramplan
