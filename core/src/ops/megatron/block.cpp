// A layer, the embedding, and the head with its loss, as megatron/core/models/gpt/gpt_model.py and
// megatron/core/transformer/transformer_layer.py put them together.
#include "modules.hpp"

namespace vramplan {
namespace {

using namespace ops;

struct Mix {
  Graph& g;
  const BlockContext& c;
  TensorId stream;

  TensorId operator()(const Attention& a) const { return megatron::self_attention(g, c, stream, a); }
  TensorId operator()(const LatentAttention& a) const { return megatron::latent_attention(g, c, stream, a); }
  // Recurrent mixers come from the packages that others use too (megatron/core/ssm).
  template <class Recurrent>
  TensorId operator()(const Recurrent& m) const {
    const TensorId normed = enter_matrices(g, c, megatron::norm(g, c, stream));
    const TensorId out = leave_matrices(g, c, mix(g, c, normed, m));
    g.hold({normed});
    return out;
  }
};

TensorId feed_forward(Graph& g, const BlockContext& c, TensorId stream, const Mlp& mlp) {
  if (const auto* dense = std::get_if<DenseMlp>(&mlp)) return megatron::dense_mlp(g, c, stream, *dense);
  return megatron::moe_mlp(g, c, stream, std::get<MoeMlp>(mlp));
}

// stream + dropout(branch(stream)); the branch starts with its norm.
TensorId add_branch(Graph& g, const BlockContext& c, TensorId stream, TensorId out) {
  if (c.model->dropout.residual > 0) out = dropout(g, out, Component::activations_residual);
  return add(g, stream, out);
}

}  // namespace

Graph megatron_block_graph(const BlockContext& c, const LayerGroup& group, bool checkpointed) {
  Graph g(widths_for(c, &group));
  const Size size = megatron::shared_size({Symbol::h}, c.residual);
  g.input = checkpointed ? g.external(size, Component::checkpoints, c.gradient_enters)
                         : g.tensor(size, Component::activations_residual, c.gradient_enters);
  TensorId stream = g.input;
  for (const Mixer& mixer : group.mixers) stream = add_branch(g, c, stream, std::visit(Mix{g, c, stream}, mixer));
  for (const Mlp& mlp : group.mlps) stream = add_branch(g, c, stream, feed_forward(g, c, stream, mlp));
  g.output = stream;
  g.hold_to_end(g.output);
  return g;
}

// Ranks that share the vocabulary look up their own rows and sum; tokens are dealt out by the same sum. The gradient of
// the table is made in the table's type, added to the FP32 one, and dropped.
Graph megatron_embedding_graph(const BlockContext& c) {
  Graph g(widths_for(c, nullptr));
  const Size table{{Symbol::V, Symbol::h, Symbol::one, Symbol::one}, 1, c.leftovers};
  OpTraits traits;
  if (c.trains_embedding) traits.backward = {Component::working_memory, {table}};
  const TensorId whole =
      g.tensor(token_size({Symbol::h}, c.residual), Component::activations_embedding, c.gradient_enters);
  g.run({}, {whole}, traits);
  g.output = leave_matrices(g, c, whole);
  if (c.model->dropout.embedding > 0) g.output = dropout(g, g.output, Component::activations_embedding);
  g.hold_to_end(g.output);
  return g;
}

namespace {

// The output layer keeps its part of the tokens; backward makes the gradient of all tokens before it is scattered. All
// tokens themselves are gathered into a buffer that stays (tensor_parallel/layers.py, get_global_memory_buffer).
TensorId logits_of(Graph& g, const BlockContext& c, TensorId hidden) {
  const Linear w{.module = Module::head, .in = {Symbol::h}, .out = {Symbol::V}, .component = Component::logits};
  OpTraits traits{.backward = Workspace(Component::working_memory, {}), .flops = matrix_flops(g, w)};
  if (c.sequence_parallel) traits.backward.add(token_size(w.in, c.compute));
  // Of a frozen head they are gathered into a tensor that goes (linear_with_frozen_weight).
  if (c.sequence_parallel && !c.trains_head)
    traits.forward = {Component::working_memory, {token_size(w.in, c.compute)}};
  const TensorId logits =
      g.tensor(token_size(w.out, c.compute), Component::logits, g.at(hidden).requires_grad || c.trains_head);
  g.run({hidden}, {logits}, traits);
  if (c.trains_head) g.save(hidden);
  return logits;
}

// PyTorch's loss on all logits; the pipeline holds on to what its last stage made (Aleph-Alpha/scaling,
// transformer/model/losses/cross_entropy.py and core/nn/parallel_module/parallel_module.py).
TensorId whole_loss(Graph& g, const BlockContext& c, TensorId logits) {
  const TensorId all = gather_logits(g, c, logits);
  const TensorId raised = cast(g, all, ElementType::fp32, Component::logits);
  const TensorId loss = log_softmax_loss(g, raised);
  g.hold({raised});
  g.keep(all);
  return loss;
}

// TransformerEngine's loss writes the gradient over the logits (pytorch/triton/cross_entropy.py). Megatron's own raises
// them to FP32, makes those the probabilities and then the gradient, which autograd casts
// (tensor_parallel/cross_entropy.py).
TensorId loss_of(Graph& g, const BlockContext& c, TensorId logits) {
  if (c.gathers_logits) return whole_loss(g, c, logits);
  const Size scalar{{Symbol::one, Symbol::one, Symbol::one, Symbol::one}, 1, ElementType::fp32};
  if (c.framework.loss == LossKind::fused_kernel)
    return g.apply({logits}, scalar, Component::logits, {.saves = {logits}, .gradient_in_place = true});
  const TensorId loss = g.tensor(scalar, Component::logits, g.at(logits).requires_grad);
  const TensorId probabilities = g.tensor(g.at(logits).size.as(ElementType::fp32), Component::logits, false);
  g.run({logits}, {loss, probabilities}, {.saves = {probabilities}});
  g.hold({logits});
  return loss;
}

}  // namespace

Graph megatron_head_graph(const BlockContext& c) {
  Graph g(widths_for(c, nullptr));
  g.input =
      g.tensor(megatron::shared_size({Symbol::h}, c.residual), Component::activations_residual, c.gradient_enters);
  const TensorId hidden = c.model->final_norm ? megatron::norm(g, c, g.input) : g.input;
  g.output = loss_of(g, c, logits_of(g, c, hidden));
  g.hold({hidden});
  g.hold_to_end(g.output);
  return g;
}

}  // namespace vramplan
