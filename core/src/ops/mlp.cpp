// Dense MLPs: gated (SwiGLU, Shazeer 2020, arXiv 2002.05202) and plain.
#include "builders.hpp"

namespace vramplan::ops {
namespace {

constexpr Component kMlp = Component::activations_mlp;

// Gate and up in one projection: both halves are views that keep the whole tensor.
TensorId fused_projection(Graph& g, const BlockContext& c, TensorId x, const DenseMlp& mlp) {
  const TensorId both = linear(
      g, c, x,
      {.module = Module::gate_up, .in = {Symbol::h}, .out = {Symbol::f, 2}, .bias = mlp.bias, .component = kMlp});
  const Size half = token_size({Symbol::f}, g.at(both).size.type);
  const auto [gate, up] = g.split(both, half, half);
  return multiply(g, activation(g, c, gate, mlp.activation, kMlp), up, kMlp);
}

TensorId gated_product(Graph& g, const BlockContext& c, TensorId gate, TensorId up, Activation kind) {
  if (c.framework.gated_mlp == GatedMlpKernel::fused) {  // one kernel keeps gate and up, backward works in place
    return g.apply({gate, up}, g.at(gate).size, kMlp, {.saves = {gate, up}});
  }
  return multiply(g, activation(g, c, gate, kind, kMlp), up, kMlp);
}

}  // namespace

TensorId dense_mlp(Graph& g, const BlockContext& c, TensorId x, const DenseMlp& mlp) {
  const Width h{Symbol::h};
  const Width f{Symbol::f};
  TensorId inner = kNoTensor;
  if (mlp.gated && mlp.fused_gate_up) {
    inner = fused_projection(g, c, x, mlp);
  } else if (mlp.gated) {
    const TensorId gate =
        linear(g, c, x, {.module = Module::gate, .in = h, .out = f, .bias = mlp.bias, .component = kMlp});
    if (c.framework.gated_mlp == GatedMlpKernel::fused) {
      const TensorId up =
          linear(g, c, x, {.module = Module::up, .in = h, .out = f, .bias = mlp.bias, .component = kMlp});
      inner = gated_product(g, c, gate, up, mlp.activation);
    } else {  // the activation runs before the second projection
      const TensorId acted = activation(g, c, gate, mlp.activation, kMlp);
      const TensorId up =
          linear(g, c, x, {.module = Module::up, .in = h, .out = f, .bias = mlp.bias, .component = kMlp});
      inner = multiply(g, acted, up, kMlp);
    }
  } else {
    const TensorId up = linear(g, c, x, {.module = Module::up, .in = h, .out = f, .bias = mlp.bias, .component = kMlp});
    inner = activation(g, c, up, mlp.activation, kMlp);
  }
  return linear(g, c, inner, {.module = Module::down, .in = f, .out = h, .bias = mlp.bias, .component = kMlp});
}

}  // namespace vramplan::ops
