#include "modules.hpp"

namespace vramplan::ops::megatron {
namespace {

constexpr Component kNorm = Component::activations_norm;

// Norm, activation with gate, and softmax are single kernels, or operations of PyTorch.
bool is_fused(const BlockContext& c) { return c.framework.norm == NormKernel::fused; }

Size row_statistic(const BlockContext& c, Size x, Symbol rows) {
  // mean and deviation, or the deviation alone
  const std::int32_t count = c.model->norm.type == NormType::layer ? 2 : 1;
  return Size{{x.symbols[0], x.symbols[1], rows, Symbol::one}, count, ElementType::fp32};
}

// What a matrix product keeps of its input: the input, or its FP8 copy. Of a frozen matrix nothing.
TensorId kept_input(Graph& g, const BlockContext& c, Size size, Component component) {
  const ElementType type = c.framework.fp8 ? ElementType::fp8 : size.type;
  return c.trains_base ? g.tensor(size.as(type), component, false) : kNoTensor;
}

// The input of a column-parallel matrix, gathered from the ranks that share its tokens: for the product in forward, and
// again in backward for the weight's gradient, beside the input's gradient before that is scattered.
struct Gathering {
  Workspace forward, backward;
};
Gathering gathering(const BlockContext& c, const Linear& w, ElementType type) {
  Gathering made{Workspace(Component::working_memory, {}), Workspace(Component::working_memory, {})};
  if (!c.sequence_parallel) return made;
  const Size whole = token_size(w.in, type);
  const Size read = whole.as(c.framework.fp8 ? ElementType::fp8 : type);
  made.forward.add(read);
  made.backward.add(whole);
  if (c.trains_base) made.backward.add(c.framework.fp8 ? read.times(2) : read);  // FP8: and its transpose
  return made;
}

// FP8 copies of an output's gradient, along rows and columns.
void add_quantized_gradient(const BlockContext& c, Size out, Workspace& backward) {
  if (c.framework.fp8) backward.add(out.as(ElementType::fp8).times(2));
}

// With an adapter the norm's output comes out as well: of all tokens, gathered before it is rounded to FP8. The
// function keeps its own part too, for a gradient that a frozen weight never takes; and adds the adapter's gradient to
// its own where nothing was gathered (layernorm_linear.py, return_layernorm_output_gathered).
TensorId adapted_norm_linear(Graph& g, const BlockContext& c, TensorId x, const Linear& w) {
  const Size in = g.at(x).size;
  const Size whole = token_size(w.in, in.type);
  const bool differentiable = g.at(x).requires_grad;
  OpTraits traits{.backward = Workspace(Component::working_memory, {whole}), .flops = matrix_flops(g, w)};
  const Size size = token_size(w.out, in.type);
  add_quantized_gradient(c, size, traits.backward);
  if (c.framework.fp8 && c.sequence_parallel)
    traits.forward = {Component::working_memory, {whole.as(ElementType::fp8)}};
  const TensorId out = g.tensor(size, w.component, differentiable);
  const TensorId row = g.tensor(row_statistic(c, in, Symbol::one), kNorm, false);
  const TensorId normed = g.tensor(whole, kNorm, differentiable);
  const bool apart = c.framework.fp8 || c.sequence_parallel;
  const TensorId kept = apart ? g.tensor(in.as(c.framework.fp8 ? ElementType::fp8 : in.type), kNorm, false) : normed;
  if (apart) {
    g.run({x}, {out, row, normed, kept}, traits);
  } else {
    g.run({x}, {out, row, normed}, traits);
  }
  if (differentiable) {
    for (const TensorId t : {x, row, kept}) g.save(t);
  }
  return adapter(g, c, normed, out, w, AdapterCut::column);
}

}  // namespace

TensorId norm_linear(Graph& g, const BlockContext& c, TensorId x, const Linear& w) {
  if (!is_fused(c)) return column_linear(g, c, norm(g, c, x), w);
  if (is_adapted(c, w)) return adapted_norm_linear(g, c, x, w);
  const Size in = g.at(x).size;
  Gathering gathered = gathering(c, w, in.type);
  const Size size = token_size(w.out, in.type);
  add_quantized_gradient(c, size, gathered.backward);
  const TensorId out = g.tensor(size, w.component, g.at(x).requires_grad || c.trains_base);
  const TensorId row = g.tensor(row_statistic(c, in, Symbol::one), kNorm, false);
  const TensorId normed = kept_input(g, c, in, kNorm);
  const OpTraits traits{
      .saves = {x, row}, .forward = gathered.forward, .backward = gathered.backward, .flops = matrix_flops(g, w)};
  if (normed == kNoTensor) {
    g.run({x}, {out, row}, traits);
  } else {
    g.run({x}, {out, row, normed}, traits);
    g.save(normed);
  }
  return out;
}

namespace {

// A matrix alone. In FP8 it keeps a copy of its input, unless it was told to keep the input itself.
TensorId base_matrix(Graph& g, const BlockContext& c, TensorId x, const Linear& w, Size out_size, OpTraits traits,
                     bool keeps_original) {
  traits.flops = matrix_flops(g, w);
  const TensorId out = g.tensor(out_size, w.component, g.at(x).requires_grad || c.trains_base);
  if (!c.trains_base || !c.framework.fp8 || keeps_original) {
    g.run({x}, {out}, traits);
    if (c.trains_base) g.save(x);
    return out;
  }
  const TensorId kept = kept_input(g, c, g.at(x).size, w.component);
  g.run({x}, {out, kept}, traits);
  g.save(kept);
  return out;
}

TensorId matrix(Graph& g, const BlockContext& c, TensorId x, const Linear& w, Size out_size, const OpTraits& traits,
                AdapterCut cut) {
  const TensorId base = base_matrix(g, c, x, w, out_size, traits, w.module == Module::o);
  return is_adapted(c, w) ? adapter(g, c, x, base, w, cut) : base;
}

}  // namespace

TensorId column_linear(Graph& g, const BlockContext& c, TensorId x, const Linear& w) {
  Gathering gathered = gathering(c, w, g.at(x).size.type);
  const Size size = token_size(w.out, g.at(x).size.type);
  add_quantized_gradient(c, size, gathered.backward);
  return matrix(g, c, x, w, size, {.forward = gathered.forward, .backward = gathered.backward},
                c.sequence_parallel ? AdapterCut::gathered_column : AdapterCut::column);
}

// The sum over the ranks is scattered; backward gathers its gradient. The output of attention is kept by attention
// itself, so that in FP8 no copy of it is (megatron/core/transformer/attention.py, set_save_original_input).
TensorId row_linear(Graph& g, const BlockContext& c, TensorId x, const Linear& w) {
  const Size whole = token_size(w.out, g.at(x).size.type);
  OpTraits traits{.forward = Workspace(Component::working_memory, {}),
                  .backward = Workspace(Component::working_memory, {})};
  if (c.sequence_parallel) {
    traits.forward.add(whole);
    if (!c.framework.fp8) traits.backward.add(whole);
  }
  add_quantized_gradient(c, whole, traits.backward);
  return matrix(g, c, x, w, shared_size(w.out, whole.type), traits, AdapterCut::row);
}

TensorId duplicated_linear(Graph& g, const BlockContext& c, TensorId x, const Linear& w) {
  Linear own = w;
  own.tokens = Symbol::sp;
  return matrix(g, c, x, own, shared_size(w.out, g.at(x).size.type), {}, AdapterCut::whole);
}

TensorId grouped_linear(Graph& g, const BlockContext& c, TensorId x, const Linear& w) {
  OpTraits traits{.backward = Workspace(Component::working_memory, {})};
  const Size size = token_size(w.out, g.at(x).size.type, Symbol::one, w.tokens);
  add_quantized_gradient(c, size, traits.backward);
  return matrix(g, c, x, w, size, traits, AdapterCut::expert);
}

// Without fused kernels RMSNorm is spelled in tensor operations, as elsewhere (megatron/legacy/model/rms_norm.py);
// LayerNorm is a kernel always.
TensorId norm(Graph& g, const BlockContext& c, TensorId x, Symbol rows) {
  const Size size = g.at(x).size;
  if (!is_fused(c) && c.model->norm.type == NormType::rms)
    return ops::norm(g, c, x, {size.symbols[3], size.multiplier}, rows);
  const TensorId row = g.tensor(row_statistic(c, size, rows), kNorm, false);
  const TensorId out = g.tensor(size, kNorm, g.at(x).requires_grad || c.trains_norms);
  g.run({x}, {out, row}, {.saves = {x, row}});
  return out;
}

// megatron/core/fusions/fused_bias_swiglu.py and its kin, compiled: one kernel each way. Without them activation,
// product with the gate and product with the probabilities are operations of their own (transformer/mlp.py, glu).
TensorId activation(Graph& g, const BlockContext& c, TensorId wide, Size inner, Component component, TensorId weights) {
  if (is_fused(c)) {
    if (weights == kNoTensor) return g.apply({wide}, inner, component, {.saves = {wide}});
    return g.apply({wide, weights}, inner, component, {.saves = {wide, weights}});
  }
  TensorId out = kNoTensor;
  if (g.at(wide).size.multiplier == inner.multiplier) {
    out = unary(g, wide, component);
  } else {
    const auto [gate, up] = g.split(wide, inner, inner);
    const TensorId activated = unary(g, gate, component);
    out = g.apply({activated, up}, inner, component, {.saves = {activated, up}});
  }
  return weights == kNoTensor ? out : g.apply({out, weights}, inner, component, {.saves = {out, weights}});
}

namespace {

constexpr Component kAttention = Component::activations_attention;

// cuDNN's kernel, as FlashAttention's, adds up dq in FP32; with fewer heads of keys it makes dk and dv for every head.
Workspace attention_backward(const Graph& g, const Heads& in) {
  const Size q = g.at(in.q).size;
  Workspace workspace(Component::working_memory, {q.as(ElementType::fp32)});
  if (in.grouped) workspace.add(q.times(2));
  return workspace;
}

// All parts of keys and values pass by, each with an answer of its own until all are joined
// (context_parallel.py, AttnFuncWithCPAndKVP2P: p2p_comm_buffers, out_per_step).
Workspace ring_forward(const Graph& g, const BlockContext& c, const Heads& in) {
  const auto further = static_cast<std::int32_t>(c.sequence_ranks - 1);
  const Size out = token_size(in.out, g.at(in.q).size.type);
  return {Component::working_memory,
          {g.at(in.k).size.times(further), g.at(in.v).size.times(further), out.times(further)}};
}

// megatron/core/transformer/dot_product_attention.py: scores of every head, which Python names to the end, and a
// softmax that keeps its result. The fused one masks on the way, and writes the gradient over the one it is given
// (fusions/fused_softmax.py); else masking is an operation of its own, on a copy.
TensorId unfused_attention(Graph& g, const BlockContext& c, const Heads& in) {
  const Size q = g.at(in.q).size;
  const auto for_every_head = [&](TensorId x, Size size) {
    if (!in.grouped) return x;
    const TensorId repeated = g.apply({x}, size, kAttention);
    if (c.recomputes(RecomputeModule::core_attn)) g.save(x);  // a checkpoint keeps what goes in
    return repeated;
  };
  const TensorId k = for_every_head(in.k, q);
  const TensorId v = for_every_head(in.v, token_size(in.out, q.type));
  const Size size{{Symbol::b, Symbol::a, Symbol::s, Symbol::w}, 1, q.type};
  const TensorId scores = g.apply({in.q, k}, size, kAttention, {.saves = {in.q, k}});
  const bool fused = is_fused(c);
  const TensorId masked = fused ? scores : copy(g, scores);
  const TensorId soft = g.apply({masked}, size, kAttention, {.passes_gradient = fused});
  g.save(soft);
  TensorId probabilities = soft;
  if (c.model->dropout.attention > 0) probabilities = dropout(g, soft, kAttention);
  const TensorId out =
      g.apply({probabilities, v}, token_size(in.out, q.type), kAttention, {.saves = {probabilities, v}});
  g.hold({scores, probabilities});
  return copy(g, out);
}

}  // namespace

TensorId core_attention(Graph& g, const BlockContext& c, Heads in) {
  if (c.attention == AttentionKernel::eager) return unfused_attention(g, c, in);
  const bool exchanges = c.sequence_ranks > 1;
  const bool all_to_all = exchanges && c.exchanges_heads;
  const std::array<TensorId, 3> given{in.q, in.k, in.v};
  if (exchanges) {  // other heads of more tokens; or own keys and values joined in one buffer
    if (all_to_all) in.q = copy(g, in.q);
    in.k = copy(g, in.k);
    in.v = copy(g, in.v);
  }
  const Size size = token_size(in.out, g.at(in.q).size.type);
  const bool needs_grad = g.at(in.q).requires_grad;
  const TensorId out = g.tensor(size, kAttention, needs_grad);
  const TensorId row =
      g.tensor({{Symbol::b, Symbol::s, Symbol::a, Symbol::one}, 1, ElementType::fp32}, kAttention, false);
  const Size flop_size{{Symbol::b, Symbol::s, Symbol::w, Symbol::q}, 4, ElementType::int8};
  OpTraits traits{
      .saves = {in.q, in.k, in.v, out, row}, .backward = attention_backward(g, in), .flops = g.polynomial(flop_size)};
  if (exchanges && !all_to_all) traits.forward = ring_forward(g, c, in);
  g.run({in.q, in.k, in.v}, {out, row}, traits);
  // The kernel keeps the answer for its own heads; what goes on has been exchanged back.
  const TensorId result = all_to_all ? copy(g, out) : out;
  g.hold({given[0], given[1], given[2]});
  return result;
}

}  // namespace vramplan::ops::megatron
