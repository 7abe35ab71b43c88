// Pieces from which the blocks are put together. Each function appends operations to a graph and answers the tensor
// that they make.
#pragma once

#include "vramplan/ops.hpp"

namespace vramplan::ops {

// One side of a weight: a symbol, times a constant (fused gate and up: 2 x f).
struct Width {
  Symbol symbol = Symbol::one;
  std::int32_t multiplier = 1;
};

// A weight matrix applied to every token (or to every token x expert).
struct Linear {
  Module module = Module::other;
  Width in, out;
  Symbol per_token = Symbol::one;  // t: each token meets t experts
  Symbol copies = Symbol::one;     // E: one matrix an expert
  Symbol tokens = Symbol::s;       // sc: one chunk of the loss
  bool bias = false;
  bool quantizable = true;
  bool outside_linear = false;  // a parameter that no nn.Linear holds: autocast does not cast it
  // An adapter here is added to the weight (FrameworkSwitches::merges_expert_adapters), with this many times the rank.
  std::int32_t merged_ranks = 0;
  bool leftover = false;  // outside the blocks: never quantized, of the leftovers' type
  Component component = Component::activations_attention;
};

// A chunk of the loss takes tokens of the whole batch; everything else is so many tokens a sequence.
[[nodiscard]] constexpr Size token_size(Width width, ElementType type, Symbol per_token = Symbol::one,
                                        Symbol tokens = Symbol::s) {
  const Symbol sequences = tokens == Symbol::sc ? Symbol::one : Symbol::b;
  return Size{{sequences, tokens, per_token, width.symbol}, width.multiplier, type};
}

// The residual stream: what each rank of tensor parallelism has of it.
[[nodiscard]] constexpr Width stream_of(const BlockContext& c) {
  return {c.sequence_parallel ? Symbol::hp : Symbol::h};
}

// parallel.cpp: the stream on its way into matrices that ranks share, and what comes out of them.
[[nodiscard]] TensorId enter_matrices(Graph& g, const BlockContext& c, TensorId x);
[[nodiscard]] TensorId leave_matrices(Graph& g, const BlockContext& c, TensorId x);
[[nodiscard]] TensorId gather_logits(Graph& g, const BlockContext& c, TensorId logits);

// primitives.cpp
[[nodiscard]] TensorId cast(Graph& g, TensorId x, ElementType type, Component component);
[[nodiscard]] TensorId add(Graph& g, TensorId x, TensorId y);  // saves nothing
[[nodiscard]] TensorId multiply(Graph& g, TensorId x, TensorId y,
                                Component component);                       // saves what the other's gradient needs
[[nodiscard]] TensorId scale(Graph& g, TensorId x);                         // by a number: saves nothing
[[nodiscard]] TensorId copy(Graph& g, TensorId x);                          // contiguous(), clone(): saves nothing
[[nodiscard]] TensorId unary(Graph& g, TensorId x, Component component);    // saves its input
[[nodiscard]] TensorId dropout(Graph& g, TensorId x, Component component);  // keeps a mask of one byte an element
[[nodiscard]] TensorId activation(Graph& g, const BlockContext& c, TensorId x, Activation kind, Component component);
[[nodiscard]] TensorId linear(Graph& g, const BlockContext& c, TensorId x, const Linear& w);
[[nodiscard]] TensorId autocast_copy(Graph& g, const BlockContext& c, const Size& weight, bool trains);
[[nodiscard]] Polynomial matrix_flops(Graph& g, const Linear& w);
void add_parameter_gradient(const Graph& g, const BlockContext& c, const Size& parameter, OpTraits& traits);

// A trained weight whose gradients autograd adds up before they are the parameter's, or are `added` to what is there.
// The gradient that a linear layer makes is a view, turned over, which autograd does not add to: its sum with the next
// one is a new tensor beside both (torch/csrc/autograd/input_buffer.cpp, can_accumulate_inplace).
[[nodiscard]] TensorId trained_weight(Graph& g, const Size& size, bool added, const Workspace& sum = {});

// The gate's activation times up: one kernel where the framework has one for it.
[[nodiscard]] bool has_gated_kernel(const BlockContext& c, Activation kind);
[[nodiscard]] TensorId gated_kernel(Graph& g, TensorId gate, TensorId up, Component component);

// fused_adapter.cpp: adapted linear layers as one autograd function each.
[[nodiscard]] bool fuses(const BlockContext& c, std::initializer_list<Linear> layers);
[[nodiscard]] std::array<TensorId, 3> fused_qkv(Graph& g, const BlockContext& c, TensorId x,
                                                const std::array<Linear, 3>& qkv);
[[nodiscard]] TensorId fused_gated_mlp(Graph& g, const BlockContext& c, TensorId x, const Linear& gate,
                                       const Linear& up, const Linear& down);
[[nodiscard]] TensorId fused_output(Graph& g, const BlockContext& c, TensorId x, const Linear& w);

// adapter.cpp: what an adapter adds to `base`, the output of its linear layer.
[[nodiscard]] TensorId adapter(Graph& g, const BlockContext& c, TensorId x, TensorId base, const Linear& w);
// One linear for q, k and v with the adapters of each (litgpt's LoRAQKVLinear).
[[nodiscard]] TensorId fused_qkv(Graph& g, const BlockContext& c, TensorId x, bool bias);
// x times the sum of the weight and its update.
[[nodiscard]] TensorId merged_linear(Graph& g, const BlockContext& c, TensorId x, const Linear& w);

// norm.cpp: over a width, or over each of `rows` parts of it (a norm per head).
[[nodiscard]] TensorId norm(Graph& g, const BlockContext& c, TensorId x, Width width, Symbol rows = Symbol::one);

// mixer.cpp: one mixer on the normed stream.
[[nodiscard]] TensorId mix(Graph& g, const BlockContext& c, TensorId x, const Mixer& mixer);
// attention.cpp, latent_attention.cpp; the recurrent ones are in recurrent.hpp.
[[nodiscard]] TensorId attention(Graph& g, const BlockContext& c, TensorId x, const Attention& a);
[[nodiscard]] TensorId latent_attention(Graph& g, const BlockContext& c, TensorId x, const LatentAttention& a);
[[nodiscard]] TensorId compressed_attention(Graph& g, const BlockContext& c, TensorId x, const CompressedAttention& a);
// The kernel in the middle of every attention: q [b, s, heads x qk], k, v -> [b, s, heads x v].
struct Heads {
  TensorId q, k, v;
  Width out;
  bool grouped = false;  // fewer KV heads than query heads
  double softcap = 0;
  bool softmax_in_type = false;
  bool sinks = false;
  bool masked = false;  // SDPA takes a mask
};
[[nodiscard]] TensorId attention_kernel(Graph& g, const BlockContext& c, Heads heads);

// mlp.cpp, moe.cpp
[[nodiscard]] TensorId dense_mlp(Graph& g, const BlockContext& c, TensorId x, const DenseMlp& mlp);
[[nodiscard]] TensorId moe_mlp(Graph& g, const BlockContext& c, TensorId x, const MoeMlp& mlp);

}  // namespace vramplan::ops
