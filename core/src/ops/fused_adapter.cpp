// Adapted linear layers as Unsloth runs them (unsloth/kernels/fast_lora.py): q, k and v, a gated MLP and the output
// projection are one autograd function each. A function saves its input and what the activation needs, adds the
// adapter's product into the output, and dequantizes the frozen weights one after the other: in forward into a buffer
// that all layers share (states/weights.cpp), in backward into a new tensor. FOAK's functions (fms-acceleration), made
// from those, differ as AdapterFusion says.
#include <algorithm>

#include "builders.hpp"

namespace vramplan::ops {
namespace {

constexpr Component kAdapter = Component::activations_adapter;

// Both small matrices of every layer, all of which read the same input.
void add_adapter_gradients(const Graph& g, const BlockContext& c, std::initializer_list<Linear> layers,
                           OpTraits& traits) {
  const auto matrix = [&](Width width, std::int32_t times) {
    return Size{{width.symbol, Symbol::r, Symbol::one, Symbol::one}, width.multiplier * times, c.adapter.type};
  };
  Workspace made(Component::working_memory, {matrix(layers.begin()->in, static_cast<std::int32_t>(layers.size()))});
  for (const Linear& w : layers) made.add(matrix(w.out, 1));
  for (const Size& size : made.items()) {
    if (c.accumulates) {
      traits.backward.add(size);
    } else {
      traits.parameter_gradients += g.size_in_bytes(size);
    }
  }
}

Polynomial flops_of(Graph& g, std::initializer_list<Linear> layers) {
  Polynomial sum;
  const Polynomial tokens = g.polynomial(token_size({Symbol::one}, ElementType::int8));
  for (const Linear& w : layers) {
    const auto side = [&](Width width) { return g.widths()[width.symbol] * width.multiplier; };
    const std::int64_t small = saturating_multiply(g.widths()[Symbol::r], side(w.in) + side(w.out));
    sum += tokens * (saturating_add(saturating_multiply(side(w.in), side(w.out)), small) * 2);
  }
  return sum;
}

Size dequantized(const BlockContext& c, const Linear& w) {
  return {{w.in.symbol, w.out.symbol, Symbol::one, Symbol::one}, w.in.multiplier * w.out.multiplier, c.compute};
}

// Forward: a frozen weight in the compute type, where there is no buffer for it.
Workspace forward_workspace(const BlockContext& c, const Linear& largest) {
  Workspace w(Component::dequantized_weights, {});
  if (c.quantized && c.framework.adapter_fusion == AdapterFusion::foak) w.add(dequantized(c, largest));
  return w;
}

// Backward: the largest frozen weight in the compute type, and the gradients between both small matrices.
Workspace backward_workspace(const BlockContext& c, const Linear& largest, std::int32_t layers) {
  Workspace w(Component::dequantized_weights, {token_size({Symbol::r, layers}, c.compute)});
  if (c.quantized) w.add(dequantized(c, largest));
  return w;
}

// What dropout keeps for backward of a layer with this input: a mask, both passes making the dropped copy; or the copy.
TensorId keep_dropped(Graph& g, const BlockContext& c, TensorId x, OpTraits& traits) {
  if (!c.adapter.dropout) return kNoTensor;
  const Size size = g.at(x).size;
  if (c.framework.adapter_fusion == AdapterFusion::foak) return g.tensor(size, kAdapter, false);
  if (traits.forward.count == 0) {
    traits.forward.add(size);
    traits.backward.add(size);
  }
  return g.tensor(size.as(ElementType::bool8), kAdapter, false);
}

void save_all(Graph& g, std::initializer_list<TensorId> kept) {
  for (const TensorId t : kept) {
    if (t == kNoTensor) continue;
    g.save(t);
  }
}

}  // namespace

bool fuses(const BlockContext& c, std::initializer_list<Linear> layers) {
  if (c.framework.adapter_fusion == AdapterFusion::none || c.adapter.dora) return false;
  return std::all_of(layers.begin(), layers.end(), [&](const Linear& w) { return c.adapter.on(w.module) && !w.bias; });
}

std::array<TensorId, 3> fused_qkv(Graph& g, const BlockContext& c, TensorId x, const std::array<Linear, 3>& qkv) {
  const TensorId in = cast(g, x, c.compute, kAdapter);
  OpTraits traits{.saves = {in},
                  .gradient_in_place = true,
                  .forward = forward_workspace(c, qkv[0]),
                  .backward = backward_workspace(c, qkv[0], 3),
                  .flops = flops_of(g, {qkv[0], qkv[1], qkv[2]})};
  add_adapter_gradients(g, c, {qkv[0], qkv[1], qkv[2]}, traits);
  std::array<TensorId, 3> out{}, masks{};
  for (std::size_t i = 0; i < 3; ++i) {
    out[i] = g.tensor(token_size(qkv[i].out, c.compute), qkv[i].component, true);
    masks[i] = keep_dropped(g, c, in, traits);
  }
  g.run({in}, {out[0], out[1], out[2]}, traits);
  save_all(g, {masks[0], masks[1], masks[2]});
  return out;
}

TensorId fused_output(Graph& g, const BlockContext& c, TensorId x, const Linear& w) {
  const TensorId in = cast(g, x, c.compute, kAdapter);
  OpTraits traits{.saves = {in},
                  .forward = forward_workspace(c, w),
                  .backward = backward_workspace(c, w, 1),
                  .flops = flops_of(g, {w})};
  add_adapter_gradients(g, c, {w}, traits);
  const TensorId mask = keep_dropped(g, c, in, traits);
  const TensorId out = g.tensor(token_size(w.out, c.compute), w.component, true);
  g.run({in}, {out}, traits);
  save_all(g, {mask});
  return out;
}

// The product of gate and up is not saved: backward makes it again over the gradient that came through `down`, and that
// tensor stays until the function ends, as does the gradient of the output, which is the stream's own where no norm
// follows.
TensorId fused_gated_mlp(Graph& g, const BlockContext& c, TensorId x, const Linear& gate, const Linear& up,
                         const Linear& down) {
  const TensorId in = cast(g, x, c.compute, kAdapter);
  OpTraits first{.saves = {in},
                 .gradient_in_place = true,
                 .forward = forward_workspace(c, up),
                 .backward = backward_workspace(c, up, 2),
                 .flops = flops_of(g, {gate, up})};
  first.backward.add(token_size(down.in, c.compute));
  if (c.model->norm_placement != NormPlacement::pre) first.backward.add(token_size(down.out, c.compute));
  add_adapter_gradients(g, c, {gate, up}, first);
  const TensorId gated = g.tensor(token_size(gate.out, c.compute), gate.component, true);
  const TensorId raised = g.tensor(token_size(up.out, c.compute), up.component, true);
  const TensorId gate_mask = keep_dropped(g, c, in, first);
  const TensorId up_mask = keep_dropped(g, c, in, first);
  g.run({in}, {gated, raised}, first);
  save_all(g, {gate_mask, up_mask});
  const TensorId product = gated_kernel(g, gated, raised, gate.component);

  OpTraits last{.forward = forward_workspace(c, down), .flops = flops_of(g, {down})};
  last.backward = Workspace(Component::working_memory, {token_size({Symbol::r, 1}, c.compute)});
  add_adapter_gradients(g, c, {down}, last);
  const TensorId mask = keep_dropped(g, c, product, last);
  const TensorId out = g.tensor(token_size(down.out, c.compute), down.component, true);
  g.run({product}, {out}, last);
  save_all(g, {mask});
  return out;
}

}  // namespace vramplan::ops
