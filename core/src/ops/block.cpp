// One decoder layer: norms, mixers and MLPs around the residual stream.
#include <algorithm>

#include "builders.hpp"

namespace vramplan {
namespace {

using namespace ops;

TensorId feed_forward(Graph& g, const BlockContext& c, TensorId x, const Mlp& mlp) {
  if (const auto* dense = std::get_if<DenseMlp>(&mlp)) return dense_mlp(g, c, x, *dense);
  return moe_mlp(g, c, x, std::get<MoeMlp>(mlp));
}

TensorId drop_residual(Graph& g, const BlockContext& c, TensorId x) {
  return c.framework.drops_out && c.model->dropout.residual > 0 ? dropout(g, x, Component::activations_residual) : x;
}

// stream + post_norm(dropout(branch(pre_norm(stream))))
template <class Branch>
TensorId residual_branch(Graph& g, const BlockContext& c, TensorId stream, Branch branch) {
  const NormPlacement placement = c.model->norm_placement;
  const TensorId normed = placement == NormPlacement::post_branch ? stream : norm(g, c, stream, stream_of(c));
  TensorId out = drop_residual(g, c, leave_matrices(g, c, branch(enter_matrices(g, c, normed))));
  g.hold({normed});  // by the name that the layer calls the branch with
  if (placement != NormPlacement::pre) out = norm(g, c, out, stream_of(c));
  return add(g, stream, out);
}

TensorId all_mixers(Graph& g, const BlockContext& c, TensorId x, const LayerGroup& group) {
  TensorId sum = kNoTensor;
  for (const Mixer& mixer : group.mixers) {
    const TensorId out = mix(g, c, x, mixer);
    sum = sum == kNoTensor ? out : add(g, sum, out);
  }
  return sum;
}

TensorId all_mlps(Graph& g, const BlockContext& c, TensorId x, const LayerGroup& group) {
  TensorId sum = kNoTensor;
  for (const Mlp& mlp : group.mlps) {
    const TensorId out = feed_forward(g, c, x, mlp);
    sum = sum == kNoTensor ? out : add(g, sum, out);
  }
  return sum;
}

TensorId parallel_block(Graph& g, const BlockContext& c, const LayerGroup& group) {
  const TensorId first = norm(g, c, g.input, stream_of(c));
  const TensorId second = group.norms > 1 ? norm(g, c, g.input, stream_of(c)) : first;
  const TensorId mixed =
      drop_residual(g, c, leave_matrices(g, c, all_mixers(g, c, enter_matrices(g, c, first), group)));
  const TensorId fed = drop_residual(g, c, leave_matrices(g, c, all_mlps(g, c, enter_matrices(g, c, second), group)));
  g.hold({first, second});
  return add(g, add(g, mixed, fed), g.input);
}

TensorId sequential_block(Graph& g, const BlockContext& c, const LayerGroup& group) {
  TensorId stream = g.input;
  if (!group.mixers.empty()) {
    stream = residual_branch(g, c, stream, [&](TensorId x) { return all_mixers(g, c, x, group); });
  }
  if (!group.mlps.empty()) {
    stream = residual_branch(g, c, stream, [&](TensorId x) { return all_mlps(g, c, x, group); });
  }
  return stream;
}

}  // namespace

Graph block_graph(const BlockContext& c, const LayerGroup& group, bool checkpointed) {
  if (c.framework.megatron_modules) return megatron_block_graph(c, group, checkpointed);
  Graph g(widths_for(c, &group));
  const Size stream = token_size(stream_of(c), c.residual);
  g.input = checkpointed ? g.external(stream, Component::checkpoints, c.gradient_enters)
                         : g.tensor(stream, Component::activations_residual, c.gradient_enters);
  const bool parallel = c.model->parallel_residual && !group.mixers.empty() && !group.mlps.empty();
  g.output = parallel ? parallel_block(g, c, group) : sequential_block(g, c, group);
  if (c.keeps_streams) g.keep(g.input);
  g.hold_to_end(g.input);
  g.hold_to_end(g.output);
  if (c.framework.compiled_blocks) g.drop_idle_cache();
  if (checkpointed && recomputes_before_backward(c.framework)) g.hold_output_in_backward();
  return g;
}

}  // namespace vramplan
