// Dense MLPs: gated (SwiGLU, Shazeer 2020, arXiv 2002.05202) and plain.
#include "builders.hpp"

namespace vramplan::ops {

// Liger and Unsloth have kernels for SiLU and both kinds of GELU (liger_kernel/ops/swiglu.py, geglu.py).
bool has_gated_kernel(const BlockContext& c, Activation kind) {
  const bool known = kind == Activation::silu || kind == Activation::gelu || kind == Activation::gelu_tanh;
  return c.framework.gated_mlp == GatedMlpKernel::fused && known;
}

// Keeps gate and up; backward writes their gradients over them.
TensorId gated_kernel(Graph& g, TensorId gate, TensorId up, Component component) {
  return g.apply({gate, up}, g.at(gate).size, component, {.saves = {gate, up}, .gradient_in_place = true});
}

namespace {

constexpr Component kMlp = Component::activations_mlp;

// Gate and up in one projection: both halves are views that keep the whole tensor. A kernel wants them contiguous:
// copies, which are then what it keeps.
TensorId fused_projection(Graph& g, const BlockContext& c, TensorId x, const DenseMlp& mlp) {
  const TensorId both = linear(
      g, c, x,
      {.module = Module::gate_up, .in = {Symbol::h}, .out = {Symbol::f, 2}, .bias = mlp.bias, .component = kMlp});
  const Size half = token_size({Symbol::f}, g.at(both).size.type);
  const auto [gate, up] = g.split(both, half, half);
  if (!has_gated_kernel(c, mlp.activation)) return multiply(g, activation(g, c, gate, mlp.activation, kMlp), up, kMlp);
  const TensorId product = gated_kernel(g, copy(g, gate), copy(g, up), kMlp);
  g.hold({both});
  return product;
}

// The activation runs before the second projection.
TensorId gated_product(Graph& g, const BlockContext& c, TensorId x, const Linear& gate, const Linear& up,
                       Activation kind) {
  const TensorId opened = linear(g, c, x, gate);
  if (!has_gated_kernel(c, kind)) {
    const TensorId acted = activation(g, c, opened, kind, kMlp);
    return multiply(g, acted, linear(g, c, x, up), kMlp);
  }
  return gated_kernel(g, opened, linear(g, c, x, up), kMlp);
}

}  // namespace

TensorId dense_mlp(Graph& g, const BlockContext& c, TensorId x, const DenseMlp& mlp) {
  const Width h{Symbol::h};
  const Width f{Symbol::f};
  const Linear gate{.module = Module::gate, .in = h, .out = f, .bias = mlp.bias, .component = kMlp};
  const Linear up{.module = Module::up, .in = h, .out = f, .bias = mlp.bias, .component = kMlp};
  const Linear down{.module = Module::down, .in = f, .out = h, .bias = mlp.bias, .component = kMlp};
  if (!mlp.gated) return linear(g, c, activation(g, c, linear(g, c, x, up), mlp.activation, kMlp), down);
  if (mlp.fused_gate_up) return linear(g, c, fused_projection(g, c, x, mlp), down);
  if (has_gated_kernel(c, mlp.activation) && fuses(c, {gate, up, down}))
    return fused_gated_mlp(g, c, x, gate, up, down);
  return linear(g, c, gated_product(g, c, x, gate, up, mlp.activation), down);
}

}  // namespace vramplan::ops
