// Hugging Face Transformers with PEFT, bitsandbytes and Accelerate: modules written in plain tensor operations
// (modeling_llama.py and its kin), autocast for mixed precision, FSDP or DeepSpeed through Accelerate.
#include "frameworks.hpp"

namespace vramplan {

namespace {

// What an absent version stands for: today's release; with fused kernels the one that fms-acceleration, whose kernels
// they are, was published with (scripts/benchmarks/refs/requirements_liger.txt).
Version release_of(const TrainingChoice& t) {
  constexpr Version kToday{5, 24};
  constexpr Version kFusedKernels{4, 45};
  return t.framework_version.value_or(t.kernels == Kernels::fused ? kFusedKernels : kToday);
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

// The Trainer's default optimizer: multi-tensor kernels, and the fused one since 4.54 (training_args.py).
bool foreach_by_default(Version version) {
  constexpr Version kFusedByDefault{4, 54};
  return version < kFusedByDefault;
}

}  // namespace

FrameworkSwitches transformers_switches(const TrainingChoice& t, const Sharding& sharding) {
  FrameworkSwitches s;
  s.source = "transformers";
  const Version release = release_of(t);
  const bool fused = t.kernels == Kernels::fused;  // Liger or FOAK kernels patched in
  s.norm = fused ? NormKernel::fused : NormKernel::composite;
  s.rotary = fused ? RotaryKernel::fused : RotaryKernel::composite;
  s.gated_mlp = GatedMlpKernel::composite;
  const bool without_logits = t.cross_entropy != CrossEntropy::full_logits;
  s.loss = without_logits ? LossKind::fused_linear : fused ? LossKind::fused_kernel : LossKind::upcast_full;
  s.loss_chunks = without_logits ? 8 : 1;
  s.shift = label_shift(release);
  s.key_repeats = key_repeats(release);
  s.logits_upcast = t.logits_upcast.value_or(true);
  s.autocast = t.precision == Precision::bf16_amp || t.precision == Precision::fp16_amp;
  s.fp32_adapters = true;  // peft: autocast_adapter_dtype raises 16-bit adapters to FP32, whatever the precision
  s.adapter_casts_input =
      !(s.autocast && t.method == Method::qlora);  // peft/tuners/lora/bnb.py casts outside autocast only
  s.quantized_output_follows_input = true;         // bitsandbytes/nn/modules.py, Linear4bit.forward
  s.masks_sdpa_windows = true;
  s.foreach_optimizer = t.optimizer.foreach.value_or(foreach_by_default(release));
  s.raises_leftovers = t.kbit_upcast.value_or(false) && !sharding.gathers;  // FSDP's mixed precision lowers them again
  const bool adapters = t.method != Method::full && t.method != Method::freeze;
  s.keeps_stream_in_backward = sharding.gathers && sharding.engine == Engine::fsdp1 && adapters;
  return s;
}

}  // namespace vramplan
