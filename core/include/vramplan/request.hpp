// What the visitor chose: design section 4, as a value. core/json reads it and reports every problem with its pointer.
// Optional fields that are absent take the framework's default in `resolve_defaults`; the report echoes the outcome.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "vramplan/element_type.hpp"
#include "vramplan/model.hpp"
#include "vramplan/result.hpp"
#include "vramplan/units.hpp"

namespace vramplan {

// Enumerators are spelled as in JSON. enum_names.hpp holds the table of the names of each, in the same order.
enum class Objective : std::uint8_t { pretrain, sft, dpo, reward, ppo, grpo };
enum class Method : std::uint8_t { full, freeze, lora, dora, qlora, galore, lomo };
enum class FrameworkId : std::uint8_t {
  transformers,
  liger,
  unsloth,
  torchtune,
  litgpt,
  deepspeed,
  torchtitan,
  megatron,
  scaling  // Aleph Alpha's
};
enum class Precision : std::uint8_t { fp32, bf16_amp, fp16_amp, bf16, fp16, fp8 };
enum class OptimizerName : std::uint8_t {
  adamw,
  sgd,
  adafactor,
  lion,
  adam_mini,
  muon,
  galore,
  apollo,
  lomo,
  adalomo,
  badam,
  came
};
enum class StateFormat : std::uint8_t { fp32, bf16, int8, fp16, int4, factored };
enum class Recompute : std::uint8_t { none, selective, full };
enum class AttentionKernel : std::uint8_t { eager, sdpa, flash, flex };
enum class CrossEntropy : std::uint8_t { full_logits, chunked, fused };
enum class Kernels : std::uint8_t { eager, fused };
// What runs recurrent layers: PyTorch's own operations, as after a fresh installation, or the kernels of fla, mamba_ssm
// and causal_conv1d, which Transformers takes where they are installed.
enum class Recurrence : std::uint8_t { composite, fused };
// What Megatron computes again in backward when recompute is selective
// (megatron/core/transformer/transformer_config.py, recompute_modules).
enum class RecomputeModule : std::uint8_t { core_attn, mlp, moe, shared_experts, moe_act, layernorm, mla_up_proj };
// How the ranks of context parallelism share attention.
enum class ContextExchange : std::uint8_t { ring, all_to_all };
// Where the log-probabilities come from that a policy is held to: a second model, the same one with its adapters off,
// or a data set that holds them.
enum class Reference : std::uint8_t { model, adapters_off, precomputed };
// Whose class runs the steps on Transformers' modules: its own Trainer, or a script; or one of TRL's.
enum class Trainer : std::uint8_t { transformers, trl };
// What PPO learns to expect of an answer with: a second model of the policy's shape, with one output a token in the
// place of the vocabulary. It is trained whole, or by adapters like the policy's.
enum class ValueModel : std::uint8_t { full, adapters };
// What judges the answers: a frozen third model of that shape, or something that takes no memory of this GPU (a
// function, a service).
enum class RewardModel : std::uint8_t { model, external };
// What PEFT trains beside the adapters, as a copy of its own (modules_to_save).
enum class SavedModule : std::uint8_t { embedding, head };

// Frameworks built on the Transformers Trainer and PEFT.
[[nodiscard]] constexpr bool has_trainer(FrameworkId f) {
  return f == FrameworkId::transformers || f == FrameworkId::liger || f == FrameworkId::unsloth ||
         f == FrameworkId::deepspeed;
}

// The kinds of parallelism that a framework has beside data parallelism, and the stages of ZeRO (a bit each).
struct Parallelism {
  bool tensor = false, pipeline = false, context = false, expert = false;
  unsigned stages = 0b1111;
  bool interleaved = false;
};
[[nodiscard]] constexpr Parallelism parallelism_of(FrameworkId f) {
  if (f == FrameworkId::megatron) return {true, true, true, true, 0b0011, true};
  if (f == FrameworkId::torchtitan) return {true, true, true, true, 0b1101, true};
  if (f == FrameworkId::scaling) return {true, true, false, false, 0b0011};
  return {};
}

// Whether FSDP is of its second generation where the layout does not say: Accelerate's and Fabric's are of the first
// (accelerate/utils/dataclasses.py, fsdp_version), torchtune and torchtitan call fully_shard.
[[nodiscard]] constexpr bool uses_fully_shard(FrameworkId f) {
  return f == FrameworkId::torchtune || f == FrameworkId::torchtitan;
}

// Whether a framework recomputes a part of each layer: torchtitan's policy names operations, Megatron modules.
[[nodiscard]] constexpr bool recomputes_selectively(FrameworkId f) {
  return f == FrameworkId::torchtitan || f == FrameworkId::megatron;
}

// Names, in order of the enumerators; used by the reader, the report and `catalogue()`.
template <class Enum>
struct EnumNames;  // specialised in enum_names.hpp

struct OptimizerChoice {
  OptimizerName name = OptimizerName::adamw;
  std::optional<StateFormat> states;
  bool paged = false;
  std::optional<bool> foreach;
  std::optional<bool> fused;  // without foreach: one kernel for all (the default), or a loop over the tensors
  bool in_backward = false;
  bool momentum = false;             // of SGD
  bool master_weights = false;       // an FP32 copy of trained 16-bit weights
  std::optional<std::int64_t> rank;  // of GaLore and APOLLO
};

// transformers/trainer_optimizer.py, _get_galore_optimizer and _get_apollo_optimizer.
inline constexpr std::int64_t kDefaultOptimizerRank = 128;

struct LoraChoice {
  std::int64_t rank = 16;
  std::vector<std::string> targets = {"all-linear"};  // all-linear, or names of modules (parameters.hpp)
  std::optional<double> dropout;                      // absent: the framework's default
  std::vector<SavedModule> modules_to_save;
  bool rslora = false;  // another scale of the update: no bytes
};

// The answers that a policy writes within a step. PPO's default length is another (ppo_config.py, response_length).
inline constexpr std::int64_t kPpoCompletionLength = 53;
struct GenerationChoice {
  std::int64_t completion_length = 256;     // tokens; trl/trainer/grpo_config.py, max_completion_length
  double engine_share = 0;                  // of the card, reserved by an inference engine beside training; 0: none
  std::optional<std::int64_t> generations;  // answers to one prompt
};

// How the tokens of a mixture of experts come to its ranks.
struct MoeChoice {
  double imbalance = 1;                     // rows of the busiest rank, of the average
  std::optional<double> capacity_factor{};  // each expert takes so many times its fair share, padded; absent: all rows
};

struct OffloadChoice {
  bool optimizer = false;
  bool parameters = false;
  bool activations = false;
};

// Of a framework: what it keeps in memory changes from release to release.
struct Version {
  std::int32_t major = 0;
  std::int32_t minor = 0;
  friend constexpr auto operator<=>(const Version&, const Version&) = default;
};

struct TrainingChoice {
  Objective objective = Objective::sft;
  Method method = Method::lora;
  FrameworkId framework = FrameworkId::transformers;
  std::optional<Version> framework_version;  // absent: the newest that the planner knows
  std::optional<Trainer> trainer;            // of Transformers and Liger; TRL is of the time of that release
  Precision precision = Precision::bf16_amp;
  std::optional<WeightFormat> base_weights;
  OptimizerChoice optimizer;
  bool ema = false;  // a moving average of the trained weights beside them
  LoraChoice lora;
  std::int64_t sequence_length = 2048;
  std::int64_t micro_batch = 1;
  std::optional<std::int64_t> global_batch;
  bool packing = true;
  Recompute recompute = Recompute::full;
  std::vector<RecomputeModule> recompute_modules;  // with selective recompute; empty: as the framework does
  AttentionKernel attention = AttentionKernel::sdpa;
  std::optional<CrossEntropy> cross_entropy;
  std::optional<bool> logits_upcast;  // the loss raises full logits to FP32; absent: as the framework does
  std::optional<Kernels> kernels;
  std::optional<Recurrence> recurrence;  // of Transformers' recurrent layers
  std::optional<bool> kbit_upcast;
  bool compile = false;
  std::optional<std::int64_t> trainable_layers;
  bool fp8_parameters = false;  // matrices are held in FP8 alone
  std::optional<bool>
      fp32_gradients;  // gradients of 16-bit weights are added up in FP32; absent: as the framework does
  MoeChoice moe;
  OffloadChoice offload;
  std::optional<Reference> reference;          // absent after resolve_defaults: the objective compares with none
  std::optional<ValueModel> value_model;       // of PPO; absent: adapters on a quantized model, else full
  std::optional<RewardModel> reward_model;     // of PPO (absent: model) and GRPO (absent: external)
  std::optional<GenerationChoice> generation;  // present after resolve_defaults where the objective generates
  std::optional<double> tokens;
  std::int64_t mtp_layers = 0;  // modules that predict further tokens (multi-token prediction)
};

// Modules are named for selective recomputation alone.
inline void set_recompute(TrainingChoice& training, Recompute recompute) {
  training.recompute = recompute;
  if (recompute != Recompute::selective) training.recompute_modules.clear();
}

// The release of Transformers, where none is named: today's; with fused kernels patched in, the one that
// fms-acceleration, whose kernels they are, was published with (scripts/benchmarks/refs/requirements_liger.txt).
[[nodiscard]] constexpr bool patches_kernels(const TrainingChoice& t) {
  return t.framework == FrameworkId::transformers && t.kernels == Kernels::fused;
}
[[nodiscard]] constexpr Version release_of(const TrainingChoice& t) {
  constexpr Version kToday{5, 24};
  constexpr Version kFusedKernels{4, 45};
  return t.framework_version.value_or(patches_kernels(t) ? kFusedKernels : kToday);
}
// Those kernels fuse the adapters of a base in 4 bits (fms_acceleration_foak/framework_plugin_fast_quantized_peft.py).
[[nodiscard]] constexpr bool fuses_adapters_of_quantized(const TrainingChoice& t) {
  return patches_kernels(t) && t.base_weights && is_quantized(*t.base_weights) && *t.base_weights != WeightFormat::int8;
}

[[nodiscard]] constexpr bool is_bitsandbytes(std::optional<WeightFormat> base) {
  return base && is_quantized(*base) && *base != WeightFormat::int4_gptq;
}
// TRL prepared a quantized base itself, as PEFT does, and lowered embedding and head again where the run was in BF16
// (trl/trainer/utils.py, peft_module_casting_to_bf16); since 0.26, which came between Transformers 4.57 and 5.0, it
// leaves the base alone and lowers the adapters instead (trl/trainer/sft_trainer.py).
[[nodiscard]] constexpr bool trl_prepares(const TrainingChoice& t) {
  constexpr Version kPreparesNoMore{5, 0};
  return t.trainer == Trainer::trl && release_of(t) < kPreparesNoMore;
}
// PEFT raises 16-bit adapters to FP32 since 0.12, which came with Transformers 4.43 (peft/tuners/tuners_utils.py,
// cast_adapter_dtype). Before, they took the type of the weight that they adapt; next to packed bytes they stayed as
// they were made, in FP32 (peft/tuners/lora/layer.py, update_layer).
[[nodiscard]] constexpr bool peft_raises_adapters(const TrainingChoice& t) {
  constexpr Version kRaises{4, 43};
  return release_of(t) >= kRaises;
}
[[nodiscard]] constexpr bool trl_lowers_adapters(const TrainingChoice& t) {
  return t.trainer == Trainer::trl && !trl_prepares(t) && is_bitsandbytes(t.base_weights);
}

[[nodiscard]] constexpr bool has_adapters(Method m) {
  return m == Method::lora || m == Method::dora || m == Method::qlora;
}
// A preferred and a refused answer are two sequences.
[[nodiscard]] constexpr std::int64_t sequences_per_sample(Objective o) {
  return o == Objective::dpo || o == Objective::reward ? 2 : 1;
}

struct ModelOverrides {
  std::optional<Dim> num_hidden_layers{}, hidden_size{}, intermediate_size{}, num_attention_heads{},
      num_key_value_heads{}, head_dim{}, vocab_size{}, num_experts{}, moe_intermediate_size{},
      max_position_embeddings{};
  std::optional<bool> tie_word_embeddings{};
  std::optional<bool> text_only{};  // leave the vision and audio towers out
};

struct ModelById {
  std::string id;
  ModelOverrides overrides;
};
struct ModelBySize {
  Params parameters;
};
struct ModelByConfig {  // a config.json, already read into our shape by core/json
  ModelArchitecture architecture;
  std::string model_type;
};
using ModelChoice = std::variant<ModelById, ModelBySize, ModelByConfig>;

struct HardwareChoice {
  std::string gpu;
  std::int64_t count = 1;
  std::optional<std::int64_t> per_node;
};

struct LayoutChoice {
  std::int64_t dp = 1, zero = 0, tp = 1, pp = 1, vpp = 1, cp = 1, ep = 1;
  std::optional<std::int64_t> etp;  // ranks that cut each expert; absent: tp, and 1 where experts are dealt out
  bool sp = false;
  // Ranks that share the vocabulary share the loss; else each gathers all logits, and computes it whole.
  bool loss_parallel = true;
  std::optional<std::int64_t> shard;  // ranks that share weights and states; absent: all that see other data (dp x cp)
  // How fully sharded data parallelism runs; absent: as the framework does (sharding.hpp).
  std::optional<std::int64_t> fsdp;            // 1: FullyShardedDataParallel, 2: fully_shard
  std::optional<bool> reshard;                 // a unit's weights go again after its forward
  std::optional<bool> no_sync;                 // gradients stay whole until the last pass of an accumulation
  std::optional<ContextExchange> cp_exchange;  // absent: all_to_all where cp divides the heads
  // Layers of the first and of the last stage of a pipeline; absent: as many as each of the others.
  std::optional<std::int64_t> first_stage_layers{}, last_stage_layers{};
};

// Who uses the model afterwards.
struct ServingChoice {
  std::optional<std::int64_t> context;  // tokens; absent: the sequence length of training
  std::int64_t users = 1;               // at the same time
};

struct PlanRequest {
  ModelChoice model;
  TrainingChoice training;
  std::optional<HardwareChoice> hardware;
  std::optional<LayoutChoice> layout;
  std::optional<ServingChoice> serving;  // present after resolve_defaults
};

// What is wrong with a request whose fields are each in order: combinations that contradict themselves
// (method_mismatch, layout_mismatch, inconsistent, missing_field) and values that the planner does not model yet
// (not_supported; one table in request.cpp decides). Absent optional fields are never a problem.
[[nodiscard]] Problems check_request(const PlanRequest& request);

// The same request with the fields filled in that follow from others: base_weights, optimizer.states, kbit_upcast,
// cross_entropy, kernels.
// What the visitor gave stays. `foreach` stays absent too: its default belongs to the framework.
[[nodiscard]] PlanRequest resolve_defaults(PlanRequest request);

[[nodiscard]] constexpr bool trains_all_weights(Method method) {
  return method == Method::full || method == Method::galore || method == Method::lomo;
}
// All weights take a gradient in each step. BAdam trains one layer at a time.
[[nodiscard]] constexpr bool trains_everything(const TrainingChoice& t) {
  return trains_all_weights(t.method) && t.optimizer.name != OptimizerName::badam;
}
[[nodiscard]] constexpr bool is_low_rank(OptimizerName name) {
  return name == OptimizerName::galore || name == OptimizerName::apollo;
}
// LOMO is nothing but an update in the middle of backward; others can be made to work that way.
[[nodiscard]] constexpr bool updates_in_backward(const OptimizerChoice& optimizer) {
  return optimizer.in_backward || optimizer.name == OptimizerName::lomo || optimizer.name == OptimizerName::adalomo;
}

// PPO's own training of its value model: like a reward model's, in the types and with the optimizer of the policy.
// `training` is resolved.
[[nodiscard]] TrainingChoice value_model_training(const TrainingChoice& training);

// The ranks that hold one copy of the model each see their own data: dp; all of them together: dp * tp * pp * cp.
[[nodiscard]] constexpr std::int64_t ranks_of(const LayoutChoice& layout) {
  return saturating_multiply(saturating_multiply(layout.dp, layout.tp), saturating_multiply(layout.pp, layout.cp));
}

// The ranks that hold the same part of the model: those of context parallelism see tokens of their own too.
[[nodiscard]] constexpr std::int64_t data_ranks(const LayoutChoice& layout) {
  return saturating_multiply(layout.dp, layout.cp);
}

// FSDP's first generation makes one flat tensor of the weights of a unit, and takes no integers
// (torch/distributed/fsdp/_flat_param.py, _validate_tensors_to_flatten): none of bitsandbytes' 8-bit weights, where a
// framework has them. 4-bit ones are stored as floats for its sake (bnb_4bit_quant_storage).
[[nodiscard]] constexpr bool flattens_integers(const TrainingChoice& t, const LayoutChoice& layout) {
  const bool has_int8 = t.framework == FrameworkId::transformers || t.framework == FrameworkId::liger ||
                        t.framework == FrameworkId::litgpt;
  return has_int8 && t.base_weights == WeightFormat::int8 && layout.fsdp != 2 && layout.zero >= 2 &&
         data_ranks(layout) > 1;
}

[[nodiscard]] constexpr std::int64_t expert_tensor_ranks(const LayoutChoice& layout) {
  return layout.etp.value_or(layout.ep > 1 ? 1 : layout.tp);
}
// Whether other ranks share the experts than share the rest.
[[nodiscard]] constexpr bool deals_experts(const LayoutChoice& layout) {
  return saturating_multiply(layout.ep, expert_tensor_ranks(layout)) != layout.tp;
}
// The ranks that hold the same experts: the ranks of a stage are cut another way for them.
[[nodiscard]] constexpr std::int64_t expert_data_ranks(const LayoutChoice& layout) {
  const std::int64_t stage = saturating_multiply(data_ranks(layout), layout.tp);
  const std::int64_t apart = saturating_multiply(layout.ep, expert_tensor_ranks(layout));
  return stage < apart ? 1 : stage / apart;
}

// Limits of the numbers in a request; catalogue() shows the same ones to the page.
struct IntegerRange {
  std::int64_t minimum = 0;
  std::int64_t maximum = 0;
};
struct NumberRange {
  double minimum = 0;
  double maximum = std::numeric_limits<double>::max();
};
namespace limits {
inline constexpr IntegerRange kSequenceLength{1, 16'777'216};
inline constexpr IntegerRange kMicroBatch{1, 65'536};
inline constexpr IntegerRange kGlobalBatch{1, 16'777'216};
inline constexpr IntegerRange kLoraRank{1, 65'536};
inline constexpr IntegerRange kMtpLayers{0, 4};
inline constexpr IntegerRange kOptimizerRank{1, 65'536};
inline constexpr IntegerRange kGenerations{1, 65'536};
inline constexpr NumberRange kImbalance{1.0, 1'000.0};
inline constexpr NumberRange kCapacityFactor{0.01, 1'000.0};
inline constexpr IntegerRange kFsdpVersion{1, 2};
inline constexpr IntegerRange kUsers{1, 1'000'000};
inline constexpr IntegerRange kGpuCount{1, 131'072};
inline constexpr IntegerRange kParameters{1'000'000, 100'000'000'000'000};
inline constexpr IntegerRange kLayers{1, 10'000};
inline constexpr IntegerRange kWidth{1, 1'048'576};  // hidden, intermediate, head sizes
inline constexpr IntegerRange kHeads{1, 65'536};
inline constexpr IntegerRange kVocabulary{1, 16'777'216};
inline constexpr IntegerRange kExperts{1, 65'536};
}  // namespace limits

}  // namespace vramplan
