// Token (and learned position) embeddings. Backward makes a dense gradient of the whole table.
#include "builders.hpp"

namespace vramplan {

namespace {

// Whether the head is a linear layer as it comes, whose gradient is a view. A cast, a sum over chunks and a loss that
// makes the gradient itself give tensors of their own.
bool head_makes_view(const BlockContext& c) {
  if (c.framework.autocast && c.tables != c.compute) return false;
  switch (c.framework.loss) {
    case LossKind::in_type_chunked:
    case LossKind::fused_linear:
    case LossKind::tiled:
    case LossKind::vocab_parallel:
    case LossKind::score: return false;
    case LossKind::upcast_full:
    case LossKind::kept_chunked:
    case LossKind::fused_kernel:
    case LossKind::answer_log_probs:
    case LossKind::log_probs: return true;
  }
  return false;
}

}  // namespace

Graph embedding_graph(const BlockContext& c) {
  if (c.framework.megatron_modules) return megatron_embedding_graph(c);
  using namespace ops;
  Graph g(widths_for(c, nullptr));
  const Size table{{Symbol::V, Symbol::h, Symbol::one, Symbol::one}, 1, c.tables};
  // A table that is tied to the head has its gradient already, from there: the second one is added and dropped. A copy
  // that adapters train is not tied, and a classifier's head is no table.
  const bool tied = c.model->tie_word_embeddings && c.trains_base && c.framework.loss != LossKind::score;
  const bool adds = (tied && !c.uses_up_gradients) || c.accumulates;
  g.output = g.tensor(token_size({Symbol::h}, c.residual), Component::activations_embedding, c.gradient_enters);
  if (c.trains_embedding) {
    const Workspace sum = tied && head_makes_view(c) ? Workspace(Component::gradients, {table}) : Workspace();
    g.run({ops::trained_weight(g, table, adds, sum)}, {g.output}, {});
  } else {
    g.run({}, {g.output}, {});
  }
  g.output = leave_matrices(g, c, g.output);
  if (c.framework.drops_out && c.model->dropout.embedding > 0)
    g.output = dropout(g, g.output, Component::activations_embedding);
  g.hold_to_end(g.output);
  return g;
}

}  // namespace vramplan
