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

bool trains_whole_weights(Method method) { return trains_all_weights(method) || method == Method::freeze; }

// FP16 weights can carry adapters; trained themselves they need loss scaling that no framework here gives them.
Choice base_weights(const TrainingChoice& t) {
  using enum WeightFormat;
  Choice choice =
      one_of("/training/base_weights", t.base_weights, {fp32, bf16, fp16, int8, nf4, nf4_dq, fp4, int4_gptq});
  if (t.base_weights == fp16 && trains_whole_weights(t.method)) choice.supported = false;
  return choice;
}

// The forms in which an optimizer's states come. Factored ones are factored by definition: their name for it says
// nothing new.
Choice optimizer_states(const OptimizerChoice& optimizer) {
  using enum StateFormat;
  constexpr std::string_view pointer = "/training/optimizer/states";
  switch (optimizer.name) {
    case OptimizerName::adamw: return one_of(pointer, optimizer.states, {fp32, bf16, fp16, int8, int4});
    case OptimizerName::sgd:
    case OptimizerName::lion:
    case OptimizerName::galore: return one_of(pointer, optimizer.states, {fp32, bf16, fp16, int8});
    case OptimizerName::adam_mini:
    case OptimizerName::muon:
    case OptimizerName::apollo: return one_of(pointer, optimizer.states, {fp32, bf16, fp16});
    case OptimizerName::adafactor: return one_of(pointer, optimizer.states, {fp32, bf16, fp16, factored});
    case OptimizerName::came:
    case OptimizerName::adalomo: return one_of(pointer, optimizer.states, {fp32, factored});
    case OptimizerName::lomo:
    case OptimizerName::badam: return one_of(pointer, optimizer.states, {fp32});
  }
  return one_of(pointer, optimizer.states, {fp32});
}

// What the planner models today. Everything else of the contract is read, and refused by name.
std::vector<Choice> training_choices(const TrainingChoice& t) {
  return {
      one_of("/training/objective", t.objective, {Objective::pretrain, Objective::sft}),
      one_of("/training/method", t.method,
             {Method::full, Method::freeze, Method::lora, Method::dora, Method::qlora, Method::galore, Method::lomo}),
      one_of("/training/framework", t.framework, {FrameworkId::transformers, FrameworkId::torchtune}),
      one_of("/training/precision", t.precision,
             {Precision::fp32, Precision::bf16_amp, Precision::bf16, Precision::fp16_amp}),
      base_weights(t),
      one_of("/training/optimizer/name", t.optimizer.name,
             {OptimizerName::adamw, OptimizerName::sgd, OptimizerName::adafactor, OptimizerName::lion,
              OptimizerName::adam_mini, OptimizerName::muon, OptimizerName::galore, OptimizerName::apollo,
              OptimizerName::lomo, OptimizerName::adalomo, OptimizerName::came}),
      optimizer_states(t.optimizer),
      one_of("/training/recompute", t.recompute, {Recompute::none, Recompute::full}),
      one_of("/training/attention", t.attention,
             {AttentionKernel::eager, AttentionKernel::sdpa, AttentionKernel::flash}),
      one_of("/training/cross_entropy", t.cross_entropy, {CrossEntropy::full_logits, CrossEntropy::chunked}),
      // Fused kernels are patched into Transformers' modules; torchtune has none to switch.
      t.framework == FrameworkId::transformers
          ? one_of("/training/kernels", t.kernels, {Kernels::eager, Kernels::fused})
          : one_of("/training/kernels", t.kernels, {Kernels::eager}),
      only_off("/training/compile", t.compile),
      only_off("/training/offload/optimizer", t.offload.optimizer),
      only_off("/training/offload/parameters", t.offload.parameters),
      only_off("/training/offload/activations", t.offload.activations),
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

void report_inconsistent(Problems& problems, std::string pointer, std::string field, std::string other) {
  problems.push_back(
      {ProblemCode::inconsistent, std::move(pointer), {{"field", std::move(field)}, {"other", std::move(other)}}});
}

// A step is a whole number of micro-batches on every data-parallel rank.
void check_global_batch(const PlanRequest& request, Problems& problems) {
  const TrainingChoice& t = request.training;
  if (!t.global_batch) return;
  const std::int64_t dp = request.layout ? request.layout->dp : 1;
  if (*t.global_batch % saturating_multiply(t.micro_batch, dp) == 0) return;
  report_inconsistent(problems, "/training/global_batch", "global_batch", dp == 1 ? "micro_batch" : "micro_batch * dp");
}

// The method galore or lomo is full training with an optimizer of that name: adamw stands for none chosen.
OptimizerName optimizer_of(const TrainingChoice& t) {
  if (t.optimizer.name != OptimizerName::adamw) return t.optimizer.name;
  return t.method == Method::galore ? OptimizerName::galore
         : t.method == Method::lomo ? OptimizerName::lomo
                                    : OptimizerName::adamw;
}

// Optimizers that know the weights of a model, not adapters: by the names of modules, or by hooks on all of them.
bool wants_whole_weights(OptimizerName name) {
  switch (name) {
    case OptimizerName::adam_mini:
    case OptimizerName::galore:
    case OptimizerName::apollo:
    case OptimizerName::lomo:
    case OptimizerName::adalomo: return true;
    default: return false;
  }
}

void check_optimizer_of_method(const TrainingChoice& t, Problems& problems) {
  const OptimizerName name = optimizer_of(t);
  const bool lomo = name == OptimizerName::lomo || name == OptimizerName::adalomo;
  const bool mismatch = (t.method == Method::galore && name != OptimizerName::galore) ||
                        (t.method == Method::lomo && !lomo) ||
                        (!trains_whole_weights(t.method) && wants_whole_weights(name));
  if (mismatch) report_inconsistent(problems, "/training/optimizer/name", "optimizer.name", "method");
}

// bitsandbytes pages 32-bit and 8-bit states, of AdamW and Lion.
void check_paging(const OptimizerChoice& o, Problems& problems) {
  if (!o.paged) return;
  if (o.name != OptimizerName::adamw && o.name != OptimizerName::lion) {
    report_inconsistent(problems, "/training/optimizer/paged", "optimizer.paged", "optimizer.name");
  } else if (o.states && *o.states != StateFormat::fp32 && *o.states != StateFormat::int8) {
    report_inconsistent(problems, "/training/optimizer/paged", "optimizer.paged", "optimizer.states");
  }
}

// torch/optim/adam.py: a kernel is either fused or foreach.
void check_kernels(const OptimizerChoice& o, Problems& problems) {
  if (o.foreach.value_or(false) && o.fused.value_or(false)) {
    report_inconsistent(problems, "/training/optimizer/fused", "optimizer.fused", "optimizer.foreach");
  }
}

// A gradient that is used up at once cannot be added to the next one: torchtune's recipes, the Trainer and lomo_optim
// refuse it or, worse, take a step for each micro-batch. The Trainer's layer-wise optimizers know one GPU only.
void check_updates_in_backward(const PlanRequest& request, Problems& problems) {
  const TrainingChoice& t = request.training;
  OptimizerChoice o = t.optimizer;
  o.name = optimizer_of(t);
  if (!updates_in_backward(o)) return;
  const bool by_choice = o.in_backward;
  const std::string field = by_choice ? "optimizer.in_backward" : "optimizer.name";
  const std::string pointer = by_choice ? "/training/optimizer/in_backward" : "/training/optimizer/name";
  const std::int64_t dp = request.layout ? request.layout->dp : 1;
  if (by_choice && !trains_whole_weights(t.method)) report_inconsistent(problems, pointer, field, "method");
  if (t.global_batch && *t.global_batch > saturating_multiply(t.micro_batch, dp)) {
    report_inconsistent(problems, pointer, field, "global_batch");
  }
  if (by_choice && is_low_rank(o.name) && dp > 1) report_inconsistent(problems, pointer, field, "layout.dp");
}

void check_rank(const TrainingChoice& t, Problems& problems) {
  if (t.optimizer.rank && !is_low_rank(optimizer_of(t))) {
    report_inconsistent(problems, "/training/optimizer/rank", "optimizer.rank", "optimizer.name");
  }
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

// trl/trainer/model_config.py: lora_dropout 0.05, as in the trainers built on PEFT; torchtune's recipes: 0.
double default_dropout(FrameworkId framework) { return framework == FrameworkId::transformers ? 0.05 : 0.0; }

// PEFT raises 16-bit adapters to FP32 whatever the precision of the run; torchtune makes them in the type of the
// weights.
bool has_fp32_adapters(const TrainingChoice& t) {
  return t.framework == FrameworkId::transformers || t.precision == Precision::fp32;
}

// Optimizers whose states are FP32 whatever the weights: those of bitsandbytes, those with FP32 copies inside, and all
// that work on master weights.
bool has_fp32_states(const TrainingChoice& t) {
  if (t.optimizer.paged || t.optimizer.master_weights) return true;
  switch (t.optimizer.name) {
    case OptimizerName::lion:
    case OptimizerName::adafactor: return t.framework == FrameworkId::transformers;
    case OptimizerName::came:
    case OptimizerName::lomo:
    case OptimizerName::adalomo: return true;
    default: return false;
  }
}

// States take the type of the weights they belong to. `base` is resolved.
StateFormat default_states(const TrainingChoice& t, WeightFormat base) {
  if (has_fp32_states(t)) return StateFormat::fp32;
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
  check_optimizer_of_method(request.training, problems);
  check_paging(request.training.optimizer, problems);
  check_kernels(request.training.optimizer, problems);
  check_updates_in_backward(request, problems);
  check_rank(request.training, problems);
  return problems;
}

PlanRequest resolve_defaults(PlanRequest request) {
  TrainingChoice& t = request.training;
  if (!t.base_weights) t.base_weights = default_base_weights(t.method, t.precision);
  t.optimizer.name = optimizer_of(t);
  t.optimizer.in_backward = updates_in_backward(t.optimizer);
  if (is_low_rank(t.optimizer.name) && !t.optimizer.rank) t.optimizer.rank = kDefaultOptimizerRank;
  if (t.optimizer.states == StateFormat::factored) t.optimizer.states.reset();
  if (!t.optimizer.states) t.optimizer.states = default_states(t, *t.base_weights);
  if (!t.lora.dropout) t.lora.dropout = default_dropout(t.framework);
  if (!t.kbit_upcast) t.kbit_upcast = false;  // loaders differ: whoever calls prepare_model_for_kbit_training says so
  return request;
}

}  // namespace vramplan
