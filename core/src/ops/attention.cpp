// Softmax attention with grouped KV heads. Kernels: eager (scores in memory), scaled_dot_product_attention and
// FlashAttention-2 (Dao 2023, arXiv 2307.08691), which keep q, k, v, the output and one log-sum-exp a row.
#include "builders.hpp"

namespace vramplan::ops {
namespace {

constexpr Component kAttention = Component::activations_attention;

ElementType wider(ElementType a, ElementType b) { return bytes_per_element(a) >= bytes_per_element(b) ? a : b; }

bool is_view(const Graph& g, TensorId x) { return g.at(x).base != kNoTensor; }

// One function for queries and keys, whose arguments live until it returns (transformers, apply_rotary_pos_emb;
// torchtitan, apply_rotary_emb); others are called for each.
bool rotates_together(const BlockContext& c) {
  return c.framework.rotary == RotaryKernel::composite || c.framework.rotary == RotaryKernel::composite_complex;
}

// x * cos + rotate_half(x) * sin. The tables have the type of the residual stream and are shared by all layers.
TensorId rotary(Graph& g, const BlockContext& c, TensorId x, Dim head_dim) {
  const Size size = g.at(x).size;
  if (c.framework.rotary == RotaryKernel::composite_complex) {
    const TensorId raised = cast(g, x, ElementType::fp32, kAttention);
    const TensorId lowered = cast(g, scale(g, raised), size.type, kAttention);
    g.hold({x, raised});
    return lowered;
  }
  // In place, on a tensor of its own (liger_kernel/ops/rope.py, rope_forward: contiguous).
  if (c.framework.rotary == RotaryKernel::fused) return is_view(g, x) ? copy(g, x) : x;
  if (c.framework.rotary == RotaryKernel::fused_forward) return g.view(x, size);
  const bool in_fp32 = c.framework.rotary != RotaryKernel::composite;
  const ElementType type = in_fp32 ? ElementType::fp32 : wider(size.type, c.residual);
  TensorId straight = kNoTensor;
  if (c.framework.gathers_rotary_tables) {  // cosine and sine
    const TensorId tables =
        g.apply({}, token_size({Symbol::one, 2 * static_cast<std::int32_t>(head_dim)}, type), kAttention);
    straight = g.apply({x, tables}, size.as(type), kAttention, {.saves = {tables}});
  } else {
    straight = g.apply({x}, size.as(type), kAttention);
  }
  const TensorId turned = g.apply({x}, size, kAttention,
                                  {.forward = {Component::working_memory, {size.halved()}},
                                   .backward = {Component::working_memory, {size.halved(), size}}});
  const TensorId turned_sin = g.apply({turned}, size.as(type), kAttention);
  g.hold({turned});
  const TensorId rotated = add(g, straight, turned_sin);
  const TensorId lowered = in_fp32 ? cast(g, rotated, size.type, kAttention) : rotated;
  g.hold({x});
  return c.framework.rotary == RotaryKernel::composite_joined ? copy(g, lowered) : lowered;
}

// Softmax over the keys; the result keeps itself for backward. `held` is what Python names to the end of the kernel.
struct Softmax {
  TensorId result = kNoTensor;
  TensorId held = kNoTensor;
};

Softmax plain_softmax(Graph& g, const BlockContext& c, TensorId scores, bool in_type) {
  const bool raised = !in_type || c.framework.autocast;
  const TensorId entered = raised ? cast(g, scores, ElementType::fp32, kAttention) : scores;
  const TensorId soft = g.apply({entered}, g.at(entered).size, kAttention);
  g.save(soft);
  return {soft, kNoTensor};
}

// With sinks: they join as one more column, in the wider type of both; the row's maximum is taken off before the
// softmax, and the column is dropped after it (modeling_gpt_oss.py, eager_attention_forward).
Softmax softmax_with_sinks(Graph& g, const BlockContext& c, TensorId scores) {
  const Size wide = g.at(scores).size.as(wider(g.at(scores).size.type, c.residual));
  const Size column{{Symbol::b, Symbol::a, Symbol::s, Symbol::one}, 1, wide.type};
  const bool requires_grad = g.at(scores).requires_grad;
  const TensorId joined =
      cast(g, g.apply({scores}, g.at(scores).size, kAttention, {.passes_gradient = true}), wide.type, kAttention);
  const TensorId row_maximum = g.tensor(column.as(ElementType::int64), kAttention, false);
  const TensorId shifted = g.tensor(wide, kAttention, requires_grad);
  // Backward of the maximum scatters its gradient into a copy of zeros.
  g.run({joined}, {shifted, row_maximum},
        {.saves = {row_maximum}, .passes_gradient = true, .backward = {Component::working_memory, {wide.times(2)}}});
  const TensorId soft = g.tensor(wide, kAttention, requires_grad);
  const TensorId sink = g.tensor(column, kAttention, false);
  g.run({shifted}, {soft, sink}, {.saves = {soft, sink}});
  const TensorId kept = g.view(soft, wide);
  g.hold({scores});
  return {kept, shifted};
}

// Scores, softmax and probabilities in memory, batch x heads x queries x keys each.
TensorId eager_kernel(Graph& g, const BlockContext& c, const Heads& in) {
  const auto ready = [&](TensorId x) { return c.framework.autocast ? cast(g, x, c.compute, kAttention) : x; };
  const Size q_size = g.at(in.q).size;
  const auto repeat = [&](TensorId x, Symbol width) {
    // A view of a wider tensor is no matrix that the product can read.
    return in.grouped || is_view(g, x) ? g.apply({x}, token_size({width}, g.at(x).size.type), kAttention) : x;
  };
  const TensorId k = repeat(in.k, q_size.symbols[3]);
  const TensorId v = repeat(in.v, in.out.symbol);
  const TensorId q16 = copy(g, ready(in.q));
  const TensorId k16 = ready(k);
  const ElementType type = g.at(q16).size.type;
  const Size scores{{Symbol::b, Symbol::a, Symbol::s, Symbol::w}, 1, type};
  const TensorId raw = g.apply({q16, k16}, scores, kAttention, {.saves = {q16, k16}});
  const TensorId scaled = scale(g, raw);
  g.hold({raw});
  TensorId weights = scaled;
  if (in.softcap > 0) {  // tanh(scores / cap) * cap
    const TensorId divided = scale(g, weights);
    const TensorId tanh = g.apply({divided}, scores, kAttention);
    g.save(tanh);
    weights = scale(g, tanh);
  }
  const TensorId masked = g.apply({weights}, scores, kAttention, {.passes_gradient = true});
  const Softmax soft = in.sinks ? softmax_with_sinks(g, c, masked) : plain_softmax(g, c, masked, in.softmax_in_type);
  TensorId probabilities = cast(g, soft.result, type, kAttention);
  if (c.framework.drops_out && c.model->dropout.attention > 0) probabilities = dropout(g, probabilities, kAttention);
  const TensorId v16 = ready(v);
  const TensorId out =
      g.apply({probabilities, v16}, token_size(in.out, type), kAttention, {.saves = {probabilities, v16}});
  const TensorId joined = copy(g, out);
  g.hold({in.q, in.k, in.v, probabilities, soft.held});
  return joined;
}

// The product scales; a copy of its result is masked in place, in FP32 as its README configures it
// (Aleph-Alpha/scaling, core/nn/attention/attention.py, multi_head_attention; README.md, softmax_in_fp32).
TensorId in_place_kernel(Graph& g, const BlockContext& c, const Heads& in) {
  const auto for_every_head = [&](TensorId x, Symbol width) {
    return in.grouped ? g.apply({x}, token_size({width}, g.at(x).size.type), kAttention) : x;
  };
  const auto joined = [&](TensorId x) { return c.joins_sequences ? copy(g, x) : x; };
  const TensorId q = joined(in.q);
  const TensorId k = joined(for_every_head(in.k, g.at(q).size.symbols[3]));
  const TensorId v = joined(for_every_head(in.v, in.out.symbol));
  const Size size{{Symbol::b, Symbol::a, Symbol::s, Symbol::w}, 1, g.at(q).size.type};
  const TensorId scores = g.apply({q, k}, size, kAttention, {.saves = {q, k}});
  const TensorId masked = in.softmax_in_type ? copy(g, scores) : cast(g, scores, ElementType::fp32, kAttention);
  const TensorId soft = g.apply({masked}, g.at(masked).size, kAttention);
  g.save(soft);
  TensorId probabilities = cast(g, soft, size.type, kAttention);
  if (c.framework.drops_out && c.model->dropout.attention > 0) probabilities = dropout(g, probabilities, kAttention);
  const TensorId out =
      g.apply({probabilities, v}, token_size(in.out, size.type), kAttention, {.saves = {probabilities, v}});
  g.hold({in.q, in.k, in.v, scores, probabilities});
  return copy(g, out);
}

// Backward of FlashAttention-2 accumulates dq in FP32 and, with grouped heads, makes dk and dv per query head first
// (csrc/flash_attn/flash_api.cpp, mha_bwd).
Workspace flash_backward(const Graph& g, const Heads& in) {
  const Size q = g.at(in.q).size;
  Workspace workspace(Component::working_memory, {q.as(ElementType::fp32)});
  if (in.grouped) workspace.add(q.times(2));
  return workspace;
}

// SDPA makes a bias of the kernel's type of a mask of truth values, at every call (aten/src/ATen/native/transformers/
// attention.cpp, convert_boolean_attn_mask).
TensorId mask_bias(Graph& g, ElementType type) {
  return g.apply({}, Size{{Symbol::b, Symbol::s, Symbol::s, Symbol::one}, 1, type}, kAttention);
}

TensorId flash_kernel(Graph& g, const BlockContext& c, Heads in) {
  // FlashAttention takes 16 bits only; torch's kernels take FP32 as well where no autocast lowers it.
  const bool lowers = c.framework.autocast || c.attention == AttentionKernel::flash;
  const auto ready = [&](TensorId x) {
    return lowers && g.at(x).size.type == ElementType::fp32 ? cast(g, x, c.compute, kAttention) : x;
  };
  in.q = ready(in.q);
  in.k = ready(in.k);
  in.v = ready(in.v);
  const bool needs_grad = g.at(in.q).requires_grad || g.at(in.k).requires_grad || g.at(in.v).requires_grad;
  const TensorId out = g.tensor(token_size(in.out, g.at(in.q).size.type), kAttention, needs_grad);
  const TensorId row =
      g.tensor({{Symbol::b, Symbol::s, Symbol::a, Symbol::one}, 1, ElementType::fp32}, kAttention, false);
  const Size flop_size{{Symbol::b, Symbol::s, Symbol::w, Symbol::q}, 4, ElementType::int8};
  const TensorId bias = in.masked ? mask_bias(g, g.at(in.q).size.type) : kNoTensor;
  g.run({in.q, in.k, in.v}, {out, row},
        {.saves = {in.q, in.k, in.v, out, row}, .backward = flash_backward(g, in), .flops = g.polynomial(flop_size)});
  if (bias != kNoTensor && needs_grad) g.save(bias);
  if (c.caches) g.cache(out);
  if (c.caches) g.cache(row);
  g.hold({in.q, in.k, in.v, bias});
  return out;
}

struct Projected {
  TensorId q, k, v;
};

// litgpt's CausalSelfAttention: views of one projection, copied out where query heads share keys and values, which are
// then repeated for each.
Projected project_fused(Graph& g, const BlockContext& c, TensorId x, const Attention& a) {
  const TensorId qkv = fused_qkv(g, c, x, a.qkv_bias);
  const auto part = [&](Symbol width) { return token_size({width}, g.at(qkv).size.type); };
  const auto [q, k, v] = g.split(qkv, part(Symbol::q), part(Symbol::kv), part(Symbol::v));
  if (a.kv_heads == a.heads) return {q, k, v};
  return {copy(g, q), g.apply({k}, part(Symbol::q), kAttention), g.apply({v}, part(Symbol::av), kAttention)};
}

Projected project(Graph& g, const BlockContext& c, TensorId x, const Attention& a) {
  if (c.framework.fuses_qkv) return project_fused(g, c, x, a);
  const Width h{Symbol::h};
  if (a.fused_qkv || (c.framework.joins_equal_heads && a.kv_heads == a.heads)) {  // q, k and v are views of one tensor
    const TensorId qkv = linear(g, c, x, {.module = Module::qkv, .in = h, .out = {Symbol::qkv}, .bias = a.qkv_bias});
    const auto part = [&](Symbol width) { return token_size({width}, g.at(qkv).size.type); };
    const auto [q, k, v] = g.split(qkv, part(Symbol::q), part(Symbol::kv), part(Symbol::v));
    return {q, k, v};
  }
  const bool doubled = a.output_gate == OutputGate::doubled_query;
  const Linear q{.module = Module::q, .in = h, .out = {Symbol::q, doubled ? 2 : 1}, .bias = a.qkv_bias};
  const Linear k{.module = Module::k, .in = h, .out = {Symbol::kv}, .bias = a.qkv_bias};
  const Linear v{.module = Module::v, .in = h, .out = {Symbol::v}, .bias = a.qkv_bias};
  if (!doubled && !a.k_is_v && fuses(c, {q, k, v})) {
    const auto [fused_q, fused_k, fused_v] = fused_qkv(g, c, x, {q, k, v});
    return {fused_q, fused_k, fused_v};
  }
  Projected p{};
  p.q = linear(g, c, x, q);
  if (doubled) p.q = g.apply({p.q}, token_size({Symbol::q}, g.at(p.q).size.type), kAttention);
  p.k = linear(g, c, x, k);
  p.v = a.k_is_v ? p.k : linear(g, c, x, v);
  return p;
}

TensorId gate_output(Graph& g, const BlockContext& c, TensorId x, TensorId out, OutputGate kind) {
  if (kind == OutputGate::none) return out;
  TensorId gate = out;
  if (kind == OutputGate::doubled_query) {
    gate = g.apply({x}, g.at(out).size, kAttention);
  } else {
    const Width width = kind == OutputGate::head ? Width{Symbol::a} : Width{Symbol::av};
    gate = linear(g, c, x, {.module = Module::output_gate, .in = {Symbol::h}, .out = width});
  }
  const TensorId opened = g.apply({gate}, g.at(gate).size, kAttention);
  g.save(opened);  // sigmoid saves its result
  return multiply(g, out, opened, kAttention);
}

}  // namespace

TensorId attention_kernel(Graph& g, const BlockContext& c, Heads heads) {
  if (c.attention != AttentionKernel::eager) return flash_kernel(g, c, heads);
  return c.framework.masks_scores_in_place ? in_place_kernel(g, c, heads) : eager_kernel(g, c, heads);
}

namespace {

// Kernels that do not take grouped heads get keys and values for every query head.
bool repeats_keys(const BlockContext& c, const Attention& a) {
  const KeyRepeats& repeats = c.framework.key_repeats;
  switch (c.attention) {
    case AttentionKernel::sdpa: return repeats.sdpa || masks_window(c, a);
    case AttentionKernel::flash: return repeats.flash_with_window && a.window > 0;
    case AttentionKernel::eager:  // the kernel itself does
    case AttentionKernel::flex: break;
  }
  return false;
}

// A cache's copy. Of a tensor that nobody else keeps it makes no difference: the tensor goes.
TensorId through_cache(Graph& g, const BlockContext& c, TensorId x) {
  return c.framework.kv_cache && is_view(g, x) ? copy(g, x) : x;
}

// The flash kernel answers in the layout of the query: joined parts lie head by head. SDPA's kernel for masks and FP32
// answers a row a token.
bool answers_in_layout_of_query(const BlockContext& c, bool masked) {
  if (c.attention == AttentionKernel::sdpa) return !masked && c.compute != ElementType::fp32;
  return c.attention != AttentionKernel::eager;
}

// Keys or values copied for every query head.
TensorId for_every_head(Graph& g, TensorId x, Symbol width) {
  return g.apply({x}, token_size({width}, g.at(x).size.type), kAttention);
}

}  // namespace

TensorId attention(Graph& g, const BlockContext& c, TensorId x, const Attention& a) {
  Projected p = project(g, c, x, a);
  if (a.qk_norm != QkNorm::none) {
    p.q = norm(g, c, p.q, {Symbol::q}, a.qk_norm == QkNorm::head ? Symbol::a : Symbol::one);
    p.k = norm(g, c, p.k, {Symbol::kv}, a.qk_norm == QkNorm::head ? Symbol::ak : Symbol::one);
  }
  if (a.rotary && c.model->position == PositionType::rope) {
    const TensorId q = p.q, k = p.k;
    p.q = rotary(g, c, q, a.head_dim);
    p.k = rotary(g, c, k, a.head_dim);
    if (rotates_together(c)) g.hold({q, k});
  }
  p.k = through_cache(g, c, p.k);
  p.v = through_cache(g, c, p.v);
  const bool masked = masks_window(c, a);
  const bool grouped = a.kv_heads < a.heads && !c.framework.fuses_qkv;
  const bool repeats = grouped && repeats_keys(c, a);
  if (repeats) {
    p.k = for_every_head(g, p.k, Symbol::q);
    p.v = for_every_head(g, p.v, Symbol::av);
  }
  const TensorId out = attention_kernel(
      g, c, {p.q, p.k, p.v, {Symbol::av}, grouped && !repeats, a.softcap, a.softmax_in_type, a.sinks, masked});
  const bool joined = c.framework.rotary == RotaryKernel::composite_joined ||
                      (a.partial_rotary && c.framework.rotary == RotaryKernel::composite);
  const bool joins = (joined || c.joins_sequences) && answers_in_layout_of_query(c, masked);
  const TensorId gated = gate_output(g, c, x, joins ? copy(g, out) : out, a.output_gate);
  const Linear o{.module = Module::o, .in = {Symbol::av}, .out = {Symbol::h}, .bias = a.o_bias};
  return fuses(c, {o}) ? fused_output(g, c, gated, o) : linear(g, c, gated, o);
}

}  // namespace vramplan::ops

namespace vramplan {

bool masks_window(const BlockContext& c, const Attention& a) {
  return c.framework.masks_sdpa_windows && c.attention == AttentionKernel::sdpa && a.window > 0 &&
         c.sequence_length >= a.window;
}

}  // namespace vramplan
