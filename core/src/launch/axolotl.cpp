// Axolotl 0.19 (axolotl/utils/schemas/config.py): one YAML file. It loads weights in the type of the mixed precision
// (utils/config, resolve_dtype), raises embeddings and norms to FP32 for full fine-tuning unless FlashAttention or FSDP
// needs them in one type (loaders/model.py, _configure_embedding_dtypes), and takes the model's own loss.
#include "trainer.hpp"

namespace vramplan::launch {
namespace {

bool has_optimizer(const OptimizerChoice& o) {
  return o.name == OptimizerName::adamw || o.name == OptimizerName::lion || o.name == OptimizerName::adafactor ||
         (o.name == OptimizerName::sgd && !o.momentum);
}

bool has_precision(const Run& run) {
  const Precision p = run.training().precision;
  return p == Precision::bf16_amp || p == Precision::fp32 || (run.deepspeed() && p == Precision::bf16);
}

// Weights load in 16 bits under mixed precision, trained ones too.
bool has_base(const Run& run) {
  if (is_quantized(run.base())) return true;
  const bool mixed = run.training().precision != Precision::fp32;
  return run.base() == (mixed ? WeightFormat::bf16 : WeightFormat::fp32);
}

bool keeps_one_type(const Run& run) {
  const bool one =
      run.adapters() || run.deepspeed() || run.fsdp() || run.training().attention == AttentionKernel::flash;
  return one || run.training().precision == Precision::fp32;
}

// Its plugin switches each of Liger's kernels.
bool has_loss(const TrainingChoice& t) {
  const CrossEntropy loss = t.cross_entropy.value_or(CrossEntropy::full_logits);
  if (t.objective == Objective::dpo && loss != CrossEntropy::full_logits) return false;
  return loss != CrossEntropy::chunked;
}

LaunchOmission lacks(const Run& run) {
  const TrainingChoice& t = run.training();
  const bool known_objective =
      t.objective == Objective::sft || t.objective == Objective::pretrain || t.objective == Objective::dpo;
  Needs needs;
  needs.that(known_objective, "/training/objective");
  needs.that(t.method == Method::full || run.adapters(), "/training/method");
  needs.that(has_precision(run), "/training/precision");
  needs.that(has_base(run), "/training/base_weights").that(keeps_one_type(run), "/training/attention");
  needs.that(has_optimizer(t.optimizer), "/training/optimizer/name");
  needs.that(has_loss(t), "/training/cross_entropy");
  needs.that(t.reference.value_or(Reference::adapters_off) == Reference::adapters_off, "/training/reference");
  need_trainer(run, needs);
  return {LaunchId::axolotl, LaunchReason::not_expressible, needs.pointer()};
}

void add_quantizer(const Run& run, Settings& out) {
  out.push_back({"load_in_8bit", run.base() == WeightFormat::int8});
  out.push_back({"load_in_4bit", run.four_bits()});
  if (!run.four_bits()) return;
  Settings bits = {{"bnb_4bit_quant_type", std::string(run.base() == WeightFormat::fp4 ? "fp4" : "nf4")},
                   {"bnb_4bit_use_double_quant", run.base() == WeightFormat::nf4_dq}};
  out.push_back({"bnb_config_kwargs", std::move(bits)});
}

void add_adapters(const Run& run, Settings& out) {
  if (!run.adapters()) return;
  const LoraChoice& lora = run.training().lora;
  out.push_back({"adapter", std::string(run.four_bits() ? "qlora" : "lora")});
  out.push_back({"lora_r", lora.rank});
  out.push_back({"lora_alpha", Placeholder{"LORA_ALPHA"}});
  out.push_back({"lora_dropout", lora.dropout.value_or(0)});
  const Words targets = target_modules(run).value_or(Words{});
  out.push_back(targets.empty() ? Setting{"lora_target_linear", true} : Setting{"lora_target_modules", targets});
  const Words saved = saved_modules(run).value_or(Words{});
  if (!saved.empty()) out.push_back({"lora_modules_to_save", saved});
  if (lora.rslora) out.push_back({"peft_use_rslora", true});
  if (run.training().method == Method::dora) out.push_back({"peft_use_dora", true});
}

void add_data(const Run& run, Settings& out) {
  const TrainingChoice& t = run.training();
  Settings data = {{"path", Placeholder{"DATASET"}}};
  if (t.objective == Objective::dpo) {
    out.push_back({"rl", std::string("dpo")});
    data.push_back({"type", std::string("chat_template.default")});
    data.push_back({"split", std::string("train")});
  } else {
    data.push_back({"type", std::string(t.objective == Objective::pretrain ? "completion" : "chat_template")});
  }
  out.push_back({"datasets", std::vector<Settings>{std::move(data)}});
  out.push_back({"sequence_len", t.sequence_length});
  if (t.objective == Objective::dpo) return;
  out.push_back({"sample_packing", t.packing});
  out.push_back({"pad_to_sequence_len", t.packing});
}

void add_kernels(const Run& run, Settings& out) {
  const TrainingChoice& t = run.training();
  const bool liger = t.framework == FrameworkId::liger;
  const bool fused_loss = t.cross_entropy == CrossEntropy::fused;
  if (!liger && !fused_loss) return;
  out.push_back({"plugins", Words{"axolotl.integrations.liger.LigerPlugin"}});
  for (const char* kernel : {"liger_rope", "liger_rms_norm", "liger_glu_activation"}) out.push_back({kernel, liger});
  out.push_back({"liger_fused_linear_cross_entropy", fused_loss});
  out.push_back({"liger_cross_entropy", !fused_loss});
}

// accelerate's settings under Axolotl's names (utils/schemas/fsdp.py).
void add_sharding(const Run& run, Settings& out) {
  if (run.deepspeed()) out.push_back({"deepspeed", std::string("deepspeed.json")});
  if (!run.fsdp()) return;
  const bool first = run.layout.fsdp.value_or(1) == 1;
  Settings fsdp = {{"auto_wrap_policy", std::string("TRANSFORMER_BASED_WRAP")},
                   {"reshard_after_forward", run.layout.reshard.value_or(run.layout.zero == 3)},
                   {"offload_params", run.training().offload.parameters},
                   {"state_dict_type", std::string("SHARDED_STATE_DICT")}};
  if (first) fsdp.push_back({"use_orig_params", true});
  out.push_back({"fsdp_version", std::int64_t{first ? 1 : 2}});
  out.push_back({"fsdp_config", std::move(fsdp)});
}

void add_training(const Run& run, Settings& out) {
  const TrainingChoice& t = run.training();
  out.push_back({"micro_batch_size", t.micro_batch});
  out.push_back({"gradient_accumulation_steps", run.accumulation});
  if (const auto steps = steps_of(run)) out.push_back({"max_steps", *steps});
  out.push_back({"learning_rate", Placeholder{"LEARNING_RATE"}});
  out.push_back({"optimizer", optimizer_name(run).value_or("")});
  out.push_back({"bf16", t.precision != Precision::fp32});
  out.push_back({"attn_implementation", attention_name(t.attention)});
  out.push_back({"gradient_checkpointing", t.recompute == Recompute::full});
  if (t.offload.activations) out.push_back({"activation_offloading", true});
  if (t.compile) out.push_back({"torch_compile", true});
}

std::vector<LaunchText> write(const Run& run) {
  Settings settings = {{"base_model", run.model}};
  add_quantizer(run, settings);
  add_adapters(run, settings);
  add_data(run, settings);
  add_training(run, settings);
  add_kernels(run, settings);
  add_sharding(run, settings);
  std::vector<LaunchText> out = {text(LaunchId::axolotl, "axolotl.yaml", LaunchFormat::yaml, yaml(settings))};
  if (run.deepspeed()) {
    out.push_back(text(LaunchId::axolotl, "deepspeed.json", LaunchFormat::json, json(deepspeed_config(run))));
  }
  Words words = torchrun(run);
  words.emplace_back("-m axolotl.cli.train");
  words.emplace_back("axolotl.yaml");
  out.push_back(start(run, LaunchId::axolotl, requirements(run, "axolotl==0.19.0"), words));
  return out;
}

}  // namespace

Generator axolotl() { return {LaunchId::axolotl, runs_on_trainer, lacks, write}; }

}  // namespace vramplan::launch
