// Low-rank adapters as PEFT runs them (peft/tuners/lora/layer.py, bnb.py, dora.py).
// LoRA: Hu et al. 2021 (arXiv 2106.09685); DoRA: Liu et al. 2024 (arXiv 2402.09353).
#include "builders.hpp"

namespace vramplan::ops {
namespace {

constexpr Component kAdapter = Component::activations_adapter;

// One of the two small matrices: trained, in the adapter's type, cast under autocast.
TensorId small_linear(Graph& g, const BlockContext& c, TensorId x, Width in, Width out, const Linear& w) {
  const Size weight{{w.copies, in.symbol, out.symbol, Symbol::one}, in.multiplier * out.multiplier, c.adapter.type};
  const bool casts = c.framework.autocast && c.adapter.type != c.compute;
  const TensorId copied = casts ? autocast_copy(g, c, weight, true) : kNoTensor;
  const TensorId entered = c.framework.autocast ? cast(g, x, c.compute, kAdapter) : x;
  OpTraits traits;
  if (!casts) add_parameter_gradient(g, c, weight, traits);
  const Size tokens{{Symbol::b, Symbol::s, w.per_token, Symbol::one}, 1, ElementType::int8};
  const std::int64_t elements = g.size_in_bytes(weight).value / bytes_per_element(c.adapter.type);
  traits.flops = g.polynomial(tokens) * elements * 2;
  const TensorId result = g.tensor(token_size(out, g.at(entered).size.type, w.per_token), kAdapter, true);
  if (casts) {
    g.run({entered, copied}, {result}, traits);
    if (g.at(entered).requires_grad) g.save(copied);
  } else {
    g.run({entered}, {result}, traits);
  }
  g.save(entered);
  return result;
}

TensorId dropout(Graph& g, TensorId x) {
  const Size size = g.at(x).size;
  const TensorId mask = g.tensor(size.as(ElementType::bool8), kAdapter, false);
  const TensorId out = g.tensor(size, kAdapter, g.at(x).requires_grad);
  g.run({x}, {out, mask}, {.saves = {mask}});
  return out;
}

// DoRA takes the norm of the merged weight at every pass (peft/tuners/lora/dora.py): the update as a matrix comes from
// an identity of in x in, and the weight, the scaled update and their sum exist together.
Workspace merged_weight(const BlockContext& c, const Linear& w) {
  const Size identity{
      {w.in.symbol, w.in.symbol, Symbol::one, Symbol::one}, w.in.multiplier * w.in.multiplier, c.adapter.type};
  const Size weight{
      {w.in.symbol, w.out.symbol, Symbol::one, Symbol::one}, w.in.multiplier * w.out.multiplier, c.adapter.type};
  const Size update = c.framework.autocast ? weight.as(c.compute) : weight;
  return {Component::working_memory, {identity, weight.times(2), update.times(2)}};
}

// base + (m - 1) * base + m * update, with m = magnitude / norm: m is trained, so that both sides of its products are
// kept.
TensorId dora(Graph& g, const BlockContext& c, TensorId base, TensorId update, const Linear& w) {
  const Size wide = g.at(base).size.as(c.adapter.type);
  OpTraits magnitude{.saves = {base}, .forward = merged_weight(c, w)};
  add_parameter_gradient(
      g, c, Size{{w.out.symbol, Symbol::one, Symbol::one, Symbol::one}, w.out.multiplier, c.adapter.type}, magnitude);
  const TensorId scaled_base = g.tensor(wide, kAdapter, true);
  g.run({base}, {scaled_base}, magnitude);
  const TensorId scaled_update = g.apply({update}, wide, kAdapter, {.saves = {update}});
  const TensorId sum = add(g, scaled_base, scale(g, scaled_update));
  return cast(g, add(g, base, sum), g.at(base).size.type, kAdapter);
}

}  // namespace

TensorId adapter(Graph& g, const BlockContext& c, TensorId x, TensorId base, const Linear& w) {
  const Width rank{Symbol::r, 1};
  const TensorId in = c.framework.adapter_casts_input ? cast(g, x, c.adapter.type, kAdapter) : x;
  const TensorId dropped = c.adapter.dropout ? dropout(g, in) : in;
  const TensorId middle = small_linear(g, c, dropped, w.in, rank, w);
  g.hold({dropped});
  const TensorId update = small_linear(g, c, middle, rank, w.out, w);
  g.hold({in, x});  // the call of the module holds what it was given
  if (c.adapter.dora) return dora(g, c, base, update, w);
  return cast(g, add(g, base, scale(g, update)), g.at(base).size.type, kAdapter);
}

}  // namespace vramplan::ops
