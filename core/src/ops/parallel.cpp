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

// Parts of the vocabulary arrive rank after rank, and are joined token by token (torchtitan's disable_loss_parallel;
// Aleph-Alpha/scaling, core/nn/linear/utils.py, all_concat).
TensorId gather_logits(Graph& g, const BlockContext& c, TensorId logits) {
  if (!c.gathers_logits || c.tensor_ranks == 1) return logits;
  const Size all = g.at(logits).size.times(static_cast<std::int32_t>(c.tensor_ranks));
  return g.apply({logits}, all, Component::logits, {.forward = {Component::logits, {all}}});
}

}  // namespace vramplan::ops
