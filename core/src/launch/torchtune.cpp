// torchtune 0.6.1 (torchtune/recipes, recipes/configs): a YAML file for one of its recipes. Modules compute in the type
// of their weights, and its models are builders by name.
#include <algorithm>
#include <iterator>

#include "run.hpp"

namespace vramplan::launch {
namespace {

// How a family reads its tokenizer and its checkpoint.
struct Family {
  std::string_view tokenizer, tokenizer_file, merges, checkpoint;
};
constexpr Family kLlama2{"llama2.llama2_tokenizer", "tokenizer.model", "", "LLAMA2"};
constexpr Family kLlama3{"llama3.llama3_tokenizer", "original/tokenizer.model", "", "LLAMA3"};
constexpr Family kLlama32{"llama3.llama3_tokenizer", "original/tokenizer.model", "", "LLAMA3_2"};
constexpr Family kMistral{"mistral.mistral_tokenizer", "tokenizer.model", "", "MISTRAL"};
constexpr Family kGemma{"gemma.gemma_tokenizer", "tokenizer.model", "", "GEMMA"};
constexpr Family kGemma2{"gemma.gemma_tokenizer", "tokenizer.model", "", "GEMMA2"};
constexpr Family kQwen2{"qwen2.qwen2_tokenizer", "vocab.json", "merges.txt", "QWEN2"};
constexpr Family kQwen25{"qwen2_5.qwen2_5_tokenizer", "vocab.json", "merges.txt", "QWEN2"};

// torchtune/models: the builder of each model of the catalogue; with lora_ before its name, its adapters' builder.
struct Builder {
  std::string_view model, module, name;
  const Family* family;
};
constexpr Builder kBuilders[] = {
    {"meta-llama/Llama-2-7b-hf", "llama2", "llama2_7b", &kLlama2},
    {"meta-llama/Llama-2-13b-hf", "llama2", "llama2_13b", &kLlama2},
    {"meta-llama/Llama-2-70b-hf", "llama2", "llama2_70b", &kLlama2},
    {"meta-llama/Meta-Llama-3-8B", "llama3", "llama3_8b", &kLlama3},
    {"meta-llama/Meta-Llama-3-70B", "llama3", "llama3_70b", &kLlama3},
    {"meta-llama/Llama-3.1-8B", "llama3_1", "llama3_1_8b", &kLlama3},
    {"meta-llama/Llama-3.1-70B", "llama3_1", "llama3_1_70b", &kLlama3},
    {"meta-llama/Llama-3.1-405B", "llama3_1", "llama3_1_405b", &kLlama3},
    {"meta-llama/Llama-3.2-1B", "llama3_2", "llama3_2_1b", &kLlama32},
    {"meta-llama/Llama-3.2-3B", "llama3_2", "llama3_2_3b", &kLlama32},
    {"meta-llama/Llama-3.3-70B-Instruct", "llama3_3", "llama3_3_70b", &kLlama3},
    {"mistralai/Mistral-7B-v0.1", "mistral", "mistral_7b", &kMistral},
    {"google/gemma-2b", "gemma", "gemma_2b", &kGemma},
    {"google/gemma-7b", "gemma", "gemma_7b", &kGemma},
    {"google/gemma-2-2b", "gemma2", "gemma2_2b", &kGemma2},
    {"google/gemma-2-9b", "gemma2", "gemma2_9b", &kGemma2},
    {"google/gemma-2-27b", "gemma2", "gemma2_27b", &kGemma2},
    {"Qwen/Qwen2-0.5B", "qwen2", "qwen2_0_5b", &kQwen2},
    {"Qwen/Qwen2-1.5B", "qwen2", "qwen2_1_5b", &kQwen2},
    {"Qwen/Qwen2-7B", "qwen2", "qwen2_7b", &kQwen2},
    {"Qwen/Qwen2.5-0.5B", "qwen2_5", "qwen2_5_0_5b", &kQwen25},
    {"Qwen/Qwen2.5-1.5B", "qwen2_5", "qwen2_5_1_5b_base", &kQwen25},
    {"Qwen/Qwen2.5-3B", "qwen2_5", "qwen2_5_3b", &kQwen25},
    {"Qwen/Qwen2.5-7B", "qwen2_5", "qwen2_5_7b_base", &kQwen25},
    {"Qwen/Qwen2.5-14B", "qwen2_5", "qwen2_5_14b_base", &kQwen25},
    {"Qwen/Qwen2.5-32B", "qwen2_5", "qwen2_5_32b_base", &kQwen25},
    {"Qwen/Qwen2.5-72B", "qwen2_5", "qwen2_5_72b_base", &kQwen25},
};

const Builder* builder_of(const Run& run) {
  const auto* found =
      std::find_if(std::begin(kBuilders), std::end(kBuilders), [&](const Builder& b) { return b.model == run.model; });
  return found == std::end(kBuilders) ? nullptr : found;
}

bool runs(FrameworkId framework) { return framework == FrameworkId::torchtune; }

// Adapters on the projections of attention one by one, on all of the MLP or none of it, and on the output.
struct Targets {
  Words attention;
  bool mlp = false, output = false, known = true;
};

bool has_target(const std::vector<std::string>& targets, std::string_view name) {
  return std::find(targets.begin(), targets.end(), name) != targets.end();
}

Targets targets_of(const Run& run) {
  struct Name {
    std::string_view module, name;
  };
  constexpr Name kAttention[] = {{"q", "q_proj"}, {"k", "k_proj"}, {"v", "v_proj"}, {"o", "output_proj"}};
  const std::vector<std::string>& wanted = run.training().lora.targets;
  const bool all = has_target(wanted, "all-linear");
  Targets out;
  for (const Name& n : kAttention) {
    if (all || has_target(wanted, n.module)) out.attention.emplace_back(n.name);
  }
  out.mlp = all || has_target(wanted, "gate");
  out.output = has_target(wanted, "head");
  const std::size_t expressed = out.attention.size() + (out.mlp ? 3U : 0U) + (out.output ? 1U : 0U);
  const bool whole_mlp =
      has_target(wanted, "gate") == has_target(wanted, "up") && has_target(wanted, "up") == has_target(wanted, "down");
  out.known = all || (whole_mlp && expressed == wanted.size());
  return out;
}

bool has_optimizer(const OptimizerChoice& o) { return o.name == OptimizerName::adamw || o.name == OptimizerName::sgd; }

bool has_states(const Run& run) {
  const OptimizerChoice& o = run.training().optimizer;
  const bool bnb = o.name == OptimizerName::adamw && (o.states == StateFormat::int8 || o.paged);
  return bnb || has_natural_states(run);
}

bool has_base(const Run& run) {
  if (run.base() == WeightFormat::nf4 || run.base() == WeightFormat::nf4_dq) return true;
  return run.base() == (run.training().precision == Precision::fp32 ? WeightFormat::fp32 : WeightFormat::bf16);
}

void need_layout(const Run& run, Needs& needs) {
  const LayoutChoice& l = run.layout;
  needs.that(l.tp == 1, "/layout/tp").that(l.pp == 1, "/layout/pp").that(l.cp == 1, "/layout/cp");
  needs.that(l.ep == 1, "/layout/ep").that(l.dp == 1 || l.zero >= 2, "/layout/zero");
  needs.that(l.fsdp.value_or(2) == 2, "/layout/fsdp").that(!l.no_sync.value_or(false), "/layout/no_sync");
}

LaunchOmission lacks(const Run& run) {
  if (builder_of(run) == nullptr) return {LaunchId::torchtune, LaunchReason::unknown_model, "/model"};
  const TrainingChoice& t = run.training();
  Needs needs;
  needs.that(t.objective == Objective::sft || t.objective == Objective::pretrain, "/training/objective");
  needs.that(t.method == Method::full || run.adapters(), "/training/method");
  needs.that(t.precision == Precision::bf16 || t.precision == Precision::fp32, "/training/precision");
  needs.that(has_base(run), "/training/base_weights");
  needs.that(has_optimizer(t.optimizer), "/training/optimizer/name");
  needs.that(has_states(run), "/training/optimizer/states");
  needs.that(!t.optimizer.master_weights, "/training/optimizer/master_weights");
  needs.that(!run.adapters() || targets_of(run).known, "/training/lora/targets");
  needs.that(!t.lora.rslora, "/training/lora/rslora").that(!t.ema, "/training/ema");
  needs.that(t.attention == AttentionKernel::sdpa, "/training/attention");
  needs.that(t.recompute != Recompute::selective, "/training/recompute");
  need_layout(run, needs);
  return {LaunchId::torchtune, LaunchReason::not_expressible, needs.pointer()};
}

Setting component(std::string_view name) { return {"_component_", "torchtune." + std::string(name)}; }
Setting torch_component(std::string_view name) { return {"_component_", std::string(name)}; }

// Where `tune download` has put the model.
Placeholder in_model_folder(std::string_view file) { return {"MODEL_FOLDER/" + std::string(file)}; }

Settings model_settings(const Run& run, const Builder& builder) {
  const std::string prefix = "models." + std::string(builder.module) + ".";
  if (!run.adapters()) return {component(prefix + std::string(builder.name))};
  const TrainingChoice& t = run.training();
  Targets targets = targets_of(run);
  Settings out = {component(prefix + "lora_" + std::string(builder.name)),
                  {"lora_attn_modules", std::move(targets.attention)},
                  {"apply_lora_to_mlp", targets.mlp}};
  if (targets.output) out.push_back({"apply_lora_to_output", true});
  out.push_back({"lora_rank", t.lora.rank});
  out.push_back({"lora_dropout", t.lora.dropout.value_or(0)});
  if (t.method == Method::dora) out.push_back({"use_dora", true});
  if (is_quantized(run.base())) out.push_back({"quantize_base", true});
  return out;
}

Settings tokenizer_settings(const Run& run, const Family& family) {
  Settings out = {component("models." + std::string(family.tokenizer)),
                  {"path", in_model_folder(family.tokenizer_file)}};
  if (!family.merges.empty()) out.push_back({"merges_file", in_model_folder(family.merges)});
  out.push_back({"max_seq_len", run.training().sequence_length});
  return out;
}

Settings checkpointer_settings(const Family& family) {
  return {component("training.FullModelHFCheckpointer"),   {"checkpoint_dir", in_model_folder("")},
          {"checkpoint_files", Words{"CHECKPOINT_FILES"}}, {"recipe_checkpoint", nullptr},
          {"output_dir", std::string("${output_dir}")},    {"model_type", std::string(family.checkpoint)}};
}

Settings dataset_settings(const TrainingChoice& t) {
  const bool plain = t.objective == Objective::pretrain;
  return {component(plain ? "datasets.text_completion_dataset" : "datasets.instruct_dataset"),
          {"source", Placeholder{"DATASET"}},
          {"packed", t.packing}};
}

std::string optimizer_class(const OptimizerChoice& o) {
  if (o.name == OptimizerName::sgd) return "torch.optim.SGD";
  if (o.states == StateFormat::int8)
    return o.paged ? "bitsandbytes.optim.PagedAdamW8bit" : "bitsandbytes.optim.AdamW8bit";
  return o.paged ? "bitsandbytes.optim.PagedAdamW" : "torch.optim.AdamW";
}

Settings optimizer_settings(const TrainingChoice& t) {
  const OptimizerChoice& o = t.optimizer;
  Settings out = {torch_component(optimizer_class(o)), {"lr", Placeholder{"LEARNING_RATE"}}};
  if (o.name == OptimizerName::sgd && o.momentum) out.push_back({"momentum", Placeholder{"MOMENTUM"}});
  if (optimizer_class(o) != "torch.optim.AdamW") return out;
  const bool foreach = o.foreach.value_or(false);
  out.push_back({"foreach", foreach});
  out.push_back({"fused", !foreach && o.fused.value_or(true)});
  return out;
}

void add_training(const Run& run, Settings& out) {
  const TrainingChoice& t = run.training();
  out.push_back({"batch_size", t.micro_batch});
  out.push_back({"gradient_accumulation_steps", run.accumulation});
  out.push_back({"epochs", std::int64_t{1}});
  const auto steps = steps_of(run);
  out.push_back({"max_steps_per_epoch", steps ? SettingValue(*steps) : SettingValue(nullptr)});
  out.push_back({"dtype", std::string(t.precision == Precision::fp32 ? "fp32" : "bf16")});
  out.push_back({"compile", t.compile});
  out.push_back({"enable_activation_checkpointing", t.recompute == Recompute::full});
  out.push_back({"enable_activation_offloading", t.offload.activations});
  if (!run.adapters()) out.push_back({"optimizer_in_bwd", t.optimizer.in_backward});
  if (run.gpus == 1) return;
  out.push_back({"fsdp_reshard_after_forward", run.layout.reshard.value_or(run.layout.zero == 3)});
  out.push_back({"fsdp_cpu_offload", t.offload.parameters});
}

void add_what_recipes_expect(Settings& out) {
  out.push_back({"device", std::string("cuda")});
  out.push_back({"seed", std::int64_t{0}});
  out.push_back({"shuffle", true});
  out.push_back({"resume_from_checkpoint", false});
  out.push_back({"metric_logger", Settings{component("training.metric_logging.StdoutLogger")}});
}

Settings settings_of(const Run& run, const Builder& builder) {
  const TrainingChoice& t = run.training();
  Settings out = {{"output_dir", Placeholder{"OUTPUT_FOLDER"}},
                  {"model", model_settings(run, builder)},
                  {"tokenizer", tokenizer_settings(run, *builder.family)},
                  {"checkpointer", checkpointer_settings(*builder.family)},
                  {"dataset", dataset_settings(t)},
                  {"optimizer", optimizer_settings(t)}};
  if (run.adapters()) {
    out.push_back({"lr_scheduler", Settings{component("training.lr_schedulers.get_cosine_schedule_with_warmup"),
                                            {"num_warmup_steps", std::int64_t{0}}}});
  }
  const bool chunked = t.cross_entropy == CrossEntropy::chunked;
  out.push_back({"loss", Settings{chunked ? component("modules.loss.CEWithChunkedOutputLoss")
                                          : torch_component("torch.nn.CrossEntropyLoss")}});
  add_training(run, out);
  add_what_recipes_expect(out);
  return out;
}

std::string recipe_of(const Run& run) {
  const std::string kind = run.adapters() ? "lora_finetune" : "full_finetune";
  return kind + (run.gpus > 1 ? "_distributed" : "_single_device");
}

std::vector<LaunchText> write(const Run& run) {
  std::vector<LaunchText> out = {
      text(LaunchId::torchtune, "torchtune.yaml", LaunchFormat::yaml, yaml(settings_of(run, *builder_of(run))))};
  Words words = {"tune run"};
  if (run.gpus > 1) {
    const Words nodes = torchrun(run);
    words.insert(words.end(), nodes.begin() + 1, nodes.end());
  }
  words.push_back(recipe_of(run));
  words.emplace_back("--config torchtune.yaml");
  const OptimizerChoice& o = run.training().optimizer;
  const bool bnb = o.states == StateFormat::int8 || o.paged;
  const std::string packages = std::string("torchtune==0.6.1 torchao") + (bnb ? " bitsandbytes" : "");
  const std::string download = "\ntune download " + run.model + " --output-dir MODEL_FOLDER";
  out.push_back(start(run, LaunchId::torchtune, packages + download, words));
  return out;
}

}  // namespace

Generator torchtune() { return {LaunchId::torchtune, runs, lacks, write}; }

}  // namespace vramplan::launch
