// TRL's command line (trl/scripts, release 1.14.2: the last in which SFTConfig.loss_type chooses between whole and
// tiled logits; since 1.15 they are always tiled) under accelerate.
#include "trainer.hpp"

namespace vramplan::launch {
namespace {

constexpr std::string_view kRequirements = "\"trl[peft]==1.14.2\"";

std::string script_of(Objective objective) {
  switch (objective) {
    case Objective::dpo: return "dpo";
    case Objective::reward: return "reward";
    case Objective::grpo: return "grpo";
    default: return "sft";
  }
}

// Liger's fused loss is all or nothing here; over whole logits its kernel stands in for torch's.
bool has_loss(const TrainingChoice& t) {
  const CrossEntropy loss = t.cross_entropy.value_or(CrossEntropy::full_logits);
  const bool sft = script_of(t.objective) == "sft";
  if (t.framework == FrameworkId::liger) return sft && loss != CrossEntropy::chunked;
  if (loss == CrossEntropy::chunked) return sft;
  return loss == CrossEntropy::full_logits || sft;
}

// A model of its own beside adapters has no argument, and GRPO compares only when a penalty is chosen.
bool has_reference(const TrainingChoice& t) {
  if (!t.reference) return true;
  if (t.objective == Objective::grpo) return false;
  return *t.reference != Reference::model || !has_adapters(t.method);
}

// One call of generation answers whole groups (trl/trainer/grpo_config.py: num_generations, 8 unless chosen).
constexpr std::int64_t kGenerations = 8;
bool has_groups(const Run& run) {
  const TrainingChoice& t = run.training();
  if (t.objective != Objective::grpo || !t.generation) return true;
  const std::int64_t pass = saturating_multiply(t.micro_batch, run.layout.dp);
  return saturating_multiply(pass, run.accumulation) % t.generation->generations.value_or(kGenerations) == 0;
}

// SFTTrainer and DPOTrainer load in any type; without autocast the type of the weights is that of the computation.
bool has_precision(const Run& run) {
  const Precision p = run.training().precision;
  if (is_quantized(run.base()) || run.deepspeed()) return true;
  if (p == Precision::bf16) return run.base() == WeightFormat::bf16;
  return p != Precision::fp32 || run.base() == WeightFormat::fp32;
}

LaunchOmission lacks(const Run& run) {
  const TrainingChoice& t = run.training();
  Needs needs;
  needs.that(t.objective != Objective::ppo, "/training/objective");
  needs.that(t.method != Method::freeze, "/training/method");
  needs.that(has_precision(run), "/training/precision");
  needs.that(optimizer_name(run).has_value(), "/training/optimizer/name");
  needs.that(has_loss(t), "/training/cross_entropy");
  needs.that(has_reference(t), "/training/reference");
  needs.that(has_groups(run), "/training/generation/generations");
  need_trainer(run, needs);
  return {LaunchId::trl, LaunchReason::not_expressible, needs.pointer()};
}

void add_model(const Run& run, Settings& out) {
  out.push_back({"model_name_or_path", run.model});
  out.push_back({"dtype", dtype_name(run)});
  out.push_back({"attn_implementation", attention_name(run.training().attention)});
  if (run.base() == WeightFormat::int8) out.push_back({"load_in_8bit", true});
  if (!run.four_bits()) return;
  out.push_back({"load_in_4bit", true});
  out.push_back({"bnb_4bit_quant_type", std::string(run.base() == WeightFormat::fp4 ? "fp4" : "nf4")});
  out.push_back({"use_bnb_nested_quant", run.base() == WeightFormat::nf4_dq});
  if (run.fsdp()) out.push_back({"bnb_4bit_quant_storage", dtype_name(run)});
}

void add_adapters(const Run& run, Settings& out) {
  if (!run.adapters()) return;
  const LoraChoice& lora = run.training().lora;
  Words targets = target_modules(run).value_or(Words{});
  if (targets.empty()) targets = {"all-linear"};
  out.push_back({"use_peft", true});
  out.push_back({"lora_r", lora.rank});
  out.push_back({"lora_dropout", lora.dropout.value_or(0)});
  out.push_back({"lora_target_modules", std::move(targets)});
  const Words saved = saved_modules(run).value_or(Words{});
  if (!saved.empty()) out.push_back({"lora_modules_to_save", saved});
  if (lora.rslora) out.push_back({"use_rslora", true});
  if (run.training().method == Method::dora) out.push_back({"use_dora", true});
  if (run.training().objective == Objective::reward) out.push_back({"lora_task_type", std::string("SEQ_CLS")});
}

void add_optimizer(const Run& run, Settings& out) {
  const OptimizerChoice& o = run.training().optimizer;
  out.push_back({"optim", optimizer_name(run).value_or("")});
  if (o.momentum) out.push_back({"optim_args", Placeholder{"momentum=MOMENTUM"}});
  if (!is_low_rank(o.name)) return;
  out.push_back({"optim_target_modules", std::string("all-linear")});
  out.push_back({"optim_args", "rank=" + std::to_string(o.rank.value_or(kDefaultOptimizerRank))});
}

void add_loss(const Run& run, Settings& out) {
  const TrainingChoice& t = run.training();
  const CrossEntropy loss = t.cross_entropy.value_or(CrossEntropy::full_logits);
  if (script_of(t.objective) == "sft") {
    out.push_back({"loss_type", std::string(loss == CrossEntropy::chunked ? "chunked_nll" : "nll")});
  }
  const bool liger = t.framework == FrameworkId::liger;
  if (!liger && loss != CrossEntropy::fused) return;
  out.push_back({"use_liger_kernel", true});
  const bool fused = loss == CrossEntropy::fused;
  Settings kernels = {{"fused_linear_cross_entropy", fused}, {"cross_entropy", !fused}};
  if (!liger) {
    for (const char* kernel : {"rope", "rms_norm", "swiglu"}) kernels.push_back({kernel, false});
  }
  out.push_back({"liger_kernel_config", std::move(kernels)});
}

void add_generation(const Run& run, Settings& out) {
  const TrainingChoice& t = run.training();
  if (t.objective != Objective::grpo || !t.generation) return;
  out.push_back({"reward_funcs", Placeholder{"REWARD_FUNCTION"}});
  out.push_back({"max_completion_length", t.generation->completion_length});
  if (t.generation->generations) out.push_back({"num_generations", *t.generation->generations});
  if (t.generation->engine_share <= 0) return;
  out.push_back({"use_vllm", true});
  out.push_back({"vllm_mode", std::string("colocate")});
  out.push_back({"vllm_gpu_memory_utilization", t.generation->engine_share});
}

void add_objective(const Run& run, Settings& out) {
  const TrainingChoice& t = run.training();
  const std::string script = script_of(t.objective);
  out.push_back({"dataset_name", Placeholder{"DATASET"}});
  if (script != "grpo") out.push_back({"max_length", t.sequence_length});
  if (script == "sft") {
    out.push_back({"packing", t.packing});
    // Sequences side by side without padding need a kernel that keeps them apart.
    const bool varlen = t.attention == AttentionKernel::flash;
    if (t.packing) out.push_back({"packing_strategy", std::string(varlen ? "bfd" : "wrapped")});
  }
  if (t.reference == Reference::precomputed) out.push_back({"precompute_ref_log_probs", true});
  add_generation(run, out);
}

Settings arguments_of(const Run& run) {
  const TrainingChoice& t = run.training();
  Settings out;
  add_model(run, out);
  add_adapters(run, out);
  add_objective(run, out);
  add_loss(run, out);
  add_trainer_arguments(run, out);
  out.push_back({"gradient_checkpointing", t.recompute == Recompute::full});
  if (t.offload.activations) out.push_back({"activation_offloading", true});
  add_optimizer(run, out);
  return out;
}

std::vector<LaunchText> write(const Run& run) {
  std::vector<LaunchText> out;
  out.push_back(text(LaunchId::trl, "trl.yaml", LaunchFormat::yaml, yaml(arguments_of(run))));
  add_accelerate_files(run, LaunchId::trl, out);
  Words words = accelerate_launch(run);
  words.push_back("-m trl.scripts." + script_of(run.training().objective));
  words.emplace_back("--config trl.yaml");
  out.push_back(start(run, LaunchId::trl, requirements(run, std::string(kRequirements)), words));
  return out;
}

}  // namespace

Generator trl() { return {LaunchId::trl, runs_on_trainer, lacks, write}; }

}  // namespace vramplan::launch
