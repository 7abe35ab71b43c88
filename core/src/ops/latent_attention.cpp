// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434) in its training form: keys and values are expanded to all
// heads. DeepSeek-V4's compressed attention is walked with the same kernel over its shared key-value head.
#include "builders.hpp"

namespace vramplan::ops {
namespace {

constexpr Component kAttention = Component::activations_attention;

TensorId queries(Graph& g, const BlockContext& c, TensorId x, bool low_rank, bool bias) {
  if (!low_rank) return linear(g, c, x, {.module = Module::q, .in = {Symbol::h}, .out = {Symbol::q}});
  const TensorId down = linear(g, c, x, {.module = Module::q_a, .in = {Symbol::h}, .out = {Symbol::cq}, .bias = bias});
  const TensorId normed = norm(g, c, down, {Symbol::cq});
  return linear(g, c, normed, {.module = Module::q_b, .in = {Symbol::cq}, .out = {Symbol::q}});
}

}  // namespace

TensorId latent_attention(Graph& g, const BlockContext& c, TensorId x, const LatentAttention& a) {
  const TensorId q = queries(g, c, x, a.q_lora_rank > 0, a.qkv_bias);
  const TensorId compressed =
      linear(g, c, x, {.module = Module::kv_a, .in = {Symbol::h}, .out = {Symbol::c}, .bias = a.qkv_bias});
  const TensorId normed = norm(g, c, compressed, {Symbol::c});
  const TensorId expanded = linear(g, c, normed, {.module = Module::kv_b, .in = {Symbol::c}, .out = {Symbol::kv}});
  // Query and key are assembled from a part with and a part without rotary positions: a copy of each.
  const TensorId q_states = copy(g, q);
  const TensorId k_states = g.apply({expanded}, token_size({Symbol::q}, g.at(expanded).size.type), kAttention);
  const TensorId out = attention_kernel(g, c, {q_states, k_states, expanded, {Symbol::av}, false, 0});
  const TensorId gated =
      a.output_gate
          ? multiply(g, out, linear(g, c, x, {.module = Module::output_gate, .in = {Symbol::h}, .out = {Symbol::av}}),
                     kAttention)
          : out;
  return linear(g, c, gated, {.module = Module::o, .in = {Symbol::av}, .out = {Symbol::h}, .bias = a.o_bias});
}

TensorId compressed_attention(Graph& g, const BlockContext& c, TensorId x, const CompressedAttention& a) {
  const TensorId q = queries(g, c, x, a.q_lora_rank > 0, false);
  const TensorId kv = linear(g, c, x, {.module = Module::kv_a, .in = {Symbol::h}, .out = {Symbol::kv}});
  const TensorId normed = norm(g, c, kv, {Symbol::kv});
  const TensorId out = attention_kernel(g, c, {q, normed, normed, {Symbol::av}, true, 0});
  const TensorId grouped = linear(g, c, out, {.module = Module::o, .in = {Symbol::av}, .out = {Symbol::c}});
  return linear(g, c, grouped, {.module = Module::o, .in = {Symbol::c}, .out = {Symbol::h}});
}

}  // namespace vramplan::ops
