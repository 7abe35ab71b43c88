#include "trainer.hpp"

#include <algorithm>
#include <array>

namespace vramplan::launch {
namespace {

// The Trainer's default optimizer is the fused AdamW since 4.54, and this text is for today's release.
constexpr Version kOldestWritten{5, 0};

std::string adamw_name(const OptimizerChoice& o) {
  if (o.states == StateFormat::int8) return o.paged ? "paged_adamw_8bit" : "adamw_bnb_8bit";
  if (o.states == StateFormat::int4) return "adamw_torch_4bit";
  if (o.paged) return "paged_adamw_32bit";
  return o.foreach.value_or(false) ? "adamw_torch" : "adamw_torch_fused";
}

std::string lion_name(const OptimizerChoice& o) {
  const std::string bits = o.states == StateFormat::int8 ? "8bit" : "32bit";
  return (o.paged ? "paged_lion_" : "lion_") + bits;
}

std::string low_rank_name(std::string name, const OptimizerChoice& o) {
  if (o.states == StateFormat::int8) name += "_8bit";
  return o.in_backward ? name + "_layerwise" : name;
}

// Forms of the states that the name of an optimizer says, beside those that follow from the weights.
bool says_states(const OptimizerChoice& o) {
  const bool int8 = o.states == StateFormat::int8;
  switch (o.name) {
    case OptimizerName::adamw: return int8 || o.states == StateFormat::int4;
    case OptimizerName::lion:
    case OptimizerName::galore: return int8;
    default: return false;
  }
}

struct ModuleName {
  std::string_view module, name;
};
// Module names of Llama's family in Transformers (modeling_llama.py, modeling_phi3.py, modeling_deepseek_v3.py).
constexpr ModuleName kLlamaNames[] = {{"q", "q_proj"},       {"k", "k_proj"},       {"v", "v_proj"},
                                      {"o", "o_proj"},       {"gate", "gate_proj"}, {"up", "up_proj"},
                                      {"down", "down_proj"}, {"qkv", "qkv_proj"},   {"gate_up", "gate_up_proj"},
                                      {"q_a", "q_a_proj"},   {"q_b", "q_b_proj"},   {"kv_a", "kv_a_proj_with_mqa"},
                                      {"kv_b", "kv_b_proj"}, {"head", "lm_head"},   {"embedding", "embed_tokens"}};
constexpr std::array<std::string_view, 24> kLlamaFamily = {
    "llama",   "mistral", "mixtral",     "qwen2",   "qwen2_moe", "qwen3",    "qwen3_moe",   "gemma",
    "gemma2",  "gemma3",  "gemma3_text", "olmo",    "olmo2",     "olmo3",    "olmoe",       "phi3",
    "granite", "smollm3", "cohere",      "cohere2", "stablelm",  "seed_oss", "deepseek_v2", "deepseek_v3"};

bool is_llama_like(const Run& run) {
  return std::find(kLlamaFamily.begin(), kLlamaFamily.end(), run.model_type) != kLlamaFamily.end();
}

std::string_view llama_name(std::string_view module) {
  const auto* found = std::find_if(std::begin(kLlamaNames), std::end(kLlamaNames),
                                   [&](const ModuleName& m) { return m.module == module; });
  return found == std::end(kLlamaNames) ? std::string_view{} : found->name;
}

template <class List, class Spell>
std::optional<Words> names_of(const Run& run, const List& modules, const Spell& spell) {
  Words out;
  for (const auto& module : modules) {
    const std::string_view name = llama_name(spell(module));
    if (!is_llama_like(run) || name.empty()) return std::nullopt;
    out.emplace_back(name);
  }
  return out;
}

bool is_bf16(Precision p) { return p == Precision::bf16_amp || p == Precision::bf16; }

Settings zero_settings(const Run& run) {
  Settings zero = {{"stage", run.layout.zero}};
  const OffloadChoice& offload = run.training().offload;
  const Settings to_host = {{"device", std::string("cpu")}};
  if (offload.optimizer) zero.push_back({"offload_optimizer", to_host});
  if (offload.parameters) zero.push_back({"offload_param", to_host});
  if (run.layout.zero < 3) return zero;
  for (const char* size : {"reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold"}) {
    zero.push_back({size, std::string("auto")});
  }
  zero.push_back({"stage3_gather_16bit_weights_on_model_save", true});
  return zero;
}

// The FSDP of accelerate; the Trainer wraps the decoder layers that a model names itself.
Settings fsdp_settings(const Run& run) {
  const bool first = run.layout.fsdp.value_or(1) == 1;
  const bool reshards = run.layout.reshard.value_or(run.layout.zero == 3);
  Settings out = {{"fsdp_version", std::int64_t{first ? 1 : 2}}};
  if (first) {
    out.push_back({"fsdp_reshard_after_forward", std::string(reshards ? "FULL_SHARD" : "SHARD_GRAD_OP")});
    out.push_back({"fsdp_backward_prefetch", std::string("NO_PREFETCH")});
    out.push_back({"fsdp_use_orig_params", true});
    out.push_back({"fsdp_sync_module_states", true});
  } else {
    out.push_back({"fsdp_reshard_after_forward", reshards});
  }
  out.push_back({"fsdp_auto_wrap_policy", std::string("TRANSFORMER_BASED_WRAP")});
  out.push_back({"fsdp_offload_params", run.training().offload.parameters});
  out.push_back({"fsdp_cpu_ram_efficient_loading", true});
  out.push_back({"fsdp_state_dict_type", std::string("SHARDED_STATE_DICT")});
  return out;
}

std::string mixed_precision(const Run& run) {
  const Precision p = run.training().precision;
  if (p == Precision::bf16_amp || (run.deepspeed() && is_bf16(p))) return "bf16";
  return p == Precision::fp16_amp || (run.deepspeed() && p == Precision::fp16) ? "fp16" : "no";
}

void need_layout(const Run& run, Needs& needs) {
  const LayoutChoice& l = run.layout;
  needs.that(l.tp == 1, "/layout/tp").that(!l.sp, "/layout/sp").that(l.pp == 1, "/layout/pp");
  needs.that(l.vpp == 1, "/layout/vpp").that(l.cp == 1, "/layout/cp").that(l.ep == 1, "/layout/ep");
  needs.that(run.deepspeed() || l.dp == 1 || l.zero != 1, "/layout/zero");
  needs.that(!run.fsdp() || l.no_sync.value_or(true), "/layout/no_sync");
}

void need_optimizer(const Run& run, Needs& needs) {
  const OptimizerChoice& o = run.training().optimizer;
  needs.that(!o.master_weights || run.deepspeed(), "/training/optimizer/master_weights");
  needs.that(o.foreach.value_or(false) || o.fused.value_or(true), "/training/optimizer/fused");
  needs.that(says_states(o) || has_natural_states(run), "/training/optimizer/states");
}

}  // namespace

bool runs_on_trainer(FrameworkId framework) {
  return framework == FrameworkId::transformers || framework == FrameworkId::liger ||
         framework == FrameworkId::deepspeed;
}

void need_trainer(const Run& run, Needs& needs) {
  const TrainingChoice& t = run.training();
  needs.that(!t.framework_version || *t.framework_version >= kOldestWritten, "/training/framework_version");
  needs.that(!t.ema, "/training/ema").that(t.logits_upcast.value_or(true), "/training/logits_upcast");
  needs.that(!t.kbit_upcast.value_or(false), "/training/kbit_upcast");
  const bool fused = t.kernels == Kernels::fused;
  needs.that(t.framework == FrameworkId::liger || t.framework == FrameworkId::unsloth || !fused, "/training/kernels");
  needs.that(run.base() != WeightFormat::int4_gptq, "/training/base_weights");
  needs.that(t.recompute != Recompute::selective, "/training/recompute");
  if (run.adapters()) {
    needs.that(target_modules(run).has_value(), "/training/lora/targets");
    needs.that(saved_modules(run).has_value(), "/training/lora/modules_to_save");
  }
  need_optimizer(run, needs);
  need_layout(run, needs);
}

std::string attention_name(AttentionKernel kernel) {
  switch (kernel) {
    case AttentionKernel::eager: return "eager";
    case AttentionKernel::sdpa: return "sdpa";
    case AttentionKernel::flash: return "flash_attention_2";
    case AttentionKernel::flex: return "flex_attention";
  }
  return "";
}

std::string dtype_name(const Run& run) {
  const Precision p = run.training().precision;
  const WeightFormat base = run.base();
  if (base == WeightFormat::fp32 || (is_quantized(base) && p == Precision::fp32)) return "float32";
  const bool half = p == Precision::fp16_amp || p == Precision::fp16;
  return base == WeightFormat::fp16 || (is_quantized(base) && half) ? "float16" : "bfloat16";
}

std::optional<std::string> optimizer_name(const Run& run) {
  const OptimizerChoice& o = run.training().optimizer;
  switch (o.name) {
    case OptimizerName::adamw: return adamw_name(o);
    case OptimizerName::lion: return lion_name(o);
    case OptimizerName::adafactor: return "adafactor";
    case OptimizerName::sgd: return "sgd";
    case OptimizerName::galore: return low_rank_name("galore_adamw", o);
    case OptimizerName::apollo: return low_rank_name("apollo_adamw", o);
    case OptimizerName::lomo: return "lomo";
    case OptimizerName::adalomo: return "adalomo";
    default: return std::nullopt;
  }
}

std::optional<Words> target_modules(const Run& run) {
  const std::vector<std::string>& targets = run.training().lora.targets;
  if (std::find(targets.begin(), targets.end(), "all-linear") != targets.end()) return Words{};
  return names_of(run, targets, [](const std::string& t) { return std::string_view(t); });
}

std::optional<Words> saved_modules(const Run& run) {
  return names_of(run, run.training().lora.modules_to_save, [](SavedModule m) { return name_of(m); });
}

void add_trainer_arguments(const Run& run, Settings& out) {
  const TrainingChoice& t = run.training();
  out.push_back({"per_device_train_batch_size", t.micro_batch});
  out.push_back({"gradient_accumulation_steps", run.accumulation});
  if (const auto steps = steps_of(run)) out.push_back({"max_steps", *steps});
  const std::string mixed = mixed_precision(run);
  out.push_back({"bf16", mixed == "bf16"});
  out.push_back({"fp16", mixed == "fp16"});
  if (t.compile) out.push_back({"torch_compile", true});
}

Settings deepspeed_config(const Run& run) {
  Settings out = {{"train_micro_batch_size_per_gpu", run.training().micro_batch},
                  {"gradient_accumulation_steps", run.accumulation}};
  const std::string mixed = mixed_precision(run);
  if (mixed != "no") out.push_back({mixed, Settings{{"enabled", true}}});
  out.push_back({"zero_optimization", zero_settings(run)});
  // Its own AdamW works on the host as well; any other must be let through.
  const OptimizerChoice& o = run.training().optimizer;
  if (o.name == OptimizerName::adamw && o.states == StateFormat::fp32 && !o.paged) {
    const std::string from_trainer = "auto";
    out.push_back({"optimizer", Settings{{"type", std::string("AdamW")},
                                         {"params", Settings{{"lr", from_trainer},
                                                             {"betas", from_trainer},
                                                             {"eps", from_trainer},
                                                             {"weight_decay", from_trainer}}}}});
  } else {
    out.push_back({"zero_allow_untested_optimizer", true});
  }
  return out;
}

bool needs_accelerate(const Run& run) { return run.gpus > 1 || run.deepspeed(); }

Settings accelerate_config(const Run& run) {
  Settings out = {{"compute_environment", std::string("LOCAL_MACHINE")}};
  const std::string kind = run.deepspeed() ? "DEEPSPEED" : run.fsdp() ? "FSDP" : "MULTI_GPU";
  out.push_back({"distributed_type", kind});
  // DeepSpeed reads the precision from its own file.
  if (!run.deepspeed()) out.push_back({"mixed_precision", mixed_precision(run)});
  out.push_back({"num_machines", run.nodes});
  out.push_back({"num_processes", run.gpus});
  if (run.fsdp()) out.push_back({"fsdp_config", fsdp_settings(run)});
  if (run.deepspeed()) {
    Settings files = {{"deepspeed_config_file", std::string("deepspeed.json")},
                      {"zero3_init_flag", run.layout.zero == 3}};
    if (run.nodes > 1) files.push_back({"deepspeed_multinode_launcher", std::string("standard")});
    out.push_back({"deepspeed_config", std::move(files)});
  }
  return out;
}

Words accelerate_launch(const Run& run) {
  Words out = {"accelerate launch"};
  if (needs_accelerate(run)) out.emplace_back("--config_file accelerate.yaml");
  if (run.nodes > 1) {
    out.insert(out.end(),
               {"--machine_rank \"$SLURM_NODEID\"", "--main_process_ip \"$MAIN_NODE\"", "--main_process_port 29500"});
  }
  return out;
}

void add_accelerate_files(const Run& run, LaunchId id, std::vector<LaunchText>& out) {
  if (!needs_accelerate(run)) return;
  out.push_back(text(id, "accelerate.yaml", LaunchFormat::yaml, yaml(accelerate_config(run))));
  if (run.deepspeed()) out.push_back(text(id, "deepspeed.json", LaunchFormat::json, json(deepspeed_config(run))));
}

std::string requirements(const Run& run, std::string trainer) {
  const TrainingChoice& t = run.training();
  const OptimizerChoice& o = t.optimizer;
  const bool bnb_optimizer = o.states == StateFormat::int8 || o.paged || o.name == OptimizerName::lion;
  if (is_quantized(run.base()) || bnb_optimizer) trainer += " bitsandbytes";
  if (run.deepspeed()) trainer += " deepspeed";
  if (t.framework == FrameworkId::liger) trainer += " liger-kernel";
  if (t.framework == FrameworkId::unsloth) trainer += " unsloth";
  if (t.attention == AttentionKernel::flash) trainer += " flash-attn";
  if (o.states == StateFormat::int4) trainer += " torchao";
  if (o.name == OptimizerName::galore) trainer += " galore-torch";
  if (o.name == OptimizerName::apollo) trainer += " apollo-torch";
  if (o.name == OptimizerName::lomo || o.name == OptimizerName::adalomo) trainer += " lomo-optim";
  return trainer;
}

}  // namespace vramplan::launch
