// Mamba (arXiv 2312.00752) and Mamba-2 (arXiv 2405.21060).
#include "recurrent.hpp"

namespace vramplan::ops {
namespace {

// Mamba-2 in PyTorch operations: mamba2_chunk_scan in transformers/models/bamba/modeling_bamba.py (Granite 4,
// Falcon-H1 and Nemotron-H have the same). Everything is FP32, with B and C copied for every head; each einsum puts
// batch, chunk and head first, which copies what lies otherwise, and its matrix product keeps the copies, in 16 bits
// under autocast. What it makes between chunks, chunks x chunks, is left out: a few kilobytes.
class CompositeScan {
 public:
  CompositeScan(Graph& g, const BlockContext& c, const Mamba2& m)
      : g_(g),
        c_(c),
        pairs_(chunked(Symbol::d, m.chunk_size * m.chunk_size)),
        keys_(chunked(Symbol::ke, m.chunk_size)),
        values_(chunked(Symbol::i, m.chunk_size)),
        heads_(chunked(Symbol::d, m.chunk_size)),
        mask_{{}, static_cast<std::int32_t>(m.chunk_size * m.chunk_size), ElementType::bool8} {}

  TensorId run(TensorId value, TensorId b, TensorId c, TensorId step) {
    const TensorId step_size = softplus_step(step);
    const TensorId value32 = wide(value);
    const TensorId keys = made(raised_for_heads(b), keys_);
    const TensorId queries = made(raised_for_heads(c), keys_);
    const TensorId skipped = weighted(made(value32, values_));
    const TensorId scaled = product(g_, value32, wide(step_size), every_token(Symbol::i));
    const TensorId scanned_values = made(scaled, values_);
    const TensorId cumulative = cumulative_decay(step_size);
    const TensorId inside = inside_chunks(queries, keys, scanned_values, cumulative);
    const TensorId across = across_chunks(queries, keys, scanned_values, cumulative);
    const TensorId out = sum(made(sum(inside, across), values_), skipped);
    g_.hold({skipped, keys, queries, scanned_values, cumulative, step_size});
    g_.hold({inside, across});
    return g_.view(out, every_token(Symbol::i));
  }

 private:
  [[nodiscard]] bool autocast() const { return c_.framework.autocast; }
  TensorId made(TensorId from, Size size) { return g_.apply({from}, size, kRecurrent); }
  TensorId sum(TensorId x, TensorId y) {
    return g_.apply({x, y}, values_, kRecurrent, {.passes_gradient = g_.at(x).size.type == g_.at(y).size.type});
  }
  TensorId wide(TensorId x) { return cast(g_, x, ElementType::fp32, kRecurrent); }

  // clamp(softplus(step + bias)): both keep their input. Autocast runs softplus in FP32.
  TensorId softplus_step(TensorId step) {
    const TensorId biased = made(step, g_.at(step).size);
    return unary(g_, unary(g_, autocast() ? wide(biased) : biased, kRecurrent), kRecurrent);
  }
  TensorId raised_for_heads(TensorId x) { return made(wide(x), every_token(Symbol::ke)); }
  // x times a parameter of one value a head.
  TensorId weighted(TensorId x) {
    const TensorId out = g_.tensor(g_.at(x).size, kRecurrent, g_.at(x).requires_grad || c_.trains_base);
    g_.run({x}, {out}, {});
    if (c_.trains_base) g_.save(x);
    return out;
  }
  // -exp(A) times the steps, summed up in each chunk.
  TensorId cumulative_decay(TensorId step_size) {
    const TensorId step32 = wide(step_size);
    const TensorId decay = g_.tensor(every_token(Symbol::d), kRecurrent, g_.at(step32).requires_grad);
    const TensorId rates = g_.tensor(decay_rates(c_), kRecurrent, false);
    g_.run({step32}, {decay, rates}, {.saves = {rates}});
    if (c_.trains_base) g_.save(step32);
    return made(made(decay, heads_), heads_);
  }
  // The decay between every two positions: filled, summed, filled again, exp.
  TensorId pairwise_decay(TensorId cumulative) {
    const auto filled = [&](TensorId x) {
      const TensorId out = g_.tensor(pairs_, kRecurrent, g_.at(x).requires_grad);
      const TensorId mask = g_.tensor(mask_, kRecurrent, false);
      g_.run({x}, {out, mask}, {.saves = {mask}});
      return out;
    };
    return keeps_result(g_, filled(made(filled(cumulative), pairs_)), pairs_);
  }
  TensorId ready(TensorId x) { return autocast() ? cast(g_, x, c_.compute, kRecurrent) : x; }
  TensorId arranged(TensorId x) { return copy(g_, ready(x)); }
  TensorId einsum(TensorId x, TensorId y, Size size) { return product(g_, x, y, size.as(g_.at(x).size.type)); }

  TensorId inside_chunks(TensorId queries, TensorId keys, TensorId values, TensorId cumulative) {
    const TensorId decay = pairwise_decay(cumulative);
    const TensorId scores = einsum(arranged(queries), arranged(keys), pairs_);
    const TensorId decayed = product(g_, scores, decay, pairs_);
    return einsum(ready(decayed), arranged(values), values_);
  }
  // The state before each chunk, of zeros before the first.
  TensorId passed_states(TensorId of_chunks) {
    const TensorId joined = made(of_chunks, g_.at(of_chunks).size);
    const Size states = g_.at(joined).size;
    const TensorId copied = g_.tensor(states, kRecurrent, g_.at(joined).requires_grad);
    const TensorId first =
        g_.tensor(Size{{Symbol::b, Symbol::n, Symbol::one, Symbol::one}, 1, states.type}, kRecurrent, false);
    g_.run({joined}, {copied, first}, {});
    return g_.apply({copied}, states, kRecurrent, {.saves = {copied, first}});
  }
  TensorId across_chunks(TensorId queries, TensorId keys, TensorId values, TensorId cumulative) {
    const TensorId decayed_keys = product(g_, keys, keeps_result(g_, cumulative, heads_), keys_);
    const TensorId of_chunks = einsum(arranged(decayed_keys), arranged(values), chunked(Symbol::n, 1));
    const TensorId read = einsum(arranged(queries), arranged(passed_states(of_chunks)), values_);
    return product(g_, read, keeps_result(g_, cumulative, heads_), values_);
  }

  Graph& g_;
  const BlockContext& c_;
  Size pairs_, keys_, values_, heads_, mask_;
};

struct Split {
  TensorId gate, mixed, step;
};

Split projected(Graph& g, const BlockContext& c, TensorId x) {
  const TensorId all =
      linear(g, c, x, {.module = Module::in_proj, .in = {Symbol::h}, .out = {Symbol::j}, .component = kRecurrent});
  const ElementType type = g.at(all).size.type;
  const auto [gate, mixed, step] =
      g.split(all, every_token(Symbol::i, type), every_token(Symbol::x, type), every_token(Symbol::d, type));
  return {gate, mixed, step};
}

TensorId out_projection(Graph& g, const BlockContext& c, TensorId x) {
  return linear(g, c, x, {.module = Module::out_proj, .in = {Symbol::i}, .out = {Symbol::h}, .component = kRecurrent});
}

// SiLU on the gate in the type of the scan, without a norm (Falcon-H1 with mamba_rms_norm off).
TensorId gated(Graph& g, TensorId x, TensorId gate) {
  const Size made = g.at(x).size;  // before the graph grows
  return product(g, x, unary(g, gate, kRecurrent), made);
}

TensorId finish(Graph& g, const BlockContext& c, TensorId scanned, TensorId gate, const Mamba2& m, ElementType type) {
  const TensorId out =
      m.gated_norm ? gated_norm(g, c, scanned, gate, Symbol::dk, GateOrder::before_norm) : gated(g, scanned, gate);
  return out_projection(g, c, cast(g, out, type, kRecurrent));
}

TensorId composite_mamba2(Graph& g, const BlockContext& c, TensorId x, const Mamba2& m) {
  const Split in = projected(g, c, x);
  const ElementType entered = g.at(x).size.type;
  const TensorId acted = causal_convolution(g, c, in.mixed, {.taps = m.conv_kernel, .activates = true}).out;
  const ElementType type = g.at(acted).size.type;
  const auto [value, b, c_part] =
      g.split(acted, every_token(Symbol::i, type), every_token(Symbol::k, type), every_token(Symbol::k, type));
  const TensorId scanned = CompositeScan(g, c, m).run(value, b, c_part, in.step);
  const TensorId out = finish(g, c, scanned, in.gate, m, entered);
  g.hold({in.gate, value});
  return out;
}

// What Transformers calls while a cache is on, as in training without recompute. Without one it calls
// mamba_split_conv1d_scan_combined, which keeps less still: the projection, the scan's output and the norm's statistic.
// mamba_ssm/ops/triton/ssd_combined.py, MambaChunkScanCombinedFn: keeps its output and inputs, the step sizes as they
// come, and the cumulative decay of each chunk. Forward holds states in FP32 and in the type of C, and the scores of
// every group inside a chunk; backward computes these again and makes gradients of the states, of B and C for every
// head, and of the scores.
TensorId fused_scan(Graph& g, const Split& in, TensorId acted, const Mamba2& m) {
  const ElementType type = g.at(acted).size.type;
  const Size scores = chunked(Symbol::dk, m.chunk_size * m.chunk_size);
  const Size decays = chunked(Symbol::d, m.chunk_size);
  const TensorId out = g.tensor(every_token(Symbol::i, type), kRecurrent, g.at(acted).requires_grad);
  const TensorId cumulative = g.tensor(decays, kRecurrent, false);
  g.run({acted, in.step}, {out, cumulative},
        {.saves = {acted, in.step, out, cumulative},
         .forward = {Component::working_memory, {decays, chunked(Symbol::n, 1), chunked(Symbol::n, 1, type), scores}},
         .backward = {Component::working_memory,
                      {decays.times(4), chunked(Symbol::n, 1, type).times(2), scores.times(2),
                       every_token(Symbol::k).times(2)}}});
  return out;
}

TensorId fused_mamba2(Graph& g, const BlockContext& c, TensorId x, const Mamba2& m) {
  const Split in = projected(g, c, x);
  const TensorId acted = causal_convolution(g, c, in.mixed, {.taps = m.conv_kernel, .activates = true}).out;
  const TensorId out = finish(g, c, fused_scan(g, in, acted, m), in.gate, m, g.at(acted).size.type);
  g.hold({in.gate});
  return out;
}

}  // namespace

TensorId mamba2(Graph& g, const BlockContext& c, TensorId x, const Mamba2& m) {
  return c.framework.recurrence == RecurrenceKernel::fused ? fused_mamba2(g, c, x, m) : composite_mamba2(g, c, x, m);
}

namespace {

// transformers/models/jamba/modeling_jamba.py, mamba_selective_scan, in PyTorch operations: four tensors of width x
// state a token (the exponent's result, the step times B, that times the input, and the states that the loop over
// tokens makes), of which backward keeps the first two and the states.
TensorId composite_selective_scan(Graph& g, TensorId value, TensorId step, TensorId b_and_c, Dim state) {
  const Size wide = every_token(Symbol::i).times(static_cast<std::int32_t>(state));
  const TensorId decay = keeps_result(g, g.apply({step}, wide, kRecurrent), wide);
  const TensorId written = product(g, step, b_and_c, wide);
  const TensorId entered = product(g, written, cast(g, value, ElementType::fp32, kRecurrent), wide);
  const TensorId states = product(g, decay, entered, wide);
  const TensorId out = product(g, states, b_and_c, every_token(Symbol::i));
  g.hold({decay, entered});
  return out;
}

// mamba_ssm/ops/selective_scan_interface.py, SelectiveScanFn: keeps the input, the step sizes, B, C, the gate, its
// ungated output, and two numbers a state every 2,048 tokens. Inputs are copied so that time comes last.
TensorId fused_selective_scan(Graph& g, TensorId value, TensorId step, TensorId b_and_c, TensorId gate) {
  const ElementType type = g.at(value).size.type;
  const TensorId z = copy(g, gate);
  const TensorId ungated = g.tensor(every_token(Symbol::i, type), kRecurrent, false);
  const TensorId states = g.tensor(chunked(Symbol::n, 2), kRecurrent, false);
  const TensorId out = g.tensor(every_token(Symbol::i, type), kRecurrent, g.at(value).requires_grad);
  g.run({value, step, b_and_c, z}, {out, ungated, states}, {.saves = {value, step, b_and_c, z, ungated, states}});
  return out;
}

// dt, B and C from one projection, with a norm each in Jamba.
struct Selected {
  TensorId step, b_and_c;
};
Selected select(Graph& g, const BlockContext& c, TensorId value, const Mamba1& m) {
  const TensorId rank =
      linear(g, c, value, {.module = Module::x_proj, .in = {Symbol::i}, .out = {Symbol::d}, .component = kRecurrent});
  const TensorId b_and_c = g.apply({value}, every_token(Symbol::k, g.at(rank).size.type).times(2), kRecurrent);
  const TensorId step_input = m.inner_norms ? norm(g, c, rank, {Symbol::d}) : rank;
  const TensorId normed = m.inner_norms ? norm(g, c, b_and_c, {Symbol::k, 2}) : b_and_c;
  const TensorId step = linear(
      g, c, step_input, {.module = Module::dt_proj, .in = {Symbol::d}, .out = {Symbol::i}, .component = kRecurrent});
  return {step, normed};
}

}  // namespace

TensorId mamba1(Graph& g, const BlockContext& c, TensorId x, const Mamba1& m) {
  const TensorId all =
      linear(g, c, x, {.module = Module::in_proj, .in = {Symbol::h}, .out = {Symbol::j}, .component = kRecurrent});
  const Size half = every_token(Symbol::i, g.at(all).size.type);
  const auto [mixed, gate] = g.split(all, half, half);
  const TensorId value = causal_convolution(g, c, mixed, {.taps = m.conv_kernel, .activates = true}).out;
  const Selected s = select(g, c, value, m);
  const ElementType type = g.at(value).size.type;
  if (c.framework.recurrence == RecurrenceKernel::fused) {
    return out_projection(g, c, fused_selective_scan(g, value, s.step, s.b_and_c, gate));
  }
  const TensorId softened = unary(g, cast(g, s.step, ElementType::fp32, kRecurrent), kRecurrent);
  const TensorId scanned = composite_selective_scan(g, value, softened, s.b_and_c, m.state_size);
  return out_projection(g, c, cast(g, gated(g, scanned, gate), type, kRecurrent));
}

}  // namespace vramplan::ops
