// torchtitan 0.3.0: a configuration is a function of the model's registry (torchtitan/models/*/config_registry.py), and
// the command line overrides its fields (torchtitan/config/manager.py). The TOML files of earlier releases are gone.
#include <algorithm>
#include <iterator>

#include "run.hpp"

namespace vramplan::launch {
namespace {

struct Entry {
  std::string_view model, module, config;
};
// All of them take the loss over chunks. Those that only come with float8 or other converters are not here.
constexpr Entry kRegistry[] = {
    {"meta-llama/Llama-3.1-8B", "llama3", "llama3_8b"}, {"meta-llama/Llama-3.1-70B", "llama3", "llama3_70b"},
    {"Qwen/Qwen3-0.6B", "qwen3", "qwen3_0_6b"},         {"Qwen/Qwen3-1.7B", "qwen3", "qwen3_1_7b"},
    {"Qwen/Qwen3-14B", "qwen3", "qwen3_14b"},           {"Qwen/Qwen3-32B", "qwen3", "qwen3_32b"},
    {"Qwen/Qwen3-30B-A3B", "qwen3", "qwen3_30b_a3b"},   {"openai/gpt-oss-20b", "gpt_oss", "gpt_oss_20b"},
    {"openai/gpt-oss-120b", "gpt_oss", "gpt_oss_120b"}, {"deepseek-ai/DeepSeek-V3", "deepseek_v3", "deepseek_v3_671b"},
};

const Entry* entry_of(const Run& run) {
  const auto* found =
      std::find_if(std::begin(kRegistry), std::end(kRegistry), [&](const Entry& e) { return e.model == run.model; });
  return found == std::end(kRegistry) ? nullptr : found;
}

bool runs(FrameworkId framework) { return framework == FrameworkId::torchtitan; }

bool has_types(const Run& run) {
  const Precision p = run.training().precision;
  if (p == Precision::bf16) return run.base() == WeightFormat::bf16;
  return (p == Precision::bf16_amp || p == Precision::fp32) && run.base() == WeightFormat::fp32;
}

LaunchOmission lacks(const Run& run) {
  if (entry_of(run) == nullptr) return {LaunchId::torchtitan, LaunchReason::unknown_model, "/model"};
  const TrainingChoice& t = run.training();
  const LayoutChoice& l = run.layout;
  Needs needs;
  needs.that(t.objective == Objective::sft || t.objective == Objective::pretrain, "/training/objective");
  needs.that(t.method == Method::full, "/training/method").that(has_types(run), "/training/precision");
  needs.that(t.optimizer.name == OptimizerName::adamw, "/training/optimizer/name");
  needs.that(has_natural_states(run), "/training/optimizer/states").that(!t.ema, "/training/ema");
  needs.that(t.cross_entropy == CrossEntropy::chunked, "/training/cross_entropy");
  needs.that(t.attention != AttentionKernel::eager, "/training/attention");
  needs.that(!t.offload.optimizer, "/training/offload/optimizer");
  needs.that(!t.offload.activations, "/training/offload/activations");
  needs.that(!l.first_stage_layers, "/layout/first_stage_layers");
  needs.that(!l.last_stage_layers, "/layout/last_stage_layers");
  // A looped schedule has two stages on each rank unless their layers are counted out.
  needs.that(l.vpp <= 2, "/layout/vpp").that(l.dp == 1 || l.zero != 1, "/layout/zero");
  needs.that(l.fsdp.value_or(2) == 2, "/layout/fsdp").that(!l.no_sync.value_or(false), "/layout/no_sync");
  return {LaunchId::torchtitan, LaunchReason::not_expressible, needs.pointer()};
}

// Under pipeline parallelism the micro-batches of a step are one local batch.
void add_sizes(const Run& run, Settings& out) {
  const TrainingChoice& t = run.training();
  const bool pipelined = run.layout.pp > 1;
  const std::int64_t local = pipelined ? saturating_multiply(t.micro_batch, run.accumulation) : t.micro_batch;
  out.push_back({"training.local_batch_size", local});
  if (pipelined) out.push_back({"parallelism.pipeline_parallel_microbatch_size", t.micro_batch});
  if (t.global_batch) out.push_back({"training.global_batch_size", *t.global_batch});
  out.push_back({"training.seq_len", t.sequence_length});
  if (const auto steps = steps_of(run)) out.push_back({"training.steps", *steps});
}

void add_types(const Run& run, Settings& out) {
  const bool whole = run.training().precision == Precision::fp32;
  out.push_back({"training.dtype", std::string(run.base() == WeightFormat::fp32 ? "float32" : "bfloat16")});
  out.push_back({"training.mixed_precision_param", std::string(whole ? "float32" : "bfloat16")});
}

void add_layout(const Run& run, Settings& out) {
  const LayoutChoice& l = run.layout;
  const bool sharded = l.zero >= 2;
  out.push_back({"parallelism.data_parallel_replicate_degree", sharded ? 1 : l.dp});
  out.push_back({"parallelism.data_parallel_shard_degree", sharded ? l.dp : 1});
  if (sharded) {
    const bool always = l.reshard.value_or(l.zero == 3);
    const bool left_open = !l.reshard && l.zero == 3;
    out.push_back({"parallelism.fsdp_reshard_after_forward", std::string(left_open ? "default"
                                                                         : always  ? "always"
                                                                                   : "never")});
  }
  out.push_back({"parallelism.tensor_parallel_degree", l.tp});
  if (l.tp > 1)
    out.push_back({l.sp ? "parallelism.enable_sequence_parallel" : "parallelism.no-enable-sequence-parallel", true});
  out.push_back({"parallelism.pipeline_parallel_degree", l.pp});
  if (l.pp > 1) {
    out.push_back({"parallelism.pipeline_parallel_schedule", std::string(l.vpp > 1 ? "Interleaved1F1B" : "1F1B")});
  }
  out.push_back({"parallelism.context_parallel_degree", l.cp});
  out.push_back({"parallelism.expert_parallel_degree", l.ep});
}

// A choice between classes is a word at the end (tyro's subcommand).
std::string recompute_word(Recompute recompute) {
  const std::string kind = recompute == Recompute::full        ? "full"
                           : recompute == Recompute::selective ? "selective"
                                                               : "none";
  return "activation-checkpoint:" + kind;
}

std::vector<LaunchText> write(const Run& run) {
  const Entry& entry = *entry_of(run);
  Settings settings = {{"module", std::string(entry.module)},
                       {"config", std::string(entry.config)},
                       {"hf_assets_path", Placeholder{"MODEL_FOLDER"}},
                       {"dataloader.dataset_path", Placeholder{"DATASET"}}};
  add_sizes(run, settings);
  add_types(run, settings);
  add_layout(run, settings);
  settings.push_back({run.training().compile ? "compile.enable" : "compile.no-enable", true});
  if (run.training().offload.parameters) settings.push_back({"training.enable_cpu_offload", true});
  Words words = torchrun(run);
  words.insert(words.begin(), "PYTORCH_ALLOC_CONF=expandable_segments:True");
  words.emplace_back("-m torchtitan.train");
  for (std::string& argument : arguments(settings)) words.push_back(std::move(argument));
  words.push_back(recompute_word(run.training().recompute));
  const std::string download = "\nhf download " + run.model + " --local-dir MODEL_FOLDER";
  return {start(run, LaunchId::torchtitan, "torchtitan==0.3.0" + download, words)};
}

}  // namespace

Generator torchtitan() { return {LaunchId::torchtitan, runs, lacks, write}; }

}  // namespace vramplan::launch
