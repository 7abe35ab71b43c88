// A layer, the embedding, and the head with its loss, as megatron/core/models/gpt/gpt_model.py and
// megatron/core/transformer/transformer_layer.py put them together.
#include <vector>

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

TensorId layer(Graph& g, const BlockContext& c, const LayerGroup& group, TensorId stream) {
  for (const Mixer& mixer : group.mixers) stream = add_branch(g, c, stream, std::visit(Mix{g, c, stream}, mixer));
  for (const Mlp& mlp : group.mlps) stream = add_branch(g, c, stream, feed_forward(g, c, stream, mlp));
  return stream;
}

}  // namespace

Graph megatron_block_graph(const BlockContext& c, const LayerGroup& group, bool checkpointed) {
  Graph g(widths_for(c, &group));
  const Size size = megatron::shared_size({Symbol::h}, c.residual);
  g.input = checkpointed ? g.external(size, Component::checkpoints, c.gradient_enters)
                         : g.tensor(size, Component::activations_residual, c.gradient_enters);
  g.output = layer(g, c, group, g.input);
  g.hold_to_end(g.output);
  return g;
}

namespace {

// To the ranks that share the tokens.
TensorId dealt_out(Graph& g, const BlockContext& c, TensorId whole) {
  if (!c.sequence_parallel) return whole;
  return g.apply({whole}, megatron::shared_size({Symbol::h}, g.at(whole).size.type), Component::activations_residual);
}

// Ranks that share the vocabulary look up their own rows and sum; tokens are dealt out by the same sum. The gradient of
// the table is made in the table's type, added to the FP32 one, and dropped.
TensorId embedding(Graph& g, const BlockContext& c) {
  const Size table{{Symbol::V, Symbol::h, Symbol::one, Symbol::one}, 1, c.leftovers};
  OpTraits traits;
  if (c.trains_embedding) traits.backward = {Component::working_memory, {table}};
  const TensorId whole =
      g.tensor(token_size({Symbol::h}, c.residual), Component::activations_embedding, c.gradient_enters);
  g.run({}, {whole}, traits);
  const TensorId shared = dealt_out(g, c, whole);
  return c.model->dropout.embedding > 0 ? dropout(g, shared, Component::activations_embedding) : shared;
}

}  // namespace

Graph megatron_embedding_graph(const BlockContext& c) {
  Graph g(widths_for(c, nullptr));
  g.output = embedding(g, c);
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

// TransformerEngine's loss writes the gradient over the logits (pytorch/triton/cross_entropy.py). Megatron's own raises
// them to FP32, makes those the probabilities and then the gradient, which autograd casts
// (tensor_parallel/cross_entropy.py).
TensorId loss_of(Graph& g, const BlockContext& c, TensorId logits) {
  const Size scalar{{Symbol::one, Symbol::one, Symbol::one, Symbol::one}, 1, ElementType::fp32};
  if (c.framework.loss == LossKind::fused_kernel)
    return g.apply({logits}, scalar, Component::logits, {.saves = {logits}, .gradient_in_place = true});
  const TensorId loss = g.tensor(scalar, Component::logits, g.at(logits).requires_grad);
  const TensorId probabilities = g.tensor(g.at(logits).size.as(ElementType::fp32), Component::logits, false);
  g.run({logits}, {loss, probabilities}, {.saves = {probabilities}});
  g.hold({logits});
  return loss;
}

// Stream and embedding of the token after, each normed, joined and projected. The projection gives a part of the width
// of all tokens; the parts are gathered, joined, and dealt out by tokens.
TensorId projected(Graph& g, const BlockContext& c, TensorId stream, TensorId embedded) {
  const ElementType type = g.at(stream).size.type;
  const TensorId left = megatron::norm(g, c, embedded);
  const TensorId right = megatron::norm(g, c, stream);
  const TensorId both =
      g.apply({left, right}, megatron::shared_size({Symbol::h, 2}, type), Component::activations_residual);
  const bool cut = c.tensor_ranks > 1;
  const TensorId made = megatron::column_linear(g, c, both,
                                                {.module = Module::other,
                                                 .in = {Symbol::h, 2},
                                                 .out = {Symbol::ht},
                                                 .component = Component::activations_residual});
  if (!cut) return made;
  const Size whole = token_size({Symbol::h}, type);
  const TensorId all = g.apply({made}, whole, Component::activations_residual,
                               {.forward = Workspace(Component::working_memory, {whole})});
  return dealt_out(g, c, all);
}

// One module of multi-token prediction (megatron/core/transformer/multi_token_prediction.py): a layer like the last one
// on the projection, and a norm. A full checkpoint runs all of it again but for the embedding.
TensorId predicted(Graph& g, const BlockContext& c, TensorId stream) {
  const TensorId embedded = embedding(g, c);
  megatron::Again again(g);
  const TensorId out = layer(g, c, c.model->groups.back(), projected(g, c, stream, embedded));
  const TensorId normed = megatron::norm(g, c, out);
  again.stop(g);
  if (c.checkpoints_predictions) again.checkpoint(g);
  return normed;
}

// What the head is asked: the normed stream, and those of the modules, copied behind one another; their losses come
// first, the main one last, and all logits stay by name until then (gpt_model.py, _postprocess).
TensorId losses_of(Graph& g, const BlockContext& c, TensorId hidden) {
  const Size one = g.at(hidden).size;
  std::vector<TensorId> streams{hidden};
  for (Dim i = 0; i < c.predictions; ++i) streams.push_back(predicted(g, c, streams.back()));
  const TensorId all = g.tensor(one.times(static_cast<std::int32_t>(streams.size())), Component::activations_residual,
                                g.at(hidden).requires_grad);
  g.run(streams, {all}, {});
  std::vector<TensorId> losses;
  TensorId logits = kNoTensor;
  for (Dim i = 0; i <= c.predictions; ++i) {
    const TensorId before = logits;
    logits = logits_of(g, c, g.view(all, one));
    losses.push_back(loss_of(g, c, logits));
    if (i == c.predictions) g.hold({before});
  }
  const TensorId sum = g.tensor(g.at(losses.front()).size, Component::logits, g.at(losses.front()).requires_grad);
  g.run(losses, {sum}, {.passes_gradient = true});
  return sum;
}

}  // namespace

Graph megatron_head_graph(const BlockContext& c) {
  Graph g(widths_for(c, c.predictions > 0 ? &c.model->groups.back() : nullptr));
  g.input =
      g.tensor(megatron::shared_size({Symbol::h}, c.residual), Component::activations_residual, c.gradient_enters);
  const TensorId hidden = c.model->final_norm ? megatron::norm(g, c, g.input) : g.input;
  g.output = c.predictions > 0 ? losses_of(g, c, hidden) : loss_of(g, c, logits_of(g, c, hidden));
  g.hold({hidden});
  g.hold_to_end(g.output);
  return g;
}

}  // namespace vramplan
