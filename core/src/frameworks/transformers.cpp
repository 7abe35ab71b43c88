// Hugging Face Transformers with PEFT, bitsandbytes and Accelerate: modules written in plain tensor operations
// (modeling_llama.py and its kin), autocast for mixed precision, FSDP or DeepSpeed through Accelerate.
#include "frameworks.hpp"

namespace vramplan {
namespace {

// The model's own loss upcasts all logits; FOAK's kernel (fms-acceleration) writes over an FP32 copy of them. Without
// logits: FOAK's fused linear cross-entropy, an early Liger's; Liger's own; or TRL's, which is what its trainers do by
// default since 1.16.
void choose_loss(FrameworkSwitches& s, CrossEntropy choice, bool fused_kernels) {
  if (choice == CrossEntropy::full_logits) {
    s.loss = fused_kernels ? LossKind::fused_kernel : LossKind::upcast_full;
  } else if (fused_kernels || choice == CrossEntropy::fused) {
    s.loss = LossKind::fused_linear;
    s.loss_chunk = fused_kernels ? LossChunk::upcast : LossChunk::in_type;
    s.chunk_rule = ChunkRule::as_small_as_hidden;
  } else {
    s.loss = LossKind::tiled;
    s.chunk_rule = ChunkRule::tile;
  }
}

// TRL: reward_trainer.py scores sequences; dpo_trainer.py and grpo_trainer.py take log-probabilities of tokens, GRPO
// only those of the completion and the token before it, at the temperature of sampling; PPOTrainer (trl 0.29,
// experimental/ppo/ppo_trainer.py) takes all logits, and of those the completion's. disable_dropout is on in DPOConfig
// and RewardConfig, and PPOTrainer always does it.
void set_objective(FrameworkSwitches& s, const TrainingChoice& t) {
  if (t.objective == Objective::reward) s.loss = LossKind::score;
  s.drops_out = t.objective != Objective::dpo && t.objective != Objective::reward && t.objective != Objective::ppo;
  if (t.objective == Objective::ppo && t.generation) {
    s.loss = LossKind::answer_log_probs;
    s.kept_logits = t.generation->completion_length;
    s.keeps_outputs = true;
  }
  if (t.objective != Objective::dpo && t.objective != Objective::grpo) return;
  if (t.cross_entropy == CrossEntropy::full_logits) s.loss = LossKind::log_probs;
  if (t.objective == Objective::dpo || !t.generation) return;
  s.kept_logits = t.generation->completion_length + 1;
  s.scales_logits = true;
}

// Up to 4.45 the models' own forward shifted the logits and overwrote them by their upcast; then ForCausalLMLoss
// shifted them while the caller kept the 16-bit ones; since 4.49 it pads and moves the labels (loss/loss_utils.py).
LabelShift label_shift(Version version) {
  constexpr Version kLossFunctions{4, 46};
  constexpr Version kMovedLabels{4, 49};
  if (version >= kMovedLabels) return LabelShift::labels;
  return version >= kLossFunctions ? LabelShift::logits : LabelShift::last_logits;
}

// repeat_kv before SDPA until 4.54 knew enable_gqa (integrations/sdpa_attention.py); before FlashAttention-2,
// until 4.48 gave all models one attention, in Mistral's module and those made from it, which are the ones with a
// window.
KeyRepeats key_repeats(Version version) {
  constexpr Version kGroupedSdpa{4, 54};
  constexpr Version kOneAttention{4, 48};
  return {version < kGroupedSdpa, version < kOneAttention};
}

// Checkpoints run the block without a graph the first time until 5.0 made the other kind the default
// (modeling_utils.py, gradient_checkpointing_enable).
bool reentrant_checkpoints(Version version) {
  constexpr Version kNonReentrantByDefault{5, 0};
  return version < kNonReentrantByDefault;
}

// The Trainer's default optimizer: multi-tensor kernels, and the fused one since 4.54 (training_args.py).
bool foreach_by_default(Version version) {
  constexpr Version kFusedByDefault{4, 54};
  return version < kFusedByDefault;
}

// Adapters lie beside weights of 16 bits. FSDP shards 4-bit weights in elements of 16 bits (bnb_4bit_quant_storage).
bool beside_halves(const TrainingChoice& t, const Sharding& sharding) {
  if (!t.base_weights) return false;
  return is_quantized(*t.base_weights) ? sharding.gathers : *t.base_weights != WeightFormat::fp32;
}

// Since 5.0 all experts are one parameter, which PEFT adapts by ParamWrapper (peft/tuners/lora/layer.py). That refuses
// DoRA and dropout, and a 4-bit expert is a linear module: such runs are of the time when every expert was one.
constexpr Version kExpertParameters{5, 0};
bool merges_expert_adapters(const TrainingChoice& t, Version version) {
  return version >= kExpertParameters && t.method == Method::lora && t.lora.dropout.value_or(0) == 0;
}

// Before, the model called one expert after another (modeling_mixtral.py, MixtralSparseMoeBlock). A quantized expert is
// a linear module: quantizers do not touch parameters that hold all experts.
bool loops_experts(const TrainingChoice& t, Version version) {
  return version < kExpertParameters || (t.base_weights && is_quantized(*t.base_weights));
}

}  // namespace

void set_trainer_optimizers(FrameworkSwitches& s) {
  s.hugging_face_optimizers = true;
  s.fp32_embedding_states = true;  // trainer.py, create_optimizer: bitsandbytes' 8-bit optimizers only
  s.torchao_block = 256;           // _get_torchao_optimizer: also for 4 bits
}

FrameworkSwitches transformers_switches(const TrainingChoice& t, const Sharding& sharding) {
  FrameworkSwitches s;
  s.source = "transformers";
  const Version release = release_of(t);
  const bool fused = t.kernels == Kernels::fused;  // FOAK's kernels patched in
  s.norm = fused ? NormKernel::fused : NormKernel::composite;
  s.rotary = fused ? RotaryKernel::fused : RotaryKernel::composite;
  s.gated_mlp = GatedMlpKernel::composite;
  // integrations/hub_kernels.py: the package's kernels where it is installed, else its own PyTorch code.
  s.recurrence = t.recurrence == Recurrence::fused ? RecurrenceKernel::fused : RecurrenceKernel::composite;
  choose_loss(s, t.cross_entropy.value_or(CrossEntropy::full_logits), fused);
  s.shift = label_shift(release);
  s.key_repeats = key_repeats(release);
  s.logits_upcast = t.logits_upcast.value_or(true);
  set_objective(s, t);
  s.reentrant_checkpoints = reentrant_checkpoints(release);
  s.autocast = t.precision == Precision::bf16_amp || t.precision == Precision::fp16_amp;
  s.fp32_adapters = !trl_lowers_adapters(t) && (peft_raises_adapters(t) || !beside_halves(t, sharding));
  // peft/tuners/lora/bnb.py and gptq.py cast outside autocast only
  s.adapter_casts_input = !(s.autocast && t.base_weights && is_quantized(*t.base_weights));
  s.quantized_output_follows_input = true;  // bitsandbytes/nn/modules.py, Linear4bit.forward
  s.masks_sdpa_windows = true;
  s.kv_cache = t.recompute == Recompute::none;  // gradient checkpointing turns use_cache off
  s.merges_expert_adapters = merges_expert_adapters(t, release);
  s.loops_experts = loops_experts(t, release);
  s.foreach_optimizer = t.optimizer.foreach.value_or(foreach_by_default(release));
  set_trainer_optimizers(s);
  s.raises_leftovers = t.kbit_upcast.value_or(false) && !sharding.gathers;  // FSDP's mixed precision lowers them again
  // Of bases in 4 bits only.
  s.lowers_tables = s.raises_leftovers && trl_prepares(t) && t.precision == Precision::bf16_amp &&
                    *t.base_weights != WeightFormat::int8;
  s.raises_trained = sharding.is_fsdp() && s.autocast && trains_everything(t);
  if (fuses_adapters_of_quantized(t)) s.adapter_fusion = AdapterFusion::foak;
  s.keeps_stream_in_backward = sharding.gathers && sharding.engine == Engine::fsdp1 && has_adapters(t.method);
  return s;
}

}  // namespace vramplan
