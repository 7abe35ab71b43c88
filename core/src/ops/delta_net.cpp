// Gated DeltaNet (arXiv 2412.06464) as in Qwen3-Next and Qwen3.5, and Kimi Delta Attention (arXiv 2510.26692), which
// has a decay a channel where Gated DeltaNet has one a head.
//
// Composite: torch_chunk_gated_delta_rule in transformers/models/qwen3_next/modeling_qwen3_next.py. Everything is FP32
// and heads of keys are copied for every head of values; a Python loop over the chunks keeps the state before each
// chunk and the corrected values. Fused: ChunkGatedDeltaRuleFunction in fla/ops/gated_delta_rule/chunk.py keeps
// normalized q and k with their row statistics, v, the cumulative decay, beta and the inverse of each chunk's
// triangular system (chunk x chunk), and computes states and corrected values again in backward. ChunkKDAFunction in
// fla/ops/kda/chunk.py does the same with the decays as wide as the keys, and keeps a second matrix, that of the
// attention inside a chunk.
#include "recurrent.hpp"

namespace vramplan::ops {
namespace {

constexpr Size kPairs = chunked(Symbol::d, kDeltaRuleChunk* kDeltaRuleChunk);
constexpr Size kKeys = chunked(Symbol::ke, kDeltaRuleChunk);
constexpr Size kValues = chunked(Symbol::i, kDeltaRuleChunk);
constexpr Size kHeads = chunked(Symbol::d, kDeltaRuleChunk);
constexpr Size kStates = chunked(Symbol::n, 1);
constexpr Size kOneState{{Symbol::b, Symbol::n, Symbol::one, Symbol::one}, 1, ElementType::fp32};

struct Inputs {
  TensorId q = kNoTensor, k = kNoTensor, v = kNoTensor;
  TensorId decay = kNoTensor, beta = kNoTensor;
};

// x * rsqrt(sum(x * x))
TensorId normalized(Graph& g, TensorId x) {
  const Size wide = g.at(x).size;
  const TensorId row = g.tensor(every_token(Symbol::d), kRecurrent, g.at(x).requires_grad);
  g.run({x}, {row}, {.saves = {x}, .forward = {Component::working_memory, {wide}}});
  g.save(row);
  return g.apply({x, row}, wide, kRecurrent, {.saves = {x, row}});
}

// FP32, a head after the other, filled up to whole chunks: F.pad copies even where nothing is added.
TensorId padded(Graph& g, TensorId x, Size size) { return g.apply({x}, size, kRecurrent); }
TensorId for_every_head(Graph& g, TensorId x, const GatedDeltaNet& m) {
  if (m.key_heads == m.value_heads) return x;
  return g.apply({x}, every_token(Symbol::ke, g.at(x).size.type), kRecurrent);
}

// The FP32 inputs of the rule, q and k normalized.
Inputs prepared(Graph& g, const Inputs& in, const GatedDeltaNet& m) {
  const TensorId q = for_every_head(g, in.q, m);
  const TensorId k = for_every_head(g, in.k, m);
  const auto wide = [&](TensorId x) { return cast(g, x, ElementType::fp32, kRecurrent); };
  const Inputs raised{wide(q), wide(k), wide(in.v), wide(in.decay), wide(in.beta)};
  g.hold({q, k});
  const TensorId q_normed = normalized(g, raised.q);
  const TensorId k_normed = normalized(g, raised.k);
  const TensorId scaled = scale(g, q_normed);
  const Inputs out{padded(g, scaled, kKeys), padded(g, k_normed, kKeys), padded(g, raised.v, kValues),
                   padded(g, raised.decay, kHeads), padded(g, raised.beta, kHeads)};
  g.hold({scaled, k_normed, raised.v, raised.decay, raised.beta});
  return out;
}

// What the loop over the chunks reads.
struct Chunks {
  TensorId values, keys_decayed, q, k, inside, decay;
};

// exp of the decay between every two positions of a chunk; what lies ahead is masked.
TensorId pairwise_decay(Graph& g, TensorId cumulative) {
  const TensorId difference = g.apply({cumulative}, kPairs, kRecurrent);
  const TensorId mask = g.tensor(Size{{}, kDeltaRuleChunk * kDeltaRuleChunk, ElementType::bool8}, kRecurrent, false);
  const TensorId masked = g.tensor(kPairs, kRecurrent, g.at(difference).requires_grad);
  g.run({difference}, {masked, mask}, {.saves = {mask}});
  return keeps_result(g, masked, kPairs);
}

// The inverse of a triangular system applied to x: keeps the system and its result.
TensorId solved(Graph& g, TensorId system, TensorId x) {
  const TensorId out = g.apply({system, x}, g.at(x).size, kRecurrent,
                               {.saves = {system}, .backward = {Component::working_memory, {kPairs}}});
  g.save(out);
  return out;
}

// How matrix products take their inputs. Autocast runs them in 16 bits, on a copy for each; everything around them
// stays FP32. An input that was FP32 from the start was never copied head by head, and each product does so.
struct Products {
  Graph& g;
  const BlockContext& c;
  bool arranges = false;

  [[nodiscard]] TensorId ready(TensorId x) const {
    return c.framework.autocast ? cast(g, x, c.compute, kRecurrent) : x;
  }
  [[nodiscard]] TensorId arranged(TensorId x) const { return arranges ? copy(g, ready(x)) : ready(x); }
  [[nodiscard]] TensorId pairs(TensorId x, TensorId y) const {
    const TensorId left = arranged(x);
    return product(g, left, arranged(y), kPairs.as(g.at(left).size.type));
  }
};

Chunks inside_chunks(const Products& by, const Inputs& in) {
  Graph& g = by.g;
  const TensorId v_beta = product(g, in.v, in.beta, kValues);
  const TensorId k_beta = product(g, in.k, in.beta, kKeys);
  const TensorId cumulative = g.apply({in.decay}, kHeads, kRecurrent);
  const TensorId pairs = pairwise_decay(g, cumulative);
  const TensorId system = product(g, by.pairs(k_beta, in.k), pairs, kPairs);
  const TensorId inside = product(g, by.pairs(in.q, in.k), pairs, kPairs);
  const TensorId decayed = product(g, k_beta, keeps_result(g, cumulative, kHeads), kKeys);
  Chunks out{};
  out.values = solved(g, system, v_beta);
  out.keys_decayed = solved(g, system, decayed);
  out.q = product(g, in.q, keeps_result(g, cumulative, kHeads), kKeys);
  out.k = product(g, in.k, keeps_result(g, cumulative, kHeads), kKeys);
  out.inside = inside;
  out.decay = keeps_result(g, cumulative, chunked(Symbol::d, 1));
  g.hold({v_beta, k_beta, cumulative, decayed, pairs, system});
  return out;
}

// The state before each chunk and its corrected values stay. Under autocast the state is kept in FP32 for its decay and
// in 16 bits for two products, the corrected values in 16 bits for two. A slice's gradient is a whole tensor of zeros
// around it, and writing into a slice of the output clones the whole gradient
// (torch/csrc/autograd/functions/tensor.cpp, CopySlices).
TensorId loop_over_chunks(const Products& by, const Chunks& in) {
  Graph& g = by.g;
  const TensorId keys_decayed = by.ready(in.keys_decayed);
  const TensorId q = by.arranged(in.q);
  const TensorId k = by.arranged(in.k);
  const TensorId inside = by.ready(in.inside);
  const bool copies = g.at(q).size.type != ElementType::fp32;
  const TensorId out = g.tensor(kValues, kRecurrent, g.at(in.values).requires_grad);
  const TensorId states = g.tensor(kStates.times(copies ? 2 : 1), kRecurrent, false);
  const TensorId corrected = g.tensor(kValues, kRecurrent, false);
  g.run({in.values, keys_decayed, q, k, inside, in.decay}, {out, states, corrected},
        {.saves = {keys_decayed, q, k, inside, states, corrected},
         .forward = {Component::working_memory, {kOneState.times(2)}},
         .backward = {Component::working_memory, {kValues, kKeys, kOneState.times(2)}}});
  g.hold({in.values, in.keys_decayed, in.q, in.k, in.inside});
  return out;
}

TensorId composite_rule(Graph& g, const BlockContext& c, const Inputs& in, const GatedDeltaNet& m) {
  const ElementType entered = g.at(in.q).size.type;
  const Inputs chunks = prepared(g, in, m);
  const Products by{g, c, entered == ElementType::fp32};
  const TensorId out = loop_over_chunks(by, inside_chunks(by, chunks));
  g.hold({chunks.q, chunks.k, chunks.v, chunks.beta, chunks.decay});
  return g.apply({out}, every_token(Symbol::i, entered), kRecurrent);
}

// fla's kernels take contiguous tensors (input_guard) and normalize them into new ones.
TensorId normalized_copy(Graph& g, TensorId x) {
  const Size size = g.at(x).size;
  const TensorId out = g.tensor(size, kRecurrent, g.at(x).requires_grad);
  const TensorId row = g.tensor(every_token(Symbol::dk), kRecurrent, false);
  g.run({x}, {out, row}, {.saves = {out, row}, .forward = {Component::working_memory, {size}}});
  return out;
}

// chunk_gated_delta_rule_fwd holds w, u, the states and the corrected values beside its output;
// chunk_gated_delta_rule_bwd ends with these again, the gradients of the states, of w, u and v, and of k for every
// head.
Workspace fused_forward(ElementType type) {
  return {Component::working_memory,
          {every_token(Symbol::ke, type), every_token(Symbol::i, type).times(2), chunked(Symbol::n, 1, type)}};
}
Workspace fused_backward(ElementType type) {
  return {Component::working_memory,
          {every_token(Symbol::ke, type).times(3), every_token(Symbol::k, type), every_token(Symbol::i, type).times(3),
           chunked(Symbol::n, 1, type).times(2)}};
}

TensorId fused_rule(Graph& g, const Inputs& in) {
  const ElementType type = g.at(in.q).size.type;
  const TensorId q = normalized_copy(g, in.q);
  const TensorId k = normalized_copy(g, in.k);
  const TensorId v = copy(g, in.v);
  const TensorId cumulative = g.apply({in.decay}, g.at(in.decay).size, kRecurrent);
  const TensorId inverse = g.tensor(every_token(Symbol::d, type).times(kDeltaRuleChunk), kRecurrent, false);
  const TensorId out = g.tensor(every_token(Symbol::i, type), kRecurrent, g.at(v).requires_grad);
  g.run({q, k, v, cumulative, in.beta}, {out, inverse},
        {.saves = {q, k, v, cumulative, in.beta, inverse},
         .forward = fused_forward(type),
         .backward = fused_backward(type)});
  return out;
}

// -exp(A) * softplus(a + bias), in FP32.
TensorId decay_of(Graph& g, const BlockContext& c, TensorId a, Symbol width) {
  const TensorId wide = cast(g, a, ElementType::fp32, kRecurrent);
  const TensorId biased = g.apply({wide}, every_token(width), kRecurrent, {.passes_gradient = true});
  const TensorId soft = unary(g, biased, kRecurrent);
  const TensorId rates = g.tensor(decay_rates(c), kRecurrent, false);
  const TensorId out = g.tensor(every_token(width), kRecurrent, g.at(soft).requires_grad || c.trains_base);
  g.run({soft}, {out, rates}, {.saves = {rates}});
  if (c.trains_base) g.save(soft);
  return out;
}

struct Projected {
  TensorId mixed, z, b, a;
};

// Qwen3-Next has one matrix for q, k, v and z and one for b and a, by heads of keys: q, k, v and z are copied out, and
// q, k and v joined again.
Projected project_fused(Graph& g, const BlockContext& c, TensorId x) {
  const Width h{Symbol::h};
  const TensorId all =
      linear(g, c, x, {.module = Module::in_proj, .in = h, .out = {Symbol::j}, .component = kRecurrent});
  const TensorId both =
      linear(g, c, x, {.module = Module::in_proj, .in = h, .out = {Symbol::d, 2}, .component = kRecurrent});
  const ElementType type = g.at(all).size.type;
  Projected p{};
  p.z = g.apply({all}, every_token(Symbol::i, type), kRecurrent);
  p.b = g.apply({both}, every_token(Symbol::d, type), kRecurrent);
  p.a = g.apply({both}, every_token(Symbol::d, type), kRecurrent);
  const TensorId parts = g.apply({all}, every_token(Symbol::x, type), kRecurrent);
  p.mixed = g.apply({parts}, every_token(Symbol::x, type), kRecurrent);
  g.hold({parts});
  return p;
}

Projected project_apart(Graph& g, const BlockContext& c, TensorId x) {
  const auto part = [&](Module module, Symbol out) {
    return linear(g, c, x, {.module = module, .in = {Symbol::h}, .out = {out}, .component = kRecurrent});
  };
  Projected p{};
  p.mixed = part(Module::in_proj, Symbol::x);
  p.z = part(Module::output_gate, Symbol::i);
  p.b = part(Module::in_proj, Symbol::d);
  p.a = part(Module::in_proj, Symbol::d);
  return p;
}

Inputs convolved_inputs(Graph& g, const BlockContext& c, const Projected& p, Dim taps) {
  const TensorId acted = causal_convolution(g, c, p.mixed, {.taps = taps, .activates = true}).out;
  const ElementType type = g.at(acted).size.type;
  const auto [q, k, v] =
      g.split(acted, every_token(Symbol::k, type), every_token(Symbol::k, type), every_token(Symbol::i, type));
  return {.q = q, .k = k, .v = v};
}

}  // namespace

TensorId gated_delta_net(Graph& g, const BlockContext& c, TensorId x, const GatedDeltaNet& m) {
  const Projected p = m.fused_projections ? project_fused(g, c, x) : project_apart(g, c, x);
  Inputs in = convolved_inputs(g, c, p, m.conv_kernel);
  in.beta = keeps_result(g, p.b, g.at(p.b).size);
  in.decay = decay_of(g, c, p.a, Symbol::d);
  const bool fused = c.framework.recurrence == RecurrenceKernel::fused;
  const TensorId out = fused ? fused_rule(g, in) : composite_rule(g, c, in, m);
  const TensorId normed = gated_norm(g, c, out, p.z, Symbol::d, GateOrder::after_norm);
  g.hold({p.z, p.b, p.a, in.q, in.decay, in.beta});
  return linear(g, c, normed,
                {.module = Module::out_proj, .in = {Symbol::i}, .out = {Symbol::h}, .component = kRecurrent});
}

namespace {

// fla's kernel for either choice of kernels: Transformers' own code for it is the loop above with decays as wide as the
// keys, and nobody trains with it.
TensorId kimi_rule(Graph& g, const Inputs& in) {
  const ElementType type = g.at(in.q).size.type;
  const TensorId q = normalized_copy(g, in.q);
  const TensorId k = normalized_copy(g, in.k);
  const TensorId v = copy(g, in.v);
  const TensorId cumulative = g.apply({in.decay}, g.at(in.decay).size, kRecurrent);
  const TensorId matrices = g.tensor(every_token(Symbol::d, type).times(2 * kDeltaRuleChunk), kRecurrent, false);
  const TensorId out = g.tensor(every_token(Symbol::i, type), kRecurrent, g.at(v).requires_grad);
  g.run({q, k, v, cumulative, in.beta}, {out, matrices},
        {.saves = {q, k, v, cumulative, in.beta, matrices},
         .forward = fused_forward(type),
         .backward = fused_backward(type)});
  return out;
}

// Through a narrow middle of one head's width.
TensorId low_rank(Graph& g, const BlockContext& c, TensorId x, Module module) {
  const TensorId middle =
      linear(g, c, x, {.module = module, .in = {Symbol::h}, .out = {Symbol::j}, .component = kRecurrent});
  return linear(g, c, middle, {.module = module, .in = {Symbol::j}, .out = {Symbol::i}, .component = kRecurrent});
}

}  // namespace

TensorId kimi_delta_attention(Graph& g, const BlockContext& c, TensorId x, const KimiDeltaAttention& m) {
  const auto part = [&](Module module, Symbol out) {
    return linear(g, c, x, {.module = module, .in = {Symbol::h}, .out = {out}, .component = kRecurrent});
  };
  const TensorId q = part(Module::q, Symbol::i);
  const TensorId k = part(Module::k, Symbol::i);
  const TensorId v = part(Module::v, Symbol::i);
  Projected p{};
  p.mixed = g.apply({q, k, v}, every_token(Symbol::x, g.at(q).size.type), kRecurrent);
  Inputs in = convolved_inputs(g, c, p, m.conv_kernel);
  in.decay = decay_of(g, c, low_rank(g, c, x, Module::dt_proj), Symbol::i);
  const TensorId b = part(Module::in_proj, Symbol::d);
  in.beta = keeps_result(g, b, g.at(b).size);
  const TensorId out = kimi_rule(g, in);
  const TensorId gate =
      m.full_rank_gate ? part(Module::output_gate, Symbol::i) : low_rank(g, c, x, Module::output_gate);
  const TensorId normed = gated_norm(g, c, out, gate, Symbol::d, GateOrder::after_norm);
  return linear(g, c, normed, {.module = Module::o, .in = {Symbol::i}, .out = {Symbol::h}, .component = kRecurrent});
}

}  // namespace vramplan::ops
