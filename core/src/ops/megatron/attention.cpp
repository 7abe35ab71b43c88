// Self-attention (megatron/core/transformer/attention.py) and latent attention (multi_latent_attention.py).
#include "modules.hpp"

namespace vramplan::ops::megatron {
namespace {

constexpr Component kAttention = Component::activations_attention;

// One projection gives queries, keys and values, group by group: queries of several groups have to be copied out of it,
// those of one group are a view (get_query_key_value_tensors). TransformerEngine's norm and rotation make new tensors;
// attention copies what is still a view, values always (dot_product_attention/utils.py, get_qkv_layout).
struct Projected {
  TensorId all, q, k, v;
};
Projected project(Graph& g, const BlockContext& c, TensorId x, const Attention& a) {
  const TensorId qkv =
      norm_linear(g, c, x, {.module = Module::qkv, .in = {Symbol::h}, .out = {Symbol::qkv}, .bias = a.qkv_bias});
  const auto part = [&](Symbol symbol) { return token_size({symbol}, g.at(qkv).size.type); };
  const auto [q, k, v] = g.split(qkv, part(Symbol::q), part(Symbol::kv), part(Symbol::v));
  return {qkv, a.kv_heads > 1 && a.heads > a.kv_heads ? copy(g, q) : q, k, v};
}

bool is_view(const Graph& g, TensorId x) { return g.at(x).base != kNoTensor; }
TensorId whole(Graph& g, TensorId x) { return is_view(g, x) ? copy(g, x) : x; }

// TransformerEngine's norm copies what is no whole tensor, and keeps the copy.
TensorId head_norm(Graph& g, const BlockContext& c, TensorId x, const Attention& a, Symbol heads) {
  if (a.qk_norm == QkNorm::none) return x;
  return norm(g, c, whole(g, x), a.qk_norm == QkNorm::head ? heads : Symbol::one);
}

// The rotation keeps nothing of its input.
TensorId rotated(Graph& g, const BlockContext& c, TensorId x, const Attention& a) {
  return a.rotary && c.model->position == PositionType::rope ? copy(g, x) : whole(g, x);
}

// The gate is a part of the projection, copied out of it; gate and product are one compiled function
// (attention.py, _apply_output_gate).
TensorId gate_output(Graph& g, TensorId qkv, TensorId out, OutputGate kind) {
  if (kind != OutputGate::doubled_query) return out;
  const Size size = g.at(out).size;
  const TensorId gate = copy(g, g.view(qkv, size));
  return g.apply({out, gate}, size, kAttention, {.saves = {out, gate}});
}

}  // namespace

TensorId self_attention(Graph& g, const BlockContext& c, TensorId stream, const Attention& a) {
  const Projected p = project(g, c, stream, a);
  const TensorId q = rotated(g, c, head_norm(g, c, p.q, a, Symbol::a), a);
  const TensorId k = rotated(g, c, head_norm(g, c, p.k, a, Symbol::ak), a);
  const TensorId v = whole(g, p.v);
  Again again(g);
  const TensorId out = core_attention(g, c, {q, k, v, {Symbol::av}, a.kv_heads < a.heads, a.softcap});
  again.stop(g);
  const TensorId gated = gate_output(g, p.all, out, a.output_gate);
  const TensorId answer =
      row_linear(g, c, gated, {.module = Module::o, .in = {Symbol::av}, .out = {Symbol::h}, .bias = a.o_bias});
  if (c.recomputes(RecomputeModule::core_attn)) again.checkpoint(g);
  g.hold({p.all});  // the name of the values keeps the whole projection while the module runs
  return answer;
}

namespace {

TensorId latent_queries(Graph& g, const BlockContext& c, TensorId normed, const LatentAttention& a) {
  if (a.q_lora_rank == 0)
    return column_linear(g, c, normed, {.module = Module::q, .in = {Symbol::h}, .out = {Symbol::q}});
  const TensorId down =
      duplicated_linear(g, c, normed, {.module = Module::q_a, .in = {Symbol::h}, .out = {Symbol::cq}});
  return norm_linear(g, c, down, {.module = Module::q_b, .in = {Symbol::cq}, .out = {Symbol::q}});
}

}  // namespace

// The rotation writes over the queries; that of keys and values makes both as tensors of their own
// (megatron/core/fusions/fused_mla_yarn_rope_apply.py).
TensorId latent_attention(Graph& g, const BlockContext& c, TensorId stream, const LatentAttention& a) {
  Again norm_again(g);
  const TensorId normed = norm(g, c, stream);
  norm_again.stop(g);
  const TensorId latent =
      duplicated_linear(g, c, normed, {.module = Module::kv_a, .in = {Symbol::h}, .out = {Symbol::c}});
  Again up_again(g);
  const TensorId q = latent_queries(g, c, normed, a);
  const TensorId kv = norm_linear(g, c, latent, {.module = Module::kv_b, .in = {Symbol::c}, .out = {Symbol::kv}});
  const TensorId k = g.tensor(token_size({Symbol::q}, g.at(kv).size.type), kAttention, g.at(kv).requires_grad);
  const TensorId v = g.tensor(token_size({Symbol::av}, g.at(kv).size.type), kAttention, g.at(kv).requires_grad);
  g.run({kv}, {k, v}, {});
  up_again.stop(g);
  Again again(g);
  const TensorId out = core_attention(g, c, {q, k, v, {Symbol::av}, false, 0});
  again.stop(g);
  if (c.recomputes(RecomputeModule::mla_up_proj)) up_again.drop_output(g);
  const TensorId answer =
      row_linear(g, c, out, {.module = Module::o, .in = {Symbol::av}, .out = {Symbol::h}, .bias = a.o_bias});
  if (c.recomputes(RecomputeModule::core_attn)) again.checkpoint(g);
  if (c.recomputes(RecomputeModule::layernorm)) norm_again.drop_output(g);
  return answer;
}

}  // namespace vramplan::ops::megatron
