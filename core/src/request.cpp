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

// Weights in 16 bits whatever mixed precision is asked for, with FP32 ones beside them in the optimizer.
bool works_in_16_bits(FrameworkId f) { return f == FrameworkId::megatron || f == FrameworkId::scaling; }

bool trains_whole_weights(Method method) { return trains_all_weights(method) || method == Method::freeze; }

// FP16 weights can carry adapters; trained themselves they need loss scaling that DeepSpeed alone gives them here.
Choice base_weights(const TrainingChoice& t) {
  using enum WeightFormat;
  Choice choice =
      one_of("/training/base_weights", t.base_weights, {fp32, bf16, fp16, int8, nf4, nf4_dq, fp4, int4_gptq});
  if (t.base_weights == fp16 && trains_whole_weights(t.method) && t.framework != FrameworkId::deepspeed) {
    choice.supported = false;
  }
  // Its fused functions dequantize NF4; other formats go through other code.
  if (works_in_16_bits(t.framework)) {
    choice.supported = !t.base_weights || t.base_weights == (t.precision == Precision::fp16_amp ? fp16 : bf16);
  }
  const bool other_format =
      t.base_weights == fp32 || t.base_weights == int8 || t.base_weights == fp4 || t.base_weights == int4_gptq;
  if (t.framework == FrameworkId::unsloth && other_format) choice.supported = false;
  return choice;
}

// Unsloth compiles the modules of a model whose own weights train: other kernels than those modelled here. torchtitan
// trains whole models. litgpt's
// scripts train everything or adapters without magnitudes; so does Megatron-Bridge, whose frozen weights are never
// quantized to a few bits (src/megatron/bridge/peft). DeepSpeed gives an optimizer flat shards, which have no
// shape to project, and gradients when they are all there.
Choice method(const TrainingChoice& t) {
  using enum Method;
  switch (t.framework) {
    case FrameworkId::litgpt: return one_of("/training/method", t.method, {full, lora, qlora});
    case FrameworkId::unsloth: return one_of("/training/method", t.method, {lora, dora, qlora});
    case FrameworkId::deepspeed: return one_of("/training/method", t.method, {full, freeze, lora, dora, qlora});
    case FrameworkId::scaling:
    case FrameworkId::torchtitan: return one_of("/training/method", t.method, {full});
    case FrameworkId::megatron: return one_of("/training/method", t.method, {full, lora});
    default: return one_of("/training/method", t.method, {full, freeze, lora, dora, qlora, galore, lomo});
  }
}

// Fused kernels can be patched into Transformers' modules; Liger and Unsloth are their kernels; others have none to
// switch.
Choice kernels(const TrainingChoice& t) {
  switch (t.framework) {
    case FrameworkId::transformers:
    case FrameworkId::megatron:
    case FrameworkId::scaling:
    case FrameworkId::deepspeed: return one_of("/training/kernels", t.kernels, {Kernels::eager, Kernels::fused});
    case FrameworkId::liger:
    case FrameworkId::unsloth: return one_of("/training/kernels", t.kernels, {Kernels::fused});
    default: return one_of("/training/kernels", t.kernels, {Kernels::eager});
  }
}

// Unsloth installs the kernels; other frameworks know no recurrent layers.
Choice recurrence(const TrainingChoice& t) {
  switch (t.framework) {
    case FrameworkId::transformers:
    case FrameworkId::liger:
    case FrameworkId::deepspeed:
      return one_of("/training/recurrence", t.recurrence, {Recurrence::composite, Recurrence::fused});
    case FrameworkId::unsloth: return one_of("/training/recurrence", t.recurrence, {Recurrence::fused});
    default: return one_of("/training/recurrence", t.recurrence, {Recurrence::composite});
  }
}

// Both are Megatron's (--fp8-param-gather, accumulate_allreduce_grads_in_fp32).
Choice fp8_parameters(const TrainingChoice& t) {
  Choice choice = only_off("/training/fp8_parameters", t.fp8_parameters);
  if (t.framework == FrameworkId::megatron) choice.supported = true;
  return choice;
}
// Its --mtp-num-layers (megatron/core/transformer/multi_token_prediction.py).
Choice mtp_layers(const TrainingChoice& t) {
  return {"/training/mtp_layers", t.mtp_layers, t.mtp_layers == 0 || t.framework == FrameworkId::megatron};
}
Choice fp32_gradients(const TrainingChoice& t) {
  const bool given = t.fp32_gradients.has_value();
  return {"/training/fp32_gradients", std::string(t.fp32_gradients.value_or(false) ? "true" : "false"),
          !given || t.framework == FrameworkId::megatron};
}

// TransformerEngine runs cuDNN's kernel or FlashAttention, which keep the same; or its unfused one, which knows no
// context parallelism (attention/dot_product_attention/utils.py, get_attention_backend).
Choice attention(const TrainingChoice& t) {
  using enum AttentionKernel;
  if (t.framework == FrameworkId::scaling) return one_of("/training/attention", t.attention, {eager, flash});
  return one_of("/training/attention", t.attention, {eager, sdpa, flash});
}

Choice cross_entropy(const TrainingChoice& t) {
  using enum CrossEntropy;
  // Its trainer reads all logits.
  if (t.objective == Objective::ppo) return one_of("/training/cross_entropy", t.cross_entropy, {full_logits});
  if (has_trainer(t.framework))
    return one_of("/training/cross_entropy", t.cross_entropy, {full_logits, chunked, fused});
  // Fused is what the compiler makes of it.
  if (t.framework == FrameworkId::torchtitan && t.compile)
    return one_of("/training/cross_entropy", t.cross_entropy, {full_logits, chunked, fused});
  if (t.framework == FrameworkId::megatron)
    return one_of("/training/cross_entropy", t.cross_entropy, {full_logits, fused});
  if (t.framework == FrameworkId::scaling) return one_of("/training/cross_entropy", t.cross_entropy, {full_logits});
  return one_of("/training/cross_entropy", t.cross_entropy, {full_logits, chunked});
}

Choice trainer(const TrainingChoice& t) {
  const bool chosen = t.framework == FrameworkId::transformers || t.framework == FrameworkId::liger;
  return {"/training/trainer", std::string(t.trainer ? name_of(*t.trainer) : ""), chosen || !t.trainer};
}

// Unsloth leaves what is not quantized as it is.
Choice kbit_upcast(const TrainingChoice& t) {
  Choice choice = only_off("/training/kbit_upcast", t.kbit_upcast.value_or(false));
  if (t.framework != FrameworkId::unsloth) choice.supported = true;
  return choice;
}

// For DeepSpeed see method; litgpt's scripts take what torch.optim and bitsandbytes have, torchtitan Adam alone.
bool makes_own_step(FrameworkId framework) {
  return framework == FrameworkId::deepspeed || framework == FrameworkId::litgpt || works_in_16_bits(framework);
}

Choice optimizer_name(const TrainingChoice& t) {
  using enum OptimizerName;
  constexpr std::string_view pointer = "/training/optimizer/name";
  if (t.framework == FrameworkId::torchtitan || works_in_16_bits(t.framework)) {
    return one_of(pointer, t.optimizer.name, {adamw});
  }
  if (makes_own_step(t.framework)) return one_of(pointer, t.optimizer.name, {adamw, sgd, adafactor, lion});
  // BAdam wraps the Trainer's AdamW.
  if (t.framework == FrameworkId::transformers || t.framework == FrameworkId::liger) {
    return one_of(pointer, t.optimizer.name,
                  {adamw, sgd, adafactor, lion, adam_mini, muon, galore, apollo, lomo, adalomo, badam, came});
  }
  return one_of(pointer, t.optimizer.name,
                {adamw, sgd, adafactor, lion, adam_mini, muon, galore, apollo, lomo, adalomo, came});
}

Choice in_backward(const TrainingChoice& t) {
  Choice choice = only_off("/training/optimizer/in_backward", t.optimizer.in_backward);
  if (!makes_own_step(t.framework)) choice.supported = true;
  return choice;
}

// The forms in which an optimizer's states come. Factored ones are factored by definition: their name for it says
// nothing new.
Choice optimizer_states(const TrainingChoice& t) {
  using enum StateFormat;
  const OptimizerChoice& optimizer = t.optimizer;
  constexpr std::string_view pointer = "/training/optimizer/states";
  if (works_in_16_bits(t.framework)) return one_of(pointer, optimizer.states, {fp32});
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

// The trainers of TRL stand on Transformers.
Choice objective(const TrainingChoice& t) {
  using enum Objective;
  return t.framework == FrameworkId::transformers
             ? one_of("/training/objective", t.objective, {pretrain, sft, dpo, reward, ppo, grpo})
             : one_of("/training/objective", t.objective, {pretrain, sft});
}

// PEFT's copies of modules; torchtune's recipes have none, and Unsloth raises them to FP32.
Choice modules_to_save(const TrainingChoice& t) {
  const bool none = t.lora.modules_to_save.empty() || !has_adapters(t.method);
  const bool peft = t.framework == FrameworkId::transformers || t.framework == FrameworkId::liger;
  const std::string_view first = t.lora.modules_to_save.empty() ? "" : name_of(t.lora.modules_to_save.front());
  return {"/training/lora/modules_to_save", std::string(first), none || peft};
}

// torchtune and torchtitan compile layers and loss apart; torchtune's chunked loss alone reads logits in their own
// type.
Choice compile(const TrainingChoice& t) {
  Choice choice = only_off("/training/compile", t.compile);
  if (t.framework == FrameworkId::torchtune && t.cross_entropy == CrossEntropy::chunked) choice.supported = true;
  if (t.framework == FrameworkId::torchtitan) choice.supported = true;
  return choice;
}

// Without the parameters, DeepSpeed alone moves states; FSDP's CPUOffload takes them along with the parameters.
Choice offload_optimizer(const TrainingChoice& t) {
  Choice choice = only_off("/training/offload/optimizer", t.offload.optimizer);
  if (t.framework == FrameworkId::deepspeed || t.offload.parameters) choice.supported = true;
  return choice;
}

// The inputs of checkpointed blocks; everything that autograd saves is not modelled.
Choice offload_activations(const TrainingChoice& t) {
  Choice choice = only_off("/training/offload/activations", t.offload.activations);
  if (t.recompute == Recompute::full) choice.supported = true;
  return choice;
}

Choice recompute(const TrainingChoice& t) {
  constexpr std::string_view pointer = "/training/recompute";
  if (recomputes_selectively(t.framework))
    return one_of(pointer, t.recompute, {Recompute::none, Recompute::selective, Recompute::full});
  return one_of(pointer, t.recompute, {Recompute::none, Recompute::full});
}

// FP8 products are torchao's, under torchtitan and compiled: their casts are part of the kernels around them.
Choice precision(const TrainingChoice& t) {
  using enum Precision;
  constexpr std::string_view pointer = "/training/precision";
  if (t.framework == FrameworkId::megatron) return one_of(pointer, t.precision, {bf16_amp, fp16_amp, fp8});
  if (t.framework == FrameworkId::scaling) return one_of(pointer, t.precision, {bf16_amp, fp16_amp});
  if (t.framework == FrameworkId::torchtitan && t.compile)
    return one_of(pointer, t.precision, {fp32, bf16_amp, bf16, fp8});
  return one_of(pointer, t.precision, {fp32, bf16_amp, bf16, fp16_amp});
}

// What the planner models today. Everything else of the contract is read, and refused by name.
std::vector<Choice> training_choices(const TrainingChoice& t) {
  return {
      objective(t),
      modules_to_save(t),
      method(t),
      one_of("/training/framework", t.framework,
             {FrameworkId::transformers, FrameworkId::liger, FrameworkId::unsloth, FrameworkId::torchtune,
              FrameworkId::deepspeed, FrameworkId::litgpt, FrameworkId::torchtitan, FrameworkId::megatron,
              FrameworkId::scaling}),
      precision(t),
      base_weights(t),
      optimizer_name(t),
      optimizer_states(t),
      in_backward(t),
      fp8_parameters(t),
      mtp_layers(t),
      fp32_gradients(t),
      recompute(t),
      attention(t),
      cross_entropy(t),
      kernels(t),
      trainer(t),
      recurrence(t),
      kbit_upcast(t),
      compile(t),
      offload_optimizer(t),
      offload_activations(t),
  };
}

std::vector<Choice> layout_choices(FrameworkId framework, const LayoutChoice& layout) {
  const Parallelism has = parallelism_of(framework);
  const auto ranks = [](std::string_view pointer, std::int64_t value, bool supported) {
    return Choice{pointer, value, supported || value == 1};
  };
  Choice sp = only_off("/layout/sp", layout.sp);
  sp.supported = sp.supported || has.tensor;
  const bool chooses = framework == FrameworkId::torchtitan;  // disable_loss_parallel
  const Choice loss{"/layout/loss_parallel", std::string(layout.loss_parallel ? "true" : "false"),
                    layout.loss_parallel || chooses};
  return {
      ranks("/layout/tp", layout.tp, has.tensor),
      sp,
      loss,
      ranks("/layout/pp", layout.pp, has.pipeline),
      ranks("/layout/vpp", layout.vpp, has.interleaved),
      ranks("/layout/cp", layout.cp, has.context),
      ranks("/layout/ep", layout.ep, has.expert),
      {"/layout/zero", layout.zero, (has.stages >> static_cast<unsigned>(layout.zero) & 1U) != 0},
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

// `field` and `other` are named as the page knows them.
void check_inconsistent(bool wrong, std::string pointer, std::string field, std::string other, Problems& problems) {
  if (!wrong) return;
  problems.push_back(
      {ProblemCode::inconsistent, std::move(pointer), {{"field", std::move(field)}, {"other", std::move(other)}}});
}

// Megatron's fused loss and chunked ones are written for the rank's own part of the vocabulary; TransformerEngine's
// unfused attention for whole sequences.
void check_shared_kernels(const PlanRequest& request, Problems& problems) {
  if (!request.layout) return;
  const LayoutChoice& l = *request.layout;
  const TrainingChoice& t = request.training;
  const bool parts = t.cross_entropy == CrossEntropy::chunked ||
                     (t.framework == FrameworkId::megatron && t.cross_entropy == CrossEntropy::fused);
  check_inconsistent(!l.loss_parallel && parts, "/layout/loss_parallel", "layout.loss_parallel", "cross_entropy",
                     problems);
  check_inconsistent(l.cp > 1 && t.framework == FrameworkId::megatron && t.attention == AttentionKernel::eager,
                     "/training/attention", "attention", "layout.cp", problems);
}

// A step is a whole number of micro-batches on every data-parallel rank.
void check_global_batch(const PlanRequest& request, Problems& problems) {
  const TrainingChoice& t = request.training;
  if (!t.global_batch) return;
  const std::int64_t dp = request.layout ? request.layout->dp : 1;
  const bool wrong = *t.global_batch % saturating_multiply(t.micro_batch, dp) != 0;
  check_inconsistent(wrong, "/training/global_batch", "global_batch", dp == 1 ? "micro_batch" : "micro_batch * dp",
                     problems);
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
    case OptimizerName::adalomo:
    case OptimizerName::badam: return true;
    default: return false;
  }
}

void check_optimizer_of_method(const TrainingChoice& t, Problems& problems) {
  const OptimizerName name = optimizer_of(t);
  const bool lomo = name == OptimizerName::lomo || name == OptimizerName::adalomo;
  const bool mismatch = (t.method == Method::galore && name != OptimizerName::galore) ||
                        (t.method == Method::lomo && !lomo) ||
                        (!trains_whole_weights(t.method) && wants_whole_weights(name));
  check_inconsistent(mismatch, "/training/optimizer/name", "optimizer.name", "method", problems);
}

// bitsandbytes pages 32-bit and 8-bit states, of AdamW and Lion.
void check_paging(const OptimizerChoice& o, Problems& problems) {
  constexpr const char* kPointer = "/training/optimizer/paged";
  const bool has_pages = o.name == OptimizerName::adamw || o.name == OptimizerName::lion;
  const StateFormat states = o.states.value_or(StateFormat::fp32);
  const bool other_states = states != StateFormat::fp32 && states != StateFormat::int8;
  check_inconsistent(o.paged && !has_pages, kPointer, "optimizer.paged", "optimizer.name", problems);
  check_inconsistent(o.paged && has_pages && other_states, kPointer, "optimizer.paged", "optimizer.states", problems);
}

// torch/optim/adam.py: a kernel is either fused or foreach.
void check_kernels(const OptimizerChoice& o, Problems& problems) {
  check_inconsistent(o.foreach.value_or(false) && o.fused.value_or(false), "/training/optimizer/fused",
                     "optimizer.fused", "optimizer.foreach", problems);
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
  const bool accumulates = t.global_batch && *t.global_batch > saturating_multiply(t.micro_batch, dp);
  check_inconsistent(by_choice && !trains_whole_weights(t.method), pointer, field, "method", problems);
  check_inconsistent(accumulates, pointer, field, "global_batch", problems);
  check_inconsistent(by_choice && is_low_rank(o.name) && dp > 1, pointer, field, "layout.dp", problems);
}

// badam/block_optim.py: it chooses the layers itself, makes steps of its own, and outside DeepSpeed knows one GPU.
void check_badam(const PlanRequest& request, Problems& problems) {
  const OptimizerChoice& o = request.training.optimizer;
  if (o.name != OptimizerName::badam) return;
  check_inconsistent(request.training.method == Method::freeze, "/training/optimizer/name", "optimizer.name", "method",
                     problems);
  check_inconsistent(o.in_backward, "/training/optimizer/in_backward", "optimizer.in_backward", "optimizer.name",
                     problems);
  const std::int64_t gpus = request.layout ? request.layout->dp : request.hardware ? request.hardware->count : 1;
  check_inconsistent(gpus > 1, "/training/optimizer/name", "optimizer.name", "layout.dp", problems);
}

void check_rank(const TrainingChoice& t, Problems& problems) {
  check_inconsistent(t.optimizer.rank && !is_low_rank(optimizer_of(t)), "/training/optimizer/rank", "optimizer.rank",
                     "optimizer.name", problems);
}

// ParallelLinearAdapter cuts its first matrix along the rank, ranks being equal (Megatron-Bridge, peft/utils.py;
// megatron/core/utils.py, divide).
void check_adapter_rank(const PlanRequest& request, Problems& problems) {
  const TrainingChoice& t = request.training;
  if (!request.layout || t.framework != FrameworkId::megatron || !has_adapters(t.method)) return;
  check_inconsistent(t.lora.rank % request.layout->tp != 0, "/training/lora/rank", "lora.rank", "layout.tp", problems);
  check_inconsistent(request.layout->etp && t.lora.rank % *request.layout->etp != 0, "/training/lora/rank", "lora.rank",
                     "layout.etp", problems);
}

void check_fp8_parameters(const TrainingChoice& t, Problems& problems) {
  check_inconsistent(t.fp8_parameters && t.precision != Precision::fp8, "/training/fp8_parameters", "fp8_parameters",
                     "precision", problems);
}

// The modules of a checkpoint that has them are not part of what is fine-tuned with adapters.
void check_mtp_layers(const TrainingChoice& t, Problems& problems) {
  const bool runs = t.framework == FrameworkId::megatron && t.mtp_layers > 0;
  check_inconsistent(runs && has_adapters(t.method), "/training/mtp_layers", "mtp_layers", "method", problems);
}

void check_recompute_modules(const TrainingChoice& t, Problems& problems) {
  const bool wrong = !t.recompute_modules.empty() && t.recompute != Recompute::selective;
  check_inconsistent(wrong, "/training/recompute_modules", "recompute_modules", "recompute", problems);
}

void contradict(Problems& problems, std::string_view pointer, std::string_view other) {
  const std::string field(pointer.substr(pointer.rfind('/') + 1));
  problems.push_back(
      {ProblemCode::inconsistent, std::string(pointer), {{"field", field}, {"other", std::string(other)}}});
}

// Only a policy is held to a reference. Answers that are written within the step are in no data set.
void check_reference(const TrainingChoice& t, Problems& problems) {
  if (!t.reference) return;
  constexpr std::string_view kReference = "/training/reference";
  const bool on_policy = t.objective == Objective::grpo || t.objective == Objective::ppo;
  const bool compares = on_policy || t.objective == Objective::dpo;
  if (!compares || (on_policy && t.reference == Reference::precomputed)) {
    contradict(problems, kReference, "objective");
  } else if (t.reference == Reference::adapters_off && !has_adapters(t.method)) {
    contradict(problems, kReference, "method");
  }
}

// TRL's PPOTrainer divides no model over ranks, and calls a step of the optimizer that has all gradients.
void check_ppo(const PlanRequest& request, Problems& problems) {
  const TrainingChoice& t = request.training;
  if (t.objective != Objective::ppo) return;
  OptimizerChoice optimizer = t.optimizer;
  optimizer.name = optimizer_of(t);
  check_inconsistent(updates_in_backward(optimizer), "/training/optimizer/name", "optimizer.name", "objective",
                     problems);
  check_inconsistent(request.layout && request.layout->zero > 0, "/layout/zero", "layout.zero", "objective", problems);
  check_inconsistent(t.offload.activations, "/training/offload/activations", "offload.activations", "objective",
                     problems);
}

// Weights that take no gradient, or need their loss scaled, carry adapters.
void check_value_model(const TrainingChoice& t, Problems& problems) {
  if (!t.value_model) return;
  constexpr std::string_view kValueModel = "/training/value_model";
  const WeightFormat base = t.base_weights.value_or(t.method == Method::qlora ? WeightFormat::nf4 : WeightFormat::bf16);
  if (t.objective != Objective::ppo) {
    contradict(problems, kValueModel, "objective");
  } else if (*t.value_model == ValueModel::adapters && !has_adapters(t.method)) {
    contradict(problems, kValueModel, "method");
  } else if (*t.value_model == ValueModel::full && (is_quantized(base) || base == WeightFormat::fp16)) {
    contradict(problems, kValueModel, "base_weights");
  }
}

void check_reward_model(const TrainingChoice& t, Problems& problems) {
  const bool judges = t.objective == Objective::ppo || t.objective == Objective::grpo;
  if (t.reward_model && !judges) contradict(problems, "/training/reward_model", "objective");
}

// What one call of generation answers is whole groups of answers (trl/trainer/grpo_config.py, num_generations).
bool whole_groups(const PlanRequest& request) {
  const TrainingChoice& t = request.training;
  if (!t.generation->generations) return true;
  const std::int64_t dp = request.layout ? request.layout->dp : request.hardware ? request.hardware->count : 1;
  return t.global_batch.value_or(saturating_multiply(t.micro_batch, dp)) % *t.generation->generations == 0;
}

void check_generation(const PlanRequest& request, Problems& problems) {
  const TrainingChoice& t = request.training;
  if (!t.generation) return;
  if (t.objective != Objective::grpo && t.objective != Objective::ppo) {
    contradict(problems, "/training/generation", "objective");
    return;
  }
  if (t.generation->completion_length > t.sequence_length) {
    contradict(problems, "/training/generation/completion_length", "sequence_length");
  }
  // PPO's policy writes one answer to a prompt, itself.
  if (t.objective == Objective::ppo && t.generation->engine_share > 0) {
    contradict(problems, "/training/generation/engine_share", "objective");
  }
  if (t.objective == Objective::ppo && t.generation->generations.value_or(1) > 1) {
    contradict(problems, "/training/generation/generations", "objective");
  }
  if (!whole_groups(request)) {
    contradict(problems, "/training/generation/generations", t.global_batch ? "global_batch" : "micro_batch");
  }
}

// What FSDP cannot divide, and fields of the layout that only mean something for it.
void check_fsdp(const PlanRequest& request, Problems& problems) {
  if (!request.layout) return;
  const LayoutChoice& layout = *request.layout;
  check_inconsistent(flattens_integers(request.training, layout), "/layout/zero", "layout.zero", "base_weights",
                     problems);
  const bool deepspeed = request.training.framework == FrameworkId::deepspeed;
  if (!deepspeed && layout.zero >= 2) return;
  const char* other = deepspeed ? "framework" : "layout.zero";
  check_inconsistent(layout.fsdp.has_value(), "/layout/fsdp", "layout.fsdp", other, problems);
  check_inconsistent(layout.reshard.has_value(), "/layout/reshard", "layout.reshard", other, problems);
  check_inconsistent(layout.no_sync.has_value(), "/layout/no_sync", "layout.no_sync", other, problems);
}

// What is offloaded must be divided, be it over one rank under DeepSpeed.
void check_offload(const PlanRequest& request, Problems& problems) {
  if (!request.layout) return;
  const LayoutChoice& layout = *request.layout;
  const TrainingChoice& t = request.training;
  const bool deepspeed = t.framework == FrameworkId::deepspeed;
  const bool divides_weights = deepspeed ? layout.zero == 3 : layout.zero >= 2 && layout.dp > 1;
  check_inconsistent(t.offload.optimizer && layout.zero == 0, "/training/offload/optimizer", "offload.optimizer",
                     "layout.zero", problems);
  check_inconsistent(t.offload.parameters && !divides_weights, "/training/offload/parameters", "offload.parameters",
                     "layout.zero", problems);
}

WeightFormat default_base_weights(const TrainingChoice& t) {
  const Method method = t.method;
  const Precision precision = t.precision;
  // DeepSpeed's engine turns weights into 16 bits, trained ones too.
  const bool mixed =
      t.framework != FrameworkId::deepspeed && !works_in_16_bits(t.framework) &&
      (precision == Precision::bf16_amp || precision == Precision::fp16_amp || precision == Precision::fp8);
  // Unsloth loads with double quantization (unsloth/models/llama.py).
  if (method == Method::qlora) return t.framework == FrameworkId::unsloth ? WeightFormat::nf4_dq : WeightFormat::nf4;
  if (precision == Precision::fp32) return WeightFormat::fp32;
  // Mixed precision keeps FP32 weights where an optimizer updates them; frozen ones have no need of it.
  if (mixed && trains_whole_weights(method)) return WeightFormat::fp32;
  const bool half = precision == Precision::fp16_amp || precision == Precision::fp16;
  return half ? WeightFormat::fp16 : WeightFormat::bf16;
}

// trl/trainer/model_config.py: lora_dropout 0.05, as in the trainers built on PEFT and in litgpt's scripts; Unsloth and
// torchtune's recipes: 0.
double default_dropout(FrameworkId framework) {
  const bool drops = has_trainer(framework) || framework == FrameworkId::litgpt;
  return drops && framework != FrameworkId::unsloth ? 0.05 : 0.0;
}

// Liger and Unsloth are fused kernels, the one of head and loss among them unless they are told otherwise.
bool has_fused_kernels(FrameworkId framework) {
  return framework == FrameworkId::liger || framework == FrameworkId::unsloth;
}
// torchtitan compiles the loss when it compiles (compile.components).
bool is_fused(const TrainingChoice& t) {
  return has_fused_kernels(t.framework) || (t.framework == FrameworkId::torchtitan && t.compile);
}

// PEFT's adapters are FP32, in old releases where the base is not of 16 bits; Unsloth raises them itself; torchtune and
// litgpt make them in the type of the weights.
bool has_fp32_adapters(const TrainingChoice& t, WeightFormat base) {
  if (trl_lowers_adapters(t)) return false;
  if (t.precision == Precision::fp32) return true;
  if (has_trainer(t.framework)) {
    const bool halves = base == WeightFormat::bf16 || base == WeightFormat::fp16;
    return !halves || t.framework == FrameworkId::unsloth || peft_raises_adapters(t);
  }
  const bool mixed = t.precision == Precision::bf16_amp || t.precision == Precision::fp16_amp;
  return t.framework == FrameworkId::litgpt && mixed;
}

// Preferences and rewards are TRL's trainers; others leave Transformers alone.
std::optional<Trainer> default_trainer(const TrainingChoice& t) {
  if (t.framework != FrameworkId::transformers && t.framework != FrameworkId::liger) return std::nullopt;
  const bool trl = t.objective == Objective::dpo || t.objective == Objective::reward || t.objective == Objective::grpo;
  return trl ? Trainer::trl : Trainer::transformers;
}

// Optimizers whose states are FP32 whatever the weights: those of bitsandbytes, those with FP32 copies inside, and all
// that work on master weights.
bool has_fp32_states(const TrainingChoice& t) {
  if (t.optimizer.paged || t.optimizer.master_weights) return true;
  switch (t.optimizer.name) {
    case OptimizerName::lion:
    case OptimizerName::adafactor: return has_trainer(t.framework);
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
    if (has_fp32_adapters(t, base)) return StateFormat::fp32;
    const bool half = t.precision == Precision::fp16_amp || t.precision == Precision::fp16;
    return half ? StateFormat::fp16 : StateFormat::bf16;
  }
  if (base == WeightFormat::bf16) return StateFormat::bf16;
  return base == WeightFormat::fp16 ? StateFormat::fp16 : StateFormat::fp32;
}

void resolve_reference(TrainingChoice& t) {
  const bool always = t.objective == Objective::dpo || t.objective == Objective::ppo;
  if (t.reference || !always) return;
  t.reference = has_adapters(t.method) ? Reference::adapters_off : Reference::model;
}

// What writes and judges answers. `base_weights` is resolved.
void resolve_rollout(TrainingChoice& t) {
  const bool ppo = t.objective == Objective::ppo;
  if (!ppo && t.objective != Objective::grpo) return;
  if (!t.generation) {
    t.generation = GenerationChoice{};
    if (ppo) t.generation->completion_length = kPpoCompletionLength;
    t.generation->completion_length = std::min(t.generation->completion_length, t.sequence_length);
  }
  if (!t.reward_model) t.reward_model = ppo ? RewardModel::model : RewardModel::external;
  const bool adapts = is_quantized(*t.base_weights) || t.base_weights == WeightFormat::fp16;
  if (ppo && !t.value_model) t.value_model = adapts ? ValueModel::adapters : ValueModel::full;
}

}  // namespace

Problems check_request(const PlanRequest& request) {
  Problems problems;
  refuse_unsupported(training_choices(request.training), problems);
  if (request.layout) refuse_unsupported(layout_choices(request.training.framework, *request.layout), problems);
  check_base_weights(request.training, problems);
  check_trainable_layers(request.training, problems);
  check_fsdp(request, problems);
  check_offload(request, problems);
  check_ranks(request, problems);
  check_shared_kernels(request, problems);
  check_global_batch(request, problems);
  check_reference(request.training, problems);
  check_value_model(request.training, problems);
  check_reward_model(request.training, problems);
  check_ppo(request, problems);
  check_generation(request, problems);
  check_optimizer_of_method(request.training, problems);
  check_paging(request.training.optimizer, problems);
  check_kernels(request.training.optimizer, problems);
  check_updates_in_backward(request, problems);
  check_rank(request.training, problems);
  check_badam(request, problems);
  check_recompute_modules(request.training, problems);
  check_fp8_parameters(request.training, problems);
  check_adapter_rank(request, problems);
  check_mtp_layers(request.training, problems);
  return problems;
}

PlanRequest resolve_defaults(PlanRequest request) {
  TrainingChoice& t = request.training;
  if (!t.base_weights) t.base_weights = default_base_weights(t);
  t.optimizer.name = optimizer_of(t);
  t.optimizer.in_backward = updates_in_backward(t.optimizer);
  if (is_low_rank(t.optimizer.name) && !t.optimizer.rank) t.optimizer.rank = kDefaultOptimizerRank;
  if (t.framework == FrameworkId::deepspeed || works_in_16_bits(t.framework) ||
      t.optimizer.name == OptimizerName::badam) {
    t.optimizer.master_weights = true;
  }
  if (t.optimizer.states == StateFormat::factored) t.optimizer.states.reset();
  const bool fused_kernels = has_fused_kernels(t.framework) || t.framework == FrameworkId::megatron;
  if (!t.kernels) t.kernels = fused_kernels ? Kernels::fused : Kernels::eager;
  if (!t.trainer) t.trainer = default_trainer(t);
  if (!t.optimizer.states) t.optimizer.states = default_states(t, *t.base_weights);
  if (!t.lora.dropout) t.lora.dropout = default_dropout(t.framework);
  if (!t.cross_entropy) t.cross_entropy = is_fused(t) ? CrossEntropy::fused : CrossEntropy::full_logits;
  // arguments.py: BF16 turns accumulate_allreduce_grads_in_fp32 on, FP16 does not.
  if (t.framework == FrameworkId::megatron && !t.fp32_gradients) {
    t.fp32_gradients = t.precision != Precision::fp16_amp;
  }
  // transformer_config.py: recompute_modules defaults to core_attn.
  if (t.framework == FrameworkId::megatron && t.recompute == Recompute::selective && t.recompute_modules.empty()) {
    t.recompute_modules = {RecomputeModule::core_attn};
  }
  // Its tensor parallelism always shares the tokens too (parallelize_llama).
  if (t.framework == FrameworkId::torchtitan && request.layout && request.layout->tp > 1) request.layout->sp = true;
  resolve_reference(t);
  resolve_rollout(t);
  if (!request.serving) request.serving = ServingChoice{};
  if (!request.serving->context) request.serving->context = t.sequence_length;
  // Loaders differ: whoever calls prepare_model_for_kbit_training says so, or has TRL do it.
  if (!t.kbit_upcast) t.kbit_upcast = trl_prepares(t) && is_bitsandbytes(t.base_weights);
  return request;
}

TrainingChoice value_model_training(const TrainingChoice& training) {
  TrainingChoice t = training;
  t.objective = Objective::reward;
  if (t.value_model == ValueModel::full) t.method = Method::full;
  t.lora.modules_to_save.clear();
  t.reference.reset();
  t.generation.reset();
  t.value_model.reset();
  t.reward_model.reset();
  // States in the type of the weights: those of the policy's adapters may have another.
  const StateFormat states = t.optimizer.states.value_or(StateFormat::fp32);
  const bool plain = states == StateFormat::fp32 || states == StateFormat::bf16 || states == StateFormat::fp16;
  if (plain) t.optimizer.states = default_states(t, t.base_weights.value_or(WeightFormat::bf16));
  return t;
}

}  // namespace vramplan
