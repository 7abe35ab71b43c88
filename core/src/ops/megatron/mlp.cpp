// MLP (megatron/core/transformer/mlp.py): norm and first matrix in one function, activation, second matrix.
#include "modules.hpp"

namespace vramplan::ops::megatron {

TensorId dense_mlp(Graph& g, const BlockContext& c, TensorId stream, const DenseMlp& mlp) {
  constexpr Component kMlp = Component::activations_mlp;
  Again again(g);
  const TensorId wide = norm_linear(g, c, stream,
                                    {.module = mlp.gated ? Module::gate_up : Module::up,
                                     .in = {Symbol::h},
                                     .out = {Symbol::f, mlp.gated ? 2 : 1},
                                     .bias = mlp.bias,
                                     .component = kMlp});
  const TensorId inner = activation(g, c, wide, token_size({Symbol::f}, g.at(wide).size.type), kMlp, kNoTensor);
  g.hold({wide});
  const TensorId out =
      row_linear(g, c, inner,
                 {.module = Module::down, .in = {Symbol::f}, .out = {Symbol::h}, .bias = mlp.bias, .component = kMlp});
  again.stop(g);
  if (c.recomputes(RecomputeModule::mlp)) again.checkpoint(g);
  return out;
}

}  // namespace vramplan::ops::megatron
