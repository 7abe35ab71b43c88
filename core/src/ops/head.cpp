// Final norm, output head and cross-entropy. Which of the logits' copies are alive together decides the peak of models
// with a large vocabulary.
#include "builders.hpp"

namespace vramplan::ops {
namespace {

constexpr Component kLogits = Component::logits;

constexpr Size loss_size() { return Size{{Symbol::one, Symbol::one, Symbol::one, Symbol::one}, 1, ElementType::fp32}; }

Linear head_weight(const BlockContext& c, Symbol tokens = Symbol::s) {
  return {.module = Module::head,
          .in = {Symbol::h},
          .out = {Symbol::V},
          .tokens = tokens,
          .bias = c.model->lm_head_bias,
          .quantizable = false,
          .leftover = true,
          .component = kLogits};
}

TensorId soft_capped(Graph& g, const BlockContext& c, TensorId logits) {
  if (c.model->final_softcap <= 0) return logits;
  const TensorId divided = scale(g, logits);
  const TensorId tanh = g.apply({divided}, g.at(divided).size, kLogits);
  g.save(tanh);
  return scale(g, tanh);
}

// log_softmax keeps its result for itself and for the negative log-likelihood.
TensorId log_softmax_loss(Graph& g, TensorId logits) {
  const TensorId log_softmax = g.apply({logits}, g.at(logits).size, kLogits);
  g.save(log_softmax);
  return g.apply({log_softmax}, loss_size(), kLogits, {.saves = {log_softmax}});
}

// Logits as the loss function receives them: raised to FP32 and, where the framework shifts them, without the last
// position. `held` are the names that Python keeps until the loss is there.
struct LossInput {
  TensorId logits;
  std::array<TensorId, 3> held;
};

LossInput loss_input(Graph& g, const BlockContext& c, TensorId hidden) {
  const TensorId logits = soft_capped(g, c, linear(g, c, hidden, head_weight(c)));
  const TensorId raised = c.framework.logits_upcast ? cast(g, logits, ElementType::fp32, kLogits) : logits;
  const TensorId shifted = c.framework.shift == LabelShift::labels ? raised : copy(g, raised);
  const bool gives_up = c.framework.shift == LabelShift::last_logits && logits != raised;
  return {shifted, {gives_up ? kNoTensor : logits, raised, shifted}};
}

// torch's cross_entropy over all logits (transformers/loss/loss_utils.py, ForCausalLMLoss).
TensorId full_loss(Graph& g, const BlockContext& c, TensorId hidden) {
  const LossInput in = loss_input(g, c, hidden);
  const TensorId loss = log_softmax_loss(g, in.logits);
  g.hold({in.held[0], in.held[1], in.held[2]});
  return loss;
}

// A loss kernel that writes the gradient over the logits (Liger's and FOAK's cross-entropy on materialised logits).
TensorId in_place_loss(Graph& g, const BlockContext& c, TensorId hidden) {
  const LossInput in = loss_input(g, c, hidden);
  const TensorId loss = g.apply({in.logits}, loss_size(), kLogits, {.saves = {in.logits}, .gradient_in_place = true});
  g.hold({in.held[0], in.held[1], in.held[2]});
  return loss;
}

// Cross-entropy of logits in their own type, raised to FP32 on the way.
TensorId upcast_loss(Graph& g, const BlockContext& c, TensorId logits) {
  if (!c.framework.compiled_loss) return log_softmax_loss(g, cast(g, logits, ElementType::fp32, kLogits));
  return g.apply({logits}, loss_size(), kLogits, {.saves = {logits}});
}

// torchtune/modules/loss/ce_chunked_output_loss.py: all chunks are projected, then each is upcast in turn. The last
// chunk comes first in backward: its gradient of the weight is the one to which the others are added.
TensorId chunked_loss(Graph& g, const BlockContext& c, TensorId hidden) {
  constexpr std::size_t kMaxChunks = 16;
  const auto chunks = static_cast<std::size_t>(c.framework.loss_chunks) < kMaxChunks
                          ? static_cast<std::size_t>(c.framework.loss_chunks)
                          : kMaxChunks;
  const Size part{{Symbol::b, Symbol::sc, Symbol::one, Symbol::h}, 1, g.at(hidden).size.type};
  std::array<TensorId, kMaxChunks> logits{};
  BlockContext added = c;
  added.accumulates = true;
  for (std::size_t i = 0; i < chunks; ++i) {
    const TensorId view = g.view(hidden, part);
    logits[i] = linear(g, i + 1 == chunks ? c : added, view, head_weight(c, Symbol::sc));
  }
  TensorId loss = kNoTensor;
  for (std::size_t i = 0; i < chunks; ++i) {
    const TensorId one = upcast_loss(g, c, logits[i]);
    loss = loss == kNoTensor ? one : add(g, loss, one);
  }
  for (std::size_t i = 0; i < chunks; ++i) g.hold({logits[i]});
  return loss;
}

// The caller gets logits raised to FP32 (lightning_fabric/wrappers.py) and keeps them to the end of backward;
// cross-entropy takes them a chunk of tokens at a time, so that backward exchanges the kept log-softmax for a gradient
// chunk by chunk (lit_gpt/utils.py, chunked_cross_entropy).
TensorId kept_loss(Graph& g, const BlockContext& c, TensorId hidden) {
  const TensorId logits = linear(g, c, hidden, head_weight(c));
  const TensorId logits32 =
      g.apply({logits}, g.at(logits).size.as(ElementType::fp32), kLogits, {.gradient_in_pieces = true});
  g.hold({logits});
  const Size chunk{{Symbol::b, Symbol::sc, Symbol::one, Symbol::V}, 2, ElementType::fp32};
  const TensorId log_softmax = g.apply({logits32}, g.at(logits32).size, kLogits, {.passes_gradient = true});
  const TensorId loss = g.apply({log_softmax}, loss_size(), kLogits,
                                {.saves = {log_softmax}, .gradient_in_place = true, .backward = {kLogits, {chunk}}});
  g.keep(logits32);
  return loss;
}

// Head and loss in one function: the logits of one chunk exist at a time, and the gradient of the hidden states is made
// in forward (Liger's fused linear cross-entropy, arXiv 2410.10989).
TensorId fused_linear_loss(Graph& g, const BlockContext& c, TensorId hidden) {
  const Size chunk{{Symbol::b, Symbol::sc, Symbol::one, Symbol::V}, 1, ElementType::fp32};
  const bool trains = c.trains_leftovers;
  const Size weight{{Symbol::h, Symbol::V, Symbol::one, Symbol::one}, 1, c.gradients};
  const Bytes gradient = trains ? g.size_in_bytes(weight) : Bytes{};
  const TensorId made = g.tensor(g.at(hidden).size, kLogits, false);
  const TensorId loss = g.tensor(loss_size(), kLogits, g.at(hidden).requires_grad || trains);
  g.run({hidden}, {loss, made},
        {.saves = {made}, .forward = {Component::logits, {chunk, chunk.halved()}}, .parameter_gradients = gradient});
  return loss;
}

}  // namespace
}  // namespace vramplan::ops

namespace vramplan {

Graph head_graph(const BlockContext& c) {
  using namespace ops;
  Graph g(widths_for(c, nullptr));
  g.input = g.tensor(token_size({Symbol::h}, c.residual), Component::activations_residual, c.gradient_enters);
  const TensorId hidden = c.model->final_norm ? norm(g, c, g.input, {Symbol::h}) : g.input;
  switch (c.framework.loss) {
    case LossKind::upcast_full: g.output = full_loss(g, c, hidden); break;
    case LossKind::in_type_chunked: g.output = chunked_loss(g, c, hidden); break;
    case LossKind::kept_chunked: g.output = kept_loss(g, c, hidden); break;
    case LossKind::fused_kernel: g.output = in_place_loss(g, c, hidden); break;
    case LossKind::fused_linear: g.output = fused_linear_loss(g, c, hidden); break;
  }
  g.hold({hidden});
  g.hold_to_end(g.output);
  return g;
}

}  // namespace vramplan
