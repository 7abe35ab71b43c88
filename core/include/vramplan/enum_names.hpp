// The names of every enumerator, spelled as in JSON, TypeScript and the translation keys, in the order of the
// enumerators. One table serves the reader, the report and `catalogue()`; a name that drifts from its enumerator fails
// a test.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "vramplan/catalogue.hpp"
#include "vramplan/component.hpp"
#include "vramplan/element_type.hpp"
#include "vramplan/model.hpp"
#include "vramplan/parameters.hpp"
#include "vramplan/request.hpp"
#include "vramplan/result.hpp"

namespace vramplan {

template <std::size_t N>
using Names = std::array<std::string_view, N>;

// result.hpp
template <>
struct EnumNames<ProblemCode> {
  static constexpr Names<24> values = {"invalid_json",    "too_large_input",       "too_deep",        "invalid_utf8",
                                       "missing_field",   "unknown_field",         "duplicate_field", "wrong_type",
                                       "not_an_integer",  "out_of_range",          "unknown_value",   "unknown_model",
                                       "unknown_gpu",     "unknown_system",        "not_a_config",    "unknown_dialect",
                                       "inconsistent",    "precision_unsupported", "not_supported",   "method_mismatch",
                                       "layout_mismatch", "illegal_layout",        "too_large",       "internal"};
};

// element_type.hpp
template <>
struct EnumNames<ElementType> {
  static constexpr Names<7> values = {"fp32", "bf16", "fp16", "fp8", "int8", "int64", "bool8"};
};
template <>
struct EnumNames<WeightFormat> {
  static constexpr Names<10> values = {"fp32",   "bf16", "fp16",      "int8", "nf4",
                                       "nf4_dq", "fp4",  "int4_gptq", "fp8",  "mxfp4"};
};

// component.hpp
template <>
struct EnumNames<Component> {
  static constexpr Names<kComponentCount> values = {"weights",
                                                    "frozen_weights",
                                                    "quantization_constants",
                                                    "adapters",
                                                    "buffers",
                                                    "gradients",
                                                    "master_weights",
                                                    "optimizer_states",
                                                    "cublas_workspace",
                                                    "autocast_weights",
                                                    "gathered_parameters",
                                                    "checkpoints",
                                                    "activations_embedding",
                                                    "activations_norm",
                                                    "activations_attention",
                                                    "activations_mlp",
                                                    "activations_moe",
                                                    "activations_ssm",
                                                    "activations_adapter",
                                                    "activations_residual",
                                                    "logits",
                                                    "activation_gradients",
                                                    "working_memory",
                                                    "dequantized_weights",
                                                    "optimizer_temporaries",
                                                    "communication_buffers",
                                                    "kv_cache",
                                                    "allocator_slack",
                                                    "cuda_context",
                                                    "nccl_buffers",
                                                    "inference_engine"};
};
template <>
struct EnumNames<Symbol> {
  static constexpr Names<kSymbolCount> values = {
      "1",  "b", "s",  "sk", "sc", "h",  "a",    "ak",  "q",    "kv",  "v",   "av",   "qkv", "c",
      "cq", "w", "f",  "fe", "fs", "m",  "E",    "t",   "V",    "r",   "i",   "j",    "x",   "n",
      "nc", "d", "dk", "k",  "ke", "se", "h_sp", "E_r", "s_sp", "s_x", "s_m", "r_tp", "h_tp"};
};

// model.hpp
template <>
struct EnumNames<NormPlacement> {
  static constexpr Names<3> values = {"pre", "post_branch", "sandwich"};
};
template <>
struct EnumNames<NormType> {
  static constexpr Names<2> values = {"rms", "layer"};
};
template <>
struct EnumNames<PositionType> {
  static constexpr Names<4> values = {"rope", "learned", "alibi", "none"};
};
template <>
struct EnumNames<Activation> {
  static constexpr Names<8> values = {"silu", "gelu",  "gelu_tanh", "gelu_new",
                                      "relu", "relu2", "xielu",     "clamped_swiglu"};
};
template <>
struct EnumNames<QkNorm> {
  static constexpr Names<3> values = {"none", "head", "full"};
};
template <>
struct EnumNames<OutputGate> {
  static constexpr Names<4> values = {"none", "doubled_query", "head", "channel"};
};

// catalogue.hpp
template <>
struct EnumNames<Confidence> {
  static constexpr Names<3> values = {"high", "medium", "low"};
};
template <>
struct EnumNames<FormFactor> {
  static constexpr Names<7> values = {"desktop", "workstation", "pcie", "nvl", "sxm", "oam", "superchip"};
};
template <>
struct EnumNames<Status> {
  static constexpr Names<3> values = {"shipping", "eol", "announced"};
};
template <>
struct EnumNames<SystemType> {
  static constexpr Names<7> values = {"workstation", "deskside", "pcie_server", "hgx", "oam", "superchip", "rack"};
};
template <>
struct EnumNames<UsableBasis> {
  static constexpr Names<5> values = {"driver_total", "process_total", "estimate", "nominal", "unknown"};
};
template <>
struct EnumNames<ScaleUpLink> {
  static constexpr Names<6> values = {"none", "nvlink", "infinity_fabric", "infinity_fabric_bridge", "roce", "ualink"};
};
template <>
struct EnumNames<TensorFormat> {
  static constexpr Names<5> values = {"fp32", "fp16", "bf16", "fp8", "fp4"};
};
template <>
struct EnumNames<SystemGroup> {
  static constexpr Names<4> values = {"workstation", "pcie_server", "hgx", "rack"};
};
template <>
struct EnumNames<Topology> {
  static constexpr Names<6> values = {"pcie", "pcie_switch", "nvlink", "nvswitch", "mesh", "superchip"};
};
template <>
struct EnumNames<Cooling> {
  static constexpr Names<3> values = {"air", "closed_loop_liquid", "direct_liquid"};
};
template <>
struct EnumNames<PowerBasis> {
  static constexpr Names<7> values = {"unknown",          "estimate",         "psu_rating", "redundant_psu_output",
                                      "platform_maximum", "reference_design", "third_party"};
};

// request.hpp
template <>
struct EnumNames<Objective> {
  static constexpr Names<6> values = {"pretrain", "sft", "dpo", "reward", "ppo", "grpo"};
};
template <>
struct EnumNames<Method> {
  static constexpr Names<7> values = {"full", "freeze", "lora", "dora", "qlora", "galore", "lomo"};
};
template <>
struct EnumNames<FrameworkId> {
  static constexpr Names<9> values = {"transformers", "liger",      "unsloth",  "torchtune", "litgpt",
                                      "deepspeed",    "torchtitan", "megatron", "scaling"};
};
template <>
struct EnumNames<Precision> {
  static constexpr Names<6> values = {"fp32", "bf16_amp", "fp16_amp", "bf16", "fp16", "fp8"};
};
template <>
struct EnumNames<OptimizerName> {
  static constexpr Names<12> values = {"adamw",  "sgd",    "adafactor", "lion",    "adam_mini", "muon",
                                       "galore", "apollo", "lomo",      "adalomo", "badam",     "came"};
};
template <>
struct EnumNames<StateFormat> {
  static constexpr Names<6> values = {"fp32", "bf16", "int8", "fp16", "int4", "factored"};
};
template <>
struct EnumNames<Recompute> {
  static constexpr Names<3> values = {"none", "selective", "full"};
};
template <>
struct EnumNames<AttentionKernel> {
  static constexpr Names<4> values = {"eager", "sdpa", "flash", "flex"};
};
template <>
struct EnumNames<CrossEntropy> {
  static constexpr Names<3> values = {"full_logits", "chunked", "fused"};
};
template <>
struct EnumNames<RecomputeModule> {
  static constexpr Names<7> values = {"core_attn", "mlp",       "moe",        "shared_experts",
                                      "moe_act",   "layernorm", "mla_up_proj"};
};
template <>
struct EnumNames<ContextExchange> {
  static constexpr Names<2> values = {"ring", "all_to_all"};
};
template <>
struct EnumNames<Kernels> {
  static constexpr Names<2> values = {"eager", "fused"};
};
template <>
struct EnumNames<Recurrence> {
  static constexpr Names<2> values = {"composite", "fused"};
};
template <>
struct EnumNames<Reference> {
  static constexpr Names<3> values = {"model", "adapters_off", "precomputed"};
};
template <>
struct EnumNames<Trainer> {
  static constexpr Names<2> values = {"transformers", "trl"};
};
template <>
struct EnumNames<ValueModel> {
  static constexpr Names<2> values = {"full", "adapters"};
};
template <>
struct EnumNames<RewardModel> {
  static constexpr Names<2> values = {"model", "external"};
};
template <>
struct EnumNames<SavedModule> {
  static constexpr Names<2> values = {"embedding", "head"};
};

// parameters.hpp
template <>
struct EnumNames<ParameterKind> {
  static constexpr Names<11> values = {"linear", "embedding", "head", "norm",   "bias", "router",
                                       "expert", "conv",      "ssm",  "scalar", "tower"};
};
template <>
struct EnumNames<Cut> {
  static constexpr Names<5> values = {"replicate", "column", "row", "vocabulary", "expert"};
};
template <>
struct EnumNames<Module> {
  static constexpr Names<35> values = {"embedding",   "position_embedding",
                                       "head",        "norm",
                                       "q",           "k",
                                       "v",           "o",
                                       "qkv",         "q_a",
                                       "q_b",         "kv_a",
                                       "kv_b",        "o_a",
                                       "gate",        "up",
                                       "down",        "gate_up",
                                       "shared_gate", "shared_up",
                                       "shared_down", "shared_expert_gate",
                                       "router",      "latent_in",
                                       "latent_out",  "in_proj",
                                       "out_proj",    "x_proj",
                                       "dt_proj",     "conv",
                                       "output_gate", "indexer",
                                       "compressor",  "other",
                                       "tower"};
};

template <class Enum>
concept NamedEnum = requires {
  EnumNames<Enum>::values.size();
};

// "" for a value outside the enumeration.
template <NamedEnum Enum>
[[nodiscard]] constexpr std::string_view name_of(Enum value) {
  const auto index = static_cast<std::size_t>(value);
  return index < EnumNames<Enum>::values.size() ? EnumNames<Enum>::values[index] : std::string_view{};
}

template <NamedEnum Enum>
[[nodiscard]] constexpr std::optional<Enum> parse_enum(std::string_view name) {
  for (std::size_t i = 0; i < EnumNames<Enum>::values.size(); ++i) {
    if (EnumNames<Enum>::values[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

// The last enumerator has the last name: a table that is one short, or in another order at its end, does not compile.
static_assert(name_of(ProblemCode::internal) == "internal");
static_assert(name_of(ElementType::bool8) == "bool8");
static_assert(name_of(WeightFormat::mxfp4) == "mxfp4");
static_assert(name_of(Component::inference_engine) == "inference_engine");
static_assert(name_of(Symbol::ke) == "ke");
static_assert(name_of(NormPlacement::sandwich) == "sandwich");
static_assert(name_of(Activation::xielu) == "xielu");
static_assert(name_of(OutputGate::channel) == "channel");
static_assert(name_of(SystemType::rack) == "rack");
static_assert(name_of(UsableBasis::unknown) == "unknown");
static_assert(name_of(ScaleUpLink::ualink) == "ualink");
static_assert(name_of(TensorFormat::fp4) == "fp4");
static_assert(name_of(SystemGroup::rack) == "rack");
static_assert(name_of(Topology::superchip) == "superchip");
static_assert(name_of(Cooling::direct_liquid) == "direct_liquid");
static_assert(name_of(PowerBasis::third_party) == "third_party");
static_assert(name_of(FrameworkId::scaling) == "scaling");
static_assert(name_of(Precision::fp8) == "fp8");
static_assert(name_of(OptimizerName::came) == "came");
static_assert(name_of(StateFormat::factored) == "factored");
static_assert(name_of(Recurrence::fused) == "fused");
static_assert(name_of(Reference::precomputed) == "precomputed");
static_assert(name_of(Trainer::trl) == "trl");
static_assert(name_of(ValueModel::adapters) == "adapters");
static_assert(name_of(RewardModel::external) == "external");
static_assert(name_of(SavedModule::head) == "head");
static_assert(name_of(ParameterKind::tower) == "tower");
static_assert(name_of(Cut::expert) == "expert");
static_assert(name_of(Module::tower) == "tower");

}  // namespace vramplan
