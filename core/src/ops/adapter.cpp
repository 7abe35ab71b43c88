// Low-rank adapters as PEFT runs them (peft/tuners/lora/layer.py, bnb.py, dora.py), and litgpt's on a fused q, k, v
// projection (lit_gpt/lora.py).
// LoRA: Hu et al. 2021 (arXiv 2106.09685); DoRA: Liu et al. 2024 (arXiv 2402.09353).
#include <utility>

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

// What the adapters of a fused q, k, v projection reach: one of its parts each.
struct Reached {
  std::array<Symbol, 3> widths{};
  std::int32_t count = 0;
};

Reached reached_by(const AdapterSettings& adapter) {
  constexpr std::array<std::pair<Module, Symbol>, 3> kParts{
      {{Module::q, Symbol::q}, {Module::k, Symbol::kv}, {Module::v, Symbol::v}}};
  Reached reached;
  for (const auto& [module, width] : kParts) {
    if (adapter.on(module) || adapter.on(Module::qkv)) {
      reached.widths[static_cast<std::size_t>(reached.count++)] = width;
    }
  }
  return reached;
}

// The second small matrices, as one grouped convolution.
std::array<TensorId, 3> grouped_updates(Graph& g, const BlockContext& c, TensorId middle, const Reached& reached) {
  std::array<TensorId, 3> updates{kNoTensor, kNoTensor, kNoTensor};
  for (std::int32_t i = 0; i < reached.count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const Size weight{{Symbol::r, reached.widths[at], Symbol::one, Symbol::one}, 1, c.adapter.type};
    OpTraits traits{.saves = {middle}};
    add_parameter_gradient(g, c, weight, traits);
    updates[at] = g.apply({middle}, token_size({reached.widths[at]}, g.at(middle).size.type), kAdapter, traits);
  }
  return updates;
}

// The updates copied to their columns of a tensor as wide as the projection, zero elsewhere. index_copy keeps what it
// copies and the column numbers.
TensorId zero_padded(Graph& g, const std::array<TensorId, 3>& updates, const Reached& reached) {
  const Size wide = token_size({Symbol::qkv}, g.at(updates[0]).size.type);
  const TensorId padded = g.tensor(wide, kAdapter, true);
  const auto columns = [&](std::size_t i) {
    return g.tensor({{reached.widths[i], Symbol::one, Symbol::one, Symbol::one}, 1, ElementType::int64}, kAdapter,
                    false);
  };
  const Workspace zeros(Component::working_memory, {wide});
  const TensorId first = columns(0);
  if (reached.count == 1) {
    g.run({updates[0]}, {padded, first}, {.saves = {updates[0], first}, .forward = zeros});
  } else {
    const TensorId second = columns(1);
    g.run({updates[0], updates[1]}, {padded, first, second},
          {.saves = {updates[0], updates[1], first, second}, .forward = zeros});
  }
  return padded;
}

TensorId joined(Graph& g, const std::array<TensorId, 3>& updates) {
  return g.apply({updates[0], updates[1], updates[2]}, token_size({Symbol::qkv}, g.at(updates[0]).size.type), kAdapter);
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

TensorId fused_qkv(Graph& g, const BlockContext& c, TensorId x, bool bias) {
  const Linear w{.module = Module::other, .in = {Symbol::h}, .out = {Symbol::qkv}, .bias = bias};
  const TensorId base = linear(g, c, x, w);
  const Reached reached = reached_by(c.adapter);
  if (reached.count == 0) return base;
  const TensorId dropped = c.adapter.dropout ? dropout(g, x) : x;
  const TensorId middle = small_linear(g, c, dropped, w.in, {Symbol::r, reached.count}, w);
  const std::array<TensorId, 3> updates = grouped_updates(g, c, middle, reached);
  const TensorId wide = reached.count == 3 ? joined(g, updates) : zero_padded(g, updates, reached);
  return add(g, base, scale(g, wide));
}

}  // namespace vramplan::ops
