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
  const TensorId result = g.tensor(token_size(out, g.at(entered).size.type, w.per_token, w.tokens), kAdapter, true);
  if (casts) {
    g.run({entered, copied}, {result}, traits);
    if (g.at(entered).requires_grad) g.save(copied);
  } else {
    g.run({entered}, {result}, traits);
  }
  g.save(entered);
  return result;
}

// What DoRA's forward holds beside its results.
struct Merged {
  TensorId identity, update, weight;
};

Size matrix(Width in, Width out, ElementType type) {
  return {{in.symbol, out.symbol, Symbol::one, Symbol::one}, in.multiplier * out.multiplier, type};
}

// DoRA takes the norm of the merged weight at every pass (peft/tuners/lora/dora.py): the update as a matrix comes from
// an identity of in x in, and the weight, the update, its product with a number and the sum exist together.
Merged merge(Graph& g, const BlockContext& c, const Linear& w) {
  const ElementType wide = c.adapter.type;
  const ElementType narrow = c.framework.autocast ? c.compute : wide;
  const Size identity = matrix(w.in, w.in, wide);
  const Size weight = matrix(w.in, w.out, wide);
  Merged m{};
  const TensorId made = g.apply({}, identity, kAdapter);
  m.identity = cast(g, made, narrow, kAdapter);  // what the update's graph keeps
  const TensorId update = g.apply({m.identity}, weight.as(narrow), kAdapter);
  if (made != m.identity) g.hold({made});
  m.update = cast(g, update, wide, kAdapter);
  const bool quantized = c.quantized && w.quantizable;
  m.weight = quantized || c.weights != wide
                 ? g.apply({}, weight, kAdapter,
                           {.forward = quantized ? Workspace{Component::dequantized_weights, {weight.as(c.compute)}}
                                                 : Workspace{}})
                 : kNoTensor;
  g.run({}, {}, {.forward = {Component::working_memory, {weight.times(2)}}});
  return m;
}

// With dropout the base runs once more, on the dropped input and the weight in the adapter's type.
TensorId base_of_dropped(Graph& g, const BlockContext& c, TensorId dropped, const Merged& m, const Linear& w) {
  const TensorId in = c.framework.autocast ? cast(g, dropped, c.compute, kAdapter) : dropped;
  const ElementType type = g.at(in).size.type;
  const TensorId weight = c.framework.autocast ? g.apply({}, matrix(w.in, w.out, type), kAdapter) : m.weight;
  const TensorId out = g.apply({in}, token_size(w.out, type), kAdapter, {.flops = matrix_flops(g, w)});
  if (weight != kNoTensor && g.at(in).requires_grad) g.save(weight);
  return out;
}

// x times the magnitude over the norm, which is trained: both sides of the product are kept.
TensorId times_magnitude(Graph& g, TensorId x, Size made, Bytes gradient, const Workspace& more) {
  Workspace backward = more;
  backward.add(made);
  const TensorId out = g.tensor(made, kAdapter, true);
  g.run({x}, {out}, {.saves = {x}, .backward = backward, .parameter_gradients = gradient});
  return out;
}

// base + (m - 1) * base + m * update, with m = magnitude / norm.
TensorId dora(Graph& g, const BlockContext& c, TensorId base, TensorId again, TensorId update, const Linear& w) {
  const Size wide = g.at(base).size.as(c.adapter.type);
  OpTraits magnitude;
  add_parameter_gradient(
      g, c, Size{{w.out.symbol, Symbol::one, Symbol::one, Symbol::one}, w.out.multiplier, c.adapter.type}, magnitude);
  const TensorId scaled_base = times_magnitude(g, again, wide, magnitude.parameter_gradients, magnitude.backward);
  const TensorId scaled_update = times_magnitude(g, update, wide, {}, {});
  return add(g, scaled_base, scale(g, scaled_update));
}

TensorId dora_adapter(Graph& g, const BlockContext& c, TensorId x, TensorId base, const Linear& w) {
  const TensorId in = c.framework.adapter_casts_input ? cast(g, x, c.adapter.type, kAdapter) : x;
  const TensorId dropped = c.adapter.dropout ? dropout(g, in, kAdapter) : in;
  const Merged merged = merge(g, c, w);
  const TensorId update = small_linear(g, c, small_linear(g, c, dropped, w.in, {Symbol::r}, w), {Symbol::r}, w.out, w);
  const TensorId again = c.adapter.dropout ? base_of_dropped(g, c, dropped, merged, w) : base;
  const TensorId change = dora(g, c, base, again, update, w);
  g.hold({merged.identity, merged.update, merged.weight, update, again});
  const TensorId sum = add(g, base, change);
  g.hold({in, dropped, x});
  return cast(g, sum, g.at(base).size.type, kAdapter);
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
  if (c.adapter.dora) return dora_adapter(g, c, x, base, w);
  const TensorId in = c.framework.adapter_casts_input ? cast(g, x, c.adapter.type, kAdapter) : x;
  const TensorId dropped = c.adapter.dropout ? dropout(g, in, kAdapter) : in;
  const TensorId middle = small_linear(g, c, dropped, w.in, {Symbol::r}, w);
  g.hold({dropped});
  const TensorId update = small_linear(g, c, middle, {Symbol::r}, w.out, w);
  g.hold({in, x});                                // the caller's arguments live as long as the call
  const ElementType type = g.at(base).size.type;  // before the graph grows
  return cast(g, add(g, base, scale(g, update)), type, kAdapter);
}

TensorId fused_qkv(Graph& g, const BlockContext& c, TensorId x, bool bias) {
  const Linear w{.module = Module::other, .in = {Symbol::h}, .out = {Symbol::qkv}, .bias = bias};
  const TensorId base = linear(g, c, x, w);
  const Reached reached = reached_by(c.adapter);
  if (reached.count == 0) return base;
  const TensorId dropped = c.adapter.dropout ? dropout(g, x, kAdapter) : x;
  const TensorId middle = small_linear(g, c, dropped, w.in, {Symbol::r, reached.count}, w);
  const std::array<TensorId, 3> updates = grouped_updates(g, c, middle, reached);
  const TensorId wide = reached.count == 3 ? joined(g, updates) : zero_padded(g, updates, reached);
  return add(g, base, scale(g, wide));
}

namespace {

Size merged_factor(const BlockContext& c, Width side, const Linear& w) {
  return {{w.copies, Symbol::r, side.symbol, Symbol::one}, w.merged_ranks * side.multiplier, c.adapter.type};
}

// A factor in the weight's type.
TensorId lowered_factor(Graph& g, const BlockContext& c, Size held) {
  OpTraits traits;
  add_parameter_gradient(g, c, held, traits);
  const TensorId factor = g.tensor(held.as(c.weights), kAdapter, true);
  g.run({}, {factor}, traits);
  return factor;
}

TensorId weight_plus_update(Graph& g, const BlockContext& c, const Linear& w) {
  const Size up = merged_factor(c, w.out, w);
  const Size down = merged_factor(c, w.in, w);
  const Size weight{{w.copies, w.in.symbol, w.out.symbol, Symbol::one}, w.in.multiplier * w.out.multiplier, c.weights};
  const TensorId merged = g.tensor(weight, kAdapter, true);
  if (c.adapter.type == c.weights) {
    OpTraits traits;
    add_parameter_gradient(g, c, up, traits);
    add_parameter_gradient(g, c, down, traits);
    g.run({}, {merged}, traits);
    return merged;
  }
  const TensorId left = lowered_factor(g, c, up);
  const TensorId right = lowered_factor(g, c, down);
  g.run({left, right}, {merged}, {.saves = {left, right}});
  return merged;
}

}  // namespace

// weight + B A is a tensor as large as the weight, kept for the gradient of the input; its own gradient is as large
// again (peft/tuners/lora/layer.py, ParamWrapper).
TensorId merged_linear(Graph& g, const BlockContext& c, TensorId x, const Linear& w) {
  const TensorId merged = weight_plus_update(g, c, w);
  const TensorId in = cast(g, x, c.weights, w.component);
  const TensorId out = g.apply({in, merged}, token_size(w.out, c.weights, w.per_token, w.tokens), w.component,
                               {.saves = {in}, .flops = matrix_flops(g, w)});
  if (g.at(in).requires_grad) g.save(merged);
  return out;
}

}  // namespace vramplan::ops
