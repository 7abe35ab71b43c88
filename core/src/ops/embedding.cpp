// Token (and learned position) embeddings. Backward makes a dense gradient of the whole table.
#include "builders.hpp"

namespace vramplan {

Graph embedding_graph(const BlockContext& c) {
  if (c.framework.megatron_modules) return megatron_embedding_graph(c);
  using namespace ops;
  Graph g(widths_for(c, nullptr));
  const Size table{{Symbol::V, Symbol::h, Symbol::one, Symbol::one}, 1, c.tables};
  // A table that is tied to the head has its gradient already, from there: the second one is added and dropped. A copy
  // that adapters train is not tied, and a classifier's head is no table.
  const bool tied = c.model->tie_word_embeddings && c.trains_base && c.framework.loss != LossKind::score;
  const bool adds = (tied && !c.uses_up_gradients) || c.accumulates;
  OpTraits traits;
  if (c.trains_embedding && adds) traits.backward = {Component::working_memory, {table}};
  if (c.trains_embedding && !adds) traits.parameter_gradients = g.size_in_bytes(table);
  g.output = g.tensor(token_size({Symbol::h}, c.residual), Component::activations_embedding, c.gradient_enters);
  g.run({}, {g.output}, traits);
  g.output = leave_matrices(g, c, g.output);
  if (c.framework.drops_out && c.model->dropout.embedding > 0)
    g.output = dropout(g, g.output, Component::activations_embedding);
  g.hold_to_end(g.output);
  return g;
}

}  // namespace vramplan
