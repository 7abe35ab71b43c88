// Megatron-LM (megatron/training/arguments.py): arguments alone. The model is described by its shape; how its positions
// turn and its norms round are not part of a plan and stay placeholders.
#include <algorithm>

#include "run.hpp"

namespace vramplan::launch {
namespace {

bool runs(FrameworkId framework) { return framework == FrameworkId::megatron; }

// The mixer that all layers share, if they do.
const Mixer* mixer_of(const ModelArchitecture& model) {
  const Mixer* first = nullptr;
  for (const LayerGroup& group : model.groups) {
    if (group.mixers.size() != 1) return nullptr;
    const Mixer& mixer = group.mixers.front();
    if (first != nullptr && first->index() != mixer.index()) return nullptr;
    if (first == nullptr) first = &mixer;
  }
  return first;
}

bool is_plain(const Attention& a) {
  return a.window == 0 && !a.sinks && !a.k_is_v && !a.kv_shared && !a.cross && a.rotary && !a.partial_rotary &&
         a.qk_norm != QkNorm::full && a.output_gate == OutputGate::none && a.softcap == 0 && !a.indexer &&
         v_head_dim_of(a) == a.head_dim && a.o_bias == false;
}

bool has_mixer(const ModelArchitecture& model) {
  const Mixer* mixer = mixer_of(model);
  if (mixer == nullptr) return false;
  if (const auto* a = std::get_if<Attention>(mixer)) {
    return std::all_of(model.groups.begin(), model.groups.end(),
                       [](const LayerGroup& g) { return is_plain(std::get<Attention>(g.mixers.front())); }) &&
           is_plain(*a);
  }
  const auto* latent = std::get_if<LatentAttention>(mixer);
  return latent != nullptr && !latent->indexer && !latent->output_gate;
}

bool has_mlps(const ModelArchitecture& model) {
  return std::all_of(model.groups.begin(), model.groups.end(), [](const LayerGroup& g) {
    if (g.mlps.size() != 1 || !g.extras.empty()) return false;
    if (const auto* dense = std::get_if<DenseMlp>(&g.mlps.front())) {
      return dense->gated && !dense->bias && dense->activation == Activation::silu;
    }
    const auto& moe = std::get<MoeMlp>(g.mlps.front());
    return moe.gated && !moe.expert_bias && moe.latent_size == 0 && moe.zero_experts == 0 && !moe.shared_expert_gate &&
           moe.activation == Activation::silu;
  });
}

bool has_shape(const ModelArchitecture& m) {
  return m.norm.type == NormType::rms && m.norm_placement == NormPlacement::pre && !m.norm.unit_offset &&
         m.position == PositionType::rope && !m.parallel_residual && !m.embedding_norm && m.final_norm &&
         m.final_softcap == 0 && m.extras.empty() && m.towers.empty() && has_mixer(m) && has_mlps(m);
}

bool has_precision(Precision p) {
  return p == Precision::bf16_amp || p == Precision::bf16 || p == Precision::fp16_amp || p == Precision::fp32;
}

LaunchOmission lacks(const Run& run) {
  if (!has_shape(*run.architecture)) return {LaunchId::megatron, LaunchReason::unknown_model, "/model"};
  const TrainingChoice& t = run.training();
  const LayoutChoice& l = run.layout;
  Needs needs;
  needs.that(t.objective == Objective::pretrain || t.objective == Objective::sft, "/training/objective");
  needs.that(t.method == Method::full, "/training/method").that(has_precision(t.precision), "/training/precision");
  needs.that(t.optimizer.name == OptimizerName::adamw, "/training/optimizer/name");
  needs.that(t.optimizer.states == StateFormat::fp32, "/training/optimizer/states").that(!t.ema, "/training/ema");
  needs.that(!t.offload.parameters, "/training/offload/parameters");
  needs.that(!t.offload.activations, "/training/offload/activations");
  needs.that(!t.offload.optimizer, "/training/offload/optimizer");
  needs.that(t.attention != AttentionKernel::flex, "/training/attention");
  needs.that(t.kernels == Kernels::fused, "/training/kernels");
  needs.that(l.zero <= 1, "/layout/zero");
  return {LaunchId::megatron, LaunchReason::not_expressible, needs.pointer()};
}

void add_attention(const Attention& a, Settings& out) {
  out.push_back({"num-attention-heads", a.heads});
  out.push_back({"kv-channels", a.head_dim});
  if (a.kv_heads != a.heads) {
    out.push_back({"group-query-attention", true});
    out.push_back({"num-query-groups", a.kv_heads});
  }
  out.push_back({"add-qkv-bias", a.qkv_bias});
  out.push_back({"qk-layernorm", a.qk_norm == QkNorm::head});
}

void add_attention(const LatentAttention& a, Settings& out) {
  out.push_back({"num-attention-heads", a.heads});
  out.push_back({"multi-latent-attention", true});
  if (a.q_lora_rank > 0) out.push_back({"q-lora-rank", a.q_lora_rank});
  out.push_back({"kv-lora-rank", a.kv_lora_rank});
  out.push_back({"qk-head-dim", a.qk_nope_head_dim});
  out.push_back({"qk-pos-emb-head-dim", a.qk_rope_head_dim});
  out.push_back({"v-head-dim", a.v_head_dim});
}

void add_mixer(const ModelArchitecture& model, Settings& out) {
  const Mixer& mixer = *mixer_of(model);
  if (const auto* a = std::get_if<Attention>(&mixer)) add_attention(*a, out);
  if (const auto* a = std::get_if<LatentAttention>(&mixer)) add_attention(*a, out);
}

void add_experts(const MoeMlp& moe, Settings& out) {
  out.push_back({"num-experts", moe.experts});
  out.push_back({"moe-router-topk", moe.experts_per_token});
  out.push_back({"moe-ffn-hidden-size", moe.intermediate_size});
  if (moe.shared_intermediate_size > 0) {
    out.push_back({"moe-shared-expert-intermediate-size", moe.shared_intermediate_size});
  }
  out.push_back({"moe-grouped-gemm", true});
  out.push_back({"moe-token-dispatcher-type", std::string("alltoall")});
}

// Which layers hold experts, as a Python expression; the groups are in order.
std::string layer_pattern(const ModelArchitecture& model) {
  std::string out;
  for (const LayerGroup& g : model.groups) {
    const bool experts = std::holds_alternative<MoeMlp>(g.mlps.front());
    out += (out.empty() ? "([" : "+[") + std::string(experts ? "1" : "0") + "]*" + std::to_string(g.count);
  }
  return "\"" + out + ")\"";
}

void add_mlps(const ModelArchitecture& model, Settings& out) {
  const DenseMlp* dense = nullptr;
  const MoeMlp* moe = nullptr;
  for (const LayerGroup& g : model.groups) {
    if (const auto* d = std::get_if<DenseMlp>(&g.mlps.front())) dense = d;
    if (const auto* m = std::get_if<MoeMlp>(&g.mlps.front())) moe = m;
  }
  out.push_back({"ffn-hidden-size", dense != nullptr ? dense->intermediate_size : moe->intermediate_size});
  if (moe == nullptr) return;
  add_experts(*moe, out);
  if (dense != nullptr) out.push_back({"moe-layer-freq", layer_pattern(model)});
}

void add_model(const ModelArchitecture& m, Settings& out) {
  out.push_back({"num-layers", layers_of(m)});
  out.push_back({"hidden-size", m.hidden_size});
  add_mixer(m, out);
  add_mlps(m, out);
  out.push_back({"swiglu", true});
  out.push_back({"normalization", std::string("RMSNorm")});
  out.push_back({"norm-epsilon", Placeholder{"NORM_EPSILON"}});
  out.push_back({"position-embedding-type", std::string("rope")});
  out.push_back({"rotary-base", Placeholder{"ROTARY_BASE"}});
  out.push_back({"disable-bias-linear", true});
  out.push_back({"untie-embeddings-and-output-weights", !m.tie_word_embeddings});
  out.push_back({"max-position-embeddings", m.max_position_embeddings});
}

void add_recompute(const TrainingChoice& t, Settings& out) {
  if (t.recompute == Recompute::none) return;
  out.push_back({"recompute-granularity", std::string(name_of(t.recompute))});
  if (t.recompute == Recompute::selective) {
    Words modules;
    for (const RecomputeModule module : t.recompute_modules) modules.emplace_back(name_of(module));
    out.push_back({"recompute-modules", modules});
    return;
  }
  out.push_back({"recompute-method", std::string("uniform")});
  out.push_back({"recompute-num-layers", std::int64_t{1}});
}

void add_layout(const LayoutChoice& l, Settings& out) {
  out.push_back({"tensor-model-parallel-size", l.tp});
  out.push_back({"sequence-parallel", l.sp});
  out.push_back({"pipeline-model-parallel-size", l.pp});
  if (l.vpp > 1) out.push_back({"num-virtual-stages-per-pipeline-rank", l.vpp});
  if (l.first_stage_layers) out.push_back({"decoder-first-pipeline-num-layers", *l.first_stage_layers});
  if (l.last_stage_layers) out.push_back({"decoder-last-pipeline-num-layers", *l.last_stage_layers});
  out.push_back({"context-parallel-size", l.cp});
  out.push_back({"expert-model-parallel-size", l.ep});
  if (l.etp) out.push_back({"expert-tensor-parallel-size", *l.etp});
  out.push_back({"use-distributed-optimizer", l.zero == 1});
}

void add_training(const Run& run, Settings& out) {
  const TrainingChoice& t = run.training();
  const std::int64_t sequences =
      saturating_multiply(t.micro_batch, saturating_multiply(run.layout.dp, run.accumulation));
  out.push_back({"seq-length", t.sequence_length});
  out.push_back({"micro-batch-size", t.micro_batch});
  out.push_back({"global-batch-size", sequences});
  const auto steps = steps_of(run);
  out.push_back({"train-iters", steps ? SettingValue(*steps) : SettingValue(Placeholder{"TRAIN_ITERATIONS"})});
  out.push_back({"lr", Placeholder{"LEARNING_RATE"}});
  out.push_back({"bf16", t.precision == Precision::bf16_amp || t.precision == Precision::bf16});
  // BF16 adds gradients up in FP32 unless told otherwise, FP16 when it is told to.
  const bool fp32_gradients = t.fp32_gradients.value_or(t.precision != Precision::fp16_amp);
  const bool fp16 = t.precision == Precision::fp16_amp;
  out.push_back({"fp16", fp16});
  out.push_back({"grad-reduce-in-bf16", !fp16 && !fp32_gradients});
  out.push_back({"accumulate-allreduce-grads-in-fp32", fp16 && fp32_gradients});
  const std::string kernel = t.attention == AttentionKernel::eager  ? "unfused"
                             : t.attention == AttentionKernel::sdpa ? "fused"
                                                                    : "flash";
  out.push_back({"attention-backend", kernel});
  if (t.mtp_layers > 0) out.push_back({"mtp-num-layers", t.mtp_layers});
  add_recompute(t, out);
  if (t.cross_entropy == CrossEntropy::fused) {
    out.push_back({"cross-entropy-loss-fusion", true});
    out.push_back({"cross-entropy-fusion-impl", std::string("te")});
  }
}

std::vector<LaunchText> write(const Run& run) {
  Settings settings;
  add_model(*run.architecture, settings);
  add_training(run, settings);
  add_layout(run.layout, settings);
  settings.push_back({"tokenizer-type", std::string("HuggingFaceTokenizer")});
  settings.push_back({"tokenizer-model", run.model});
  settings.push_back({"data-path", Placeholder{"DATASET"}});
  Words words = torchrun(run);
  words.emplace_back(run.training().objective == Objective::sft ? "pretrain_gpt.py --sft" : "pretrain_gpt.py");
  for (std::string& argument : arguments(settings)) words.push_back(std::move(argument));
  return {start(run, LaunchId::megatron, "megatron-core transformer-engine[pytorch]", words)};
}

}  // namespace

Generator megatron() { return {LaunchId::megatron, runs, lacks, write}; }

}  // namespace vramplan::launch
