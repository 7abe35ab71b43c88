// Between the residual stream and matrices that ranks share: Megatron's f and g (arXiv 1909.08053), with sequence
// parallelism an all-gather and a reduce-scatter (arXiv 2205.05198).
#include "builders.hpp"

namespace vramplan::ops {

// Without sequence parallelism the stream is whole already, and its gradient is summed in place.
TensorId enter_matrices(Graph& g, const BlockContext& c, TensorId x) {
  if (!c.sequence_parallel) return x;
  return g.apply({x}, token_size({Symbol::h}, g.at(x).size.type), Component::activations_residual);
}

TensorId leave_matrices(Graph& g, const BlockContext& c, TensorId x) {
  if (!c.sequence_parallel) return x;
  const TensorId scattered = g.apply({x}, token_size(stream_of(c), g.at(x).size.type), Component::activations_residual);
  if (c.caches) g.cache(scattered);
  return scattered;
}

}  // namespace vramplan::ops
