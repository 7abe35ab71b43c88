// What the recurrent layers share: chunk lengths that their kernels fix, a causal convolution, and a gated norm.
#pragma once

#include "builders.hpp"

namespace vramplan::ops {

// fla/ops/gated_delta_rule/chunk.py and fla/ops/kda/chunk.py; Transformers' own code has the same default.
inline constexpr Dim kDeltaRuleChunk = 64;
// transformers/models/minimax/configuration_minimax.py, block_size.
inline constexpr Dim kLightningBlock = 256;
// csrc/selective_scan/selective_scan.cpp of mamba_ssm: the state is written once every 2,048 tokens.
inline constexpr Dim kSelectiveScanChunk = 2048;

inline constexpr Component kRecurrent = Component::activations_ssm;

// The tensors of a chunked scan: per chunk, `per_chunk` times a width.
[[nodiscard]] constexpr Size chunked(Symbol width, Dim per_chunk, ElementType type = ElementType::fp32) {
  return Size{{Symbol::b, Symbol::nc, width, Symbol::one}, static_cast<std::int32_t>(per_chunk), type};
}
[[nodiscard]] constexpr Size every_token(Symbol width, ElementType type = ElementType::fp32) {
  return token_size({width}, type);
}

// A tensor that one operation makes of others and that is kept for backward with its inputs, as a product keeps both.
[[nodiscard]] TensorId product(Graph& g, TensorId x, TensorId y, Size made);
// One whose derivative needs the result itself: exp, sigmoid, rsqrt.
[[nodiscard]] TensorId keeps_result(Graph& g, TensorId x, Size made);

// exp(A), which is kept where A is trained, and -exp(A), which its product keeps: a value a head.
[[nodiscard]] constexpr Size decay_rates(const BlockContext& c) {
  return Size{{Symbol::d, Symbol::one, Symbol::one, Symbol::one}, c.trains_base ? 2 : 1, ElementType::fp32};
}

struct Convolution {
  Symbol channels = Symbol::x;
  Dim taps = 0;
  bool activates = false;  // SiLU on the output
};
struct Convolved {
  TensorId out = kNoTensor;
  TensorId margin = kNoTensor;  // what the output's storage has beyond the length, if somebody keeps that
};
[[nodiscard]] Convolved causal_convolution(Graph& g, const BlockContext& c, TensorId x, const Convolution& w);

// weight * rms_norm(x) * silu(gate) in FP32 over each of `rows` parts of width i, or rms_norm(x * silu(gate)).
enum class GateOrder : std::uint8_t { after_norm, before_norm };
[[nodiscard]] TensorId gated_norm(Graph& g, const BlockContext& c, TensorId x, TensorId gate, Symbol rows,
                                  GateOrder order);

[[nodiscard]] TensorId short_convolution(Graph& g, const BlockContext& c, TensorId x, const ShortConvolution& m);
[[nodiscard]] TensorId gated_delta_net(Graph& g, const BlockContext& c, TensorId x, const GatedDeltaNet& m);
[[nodiscard]] TensorId kimi_delta_attention(Graph& g, const BlockContext& c, TensorId x, const KimiDeltaAttention& m);
[[nodiscard]] TensorId lightning_attention(Graph& g, const BlockContext& c, TensorId x, const LightningAttention& m);
[[nodiscard]] TensorId mamba1(Graph& g, const BlockContext& c, TensorId x, const Mamba1& m);
[[nodiscard]] TensorId mamba2(Graph& g, const BlockContext& c, TensorId x, const Mamba2& m);

}  // namespace vramplan::ops
