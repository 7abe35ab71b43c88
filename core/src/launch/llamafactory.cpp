// LLaMA-Factory 0.9.5 (llamafactory/hparams): one YAML file, started by torchrun, or by accelerate for FSDP. It loads
// weights in the type of the mixed precision and raises the trained ones to FP32 unless `pure_bf16` is set
// (model/adapter.py, init_adapter); the loss is the model's own.
#include "trainer.hpp"

namespace vramplan::launch {
namespace {

bool runs(FrameworkId framework) { return runs_on_trainer(framework) || framework == FrameworkId::unsloth; }

bool has_optimizer(const OptimizerChoice& o) {
  switch (o.name) {
    case OptimizerName::adam_mini:
    case OptimizerName::muon: return true;
    case OptimizerName::adamw:
    case OptimizerName::lion:
    case OptimizerName::adafactor: return true;
    case OptimizerName::galore:
    case OptimizerName::apollo: return o.states != StateFormat::int8;
    case OptimizerName::sgd: return !o.momentum;
    default: return false;
  }
}

// What trains is FP32 under mixed precision; pure BF16 leaves it as it was loaded.
bool has_base(const Run& run) {
  if (is_quantized(run.base())) return true;
  const TrainingChoice& t = run.training();
  const bool mixed = t.precision == Precision::bf16_amp || t.precision == Precision::fp16_amp;
  if (run.deepspeed() || t.precision == Precision::bf16) return run.base() == WeightFormat::bf16;
  if (!run.adapters()) return run.base() == WeightFormat::fp32;
  return mixed && run.base() == (t.precision == Precision::fp16_amp ? WeightFormat::fp16 : WeightFormat::bf16);
}

bool has_precision(const Run& run) {
  const Precision p = run.training().precision;
  const bool stage3 = run.deepspeed() && run.layout.zero == 3;
  if (p == Precision::bf16) return !stage3 && !is_quantized(run.base());
  return p == Precision::bf16_amp || p == Precision::fp16_amp || (p == Precision::fp32 && !run.adapters());
}

bool has_loss(const TrainingChoice& t) {
  const CrossEntropy loss = t.cross_entropy.value_or(CrossEntropy::full_logits);
  const bool fused = t.framework == FrameworkId::liger || t.framework == FrameworkId::unsloth;
  return loss == (fused ? CrossEntropy::fused : CrossEntropy::full_logits);
}

bool has_reference(const TrainingChoice& t) {
  if (!t.reference) return true;
  return *t.reference == (has_adapters(t.method) ? Reference::adapters_off : Reference::model);
}

LaunchOmission lacks(const Run& run) {
  const TrainingChoice& t = run.training();
  const bool unsloth = t.framework == FrameworkId::unsloth;
  const bool known_objective =
      t.objective == Objective::sft || t.objective == Objective::pretrain || t.objective == Objective::dpo;
  Needs needs;
  needs.that(known_objective, "/training/objective");
  needs.that(has_precision(run), "/training/precision").that(has_base(run), "/training/base_weights");
  needs.that(has_optimizer(t.optimizer), "/training/optimizer/name");
  needs.that(has_loss(t), "/training/cross_entropy").that(has_reference(t), "/training/reference");
  needs.that(t.attention != AttentionKernel::flex, "/training/attention");
  needs.that(!unsloth || t.recompute == Recompute::full, "/training/recompute");
  need_trainer(run, needs);
  return {LaunchId::llamafactory, LaunchReason::not_expressible, needs.pointer()};
}

std::string attention_of(AttentionKernel kernel) {
  if (kernel == AttentionKernel::flash) return "fa2";
  return kernel == AttentionKernel::eager ? "disabled" : "sdpa";
}

void add_model(const Run& run, Settings& out) {
  const TrainingChoice& t = run.training();
  out.push_back({"model_name_or_path", run.model});
  out.push_back({"flash_attn", attention_of(t.attention)});
  if (t.framework == FrameworkId::liger) out.push_back({"enable_liger_kernel", true});
  if (t.framework == FrameworkId::unsloth) out.push_back({"use_unsloth", true});
  if (run.base() == WeightFormat::int8) out.push_back({"quantization_bit", std::int64_t{8}});
  if (!run.four_bits()) return;
  out.push_back({"quantization_bit", std::int64_t{4}});
  out.push_back({"quantization_type", std::string(run.base() == WeightFormat::fp4 ? "fp4" : "nf4")});
  out.push_back({"double_quantization", run.base() == WeightFormat::nf4_dq});
}

std::string joined(const Words& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ",") + word;
  return out;
}

void add_method(const Run& run, Settings& out) {
  const TrainingChoice& t = run.training();
  const std::string type = run.adapters() ? "lora" : t.method == Method::freeze ? "freeze" : "full";
  out.push_back({"finetuning_type", type});
  if (t.method == Method::freeze) out.push_back({"freeze_trainable_layers", t.trainable_layers.value_or(0)});
  if (!run.adapters()) return;
  const Words targets = target_modules(run).value_or(Words{});
  out.push_back({"lora_rank", t.lora.rank});
  out.push_back({"lora_dropout", t.lora.dropout.value_or(0)});
  out.push_back({"lora_target", targets.empty() ? std::string("all") : joined(targets)});
  const Words saved = saved_modules(run).value_or(Words{});
  if (!saved.empty()) out.push_back({"additional_target", joined(saved)});
  if (t.lora.rslora) out.push_back({"use_rslora", true});
  if (t.method == Method::dora) out.push_back({"use_dora", true});
}

void add_data(const Run& run, Settings& out) {
  const TrainingChoice& t = run.training();
  const std::string stage = t.objective == Objective::pretrain ? "pt" : t.objective == Objective::dpo ? "dpo" : "sft";
  out.push_back({"stage", stage});
  out.push_back({"do_train", true});
  out.push_back({"dataset", Placeholder{"DATASET"}});
  out.push_back({"cutoff_len", t.sequence_length});
  if (stage == "dpo") return;
  out.push_back({"packing", t.packing});
}

// Low-rank optimizers, Adam-mini and Muon have switches of their own; a low-rank one in backward is for one GPU, which
// the request's checks see to.
void add_optimizer(const Run& run, Settings& out) {
  const OptimizerChoice& o = run.training().optimizer;
  if (is_low_rank(o.name)) {
    const std::string name(name_of(o.name));
    out.push_back({"use_" + name, true});
    out.push_back({name + "_target", std::string("all")});
    out.push_back({name + "_rank", o.rank.value_or(kDefaultOptimizerRank)});
    if (o.in_backward) out.push_back({name + "_layerwise", true});
  } else if (o.name == OptimizerName::adam_mini || o.name == OptimizerName::muon) {
    out.push_back({"use_" + std::string(name_of(o.name)), true});
  } else {
    out.push_back({"optim", optimizer_name(run).value_or("")});
  }
}

Settings settings_of(const Run& run) {
  const TrainingChoice& t = run.training();
  Settings out;
  add_model(run, out);
  add_method(run, out);
  add_data(run, out);
  add_trainer_arguments(run, out);
  if (t.precision == Precision::bf16 && !run.deepspeed()) out.push_back({"pure_bf16", true});
  // Its own default is the reentrant kind, which Transformers left at 5.0.
  out.push_back(t.recompute == Recompute::none ? Setting{"disable_gradient_checkpointing", true}
                                               : Setting{"use_reentrant_gc", false});
  if (t.offload.activations && t.framework != FrameworkId::unsloth) out.push_back({"use_unsloth_gc", true});
  add_optimizer(run, out);
  if (run.deepspeed()) out.push_back({"deepspeed", std::string("deepspeed.json")});
  return out;
}

std::vector<LaunchText> write(const Run& run) {
  std::vector<LaunchText> out;
  out.push_back(text(LaunchId::llamafactory, "llamafactory.yaml", LaunchFormat::yaml, yaml(settings_of(run))));
  if (run.fsdp()) add_accelerate_files(run, LaunchId::llamafactory, out);
  if (run.deepspeed()) {
    out.push_back(text(LaunchId::llamafactory, "deepspeed.json", LaunchFormat::json, json(deepspeed_config(run))));
  }
  Words words = run.fsdp() ? accelerate_launch(run) : torchrun(run);
  words.emplace_back("-m llamafactory.launcher");
  words.emplace_back("llamafactory.yaml");
  out.push_back(start(run, LaunchId::llamafactory, requirements(run, "llamafactory==0.9.5"), words));
  return out;
}

}  // namespace

Generator llamafactory() { return {LaunchId::llamafactory, runs, lacks, write}; }

}  // namespace vramplan::launch
