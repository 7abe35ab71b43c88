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

// Logits shared by ranks, in tensor operations: forward shifts them by the maximum and sums their exponentials,
// backward adds these, made again, to a gradient of zeros (torch/distributed/tensor/parallel/loss.py, _log_softmax and
// _nll_loss_and_log_softmax_backward).
TensorId shared_loss(Graph& g, TensorId logits) {
  const Size size = g.at(logits).size;
  const TensorId shifted = g.apply({logits}, size, kLogits, {.passes_gradient = true});
  const TensorId log_softmax =
      g.apply({shifted}, size, kLogits, {.passes_gradient = true, .forward = {kLogits, {size}}});
  return g.apply({log_softmax}, loss_size(), kLogits, {.saves = {log_softmax}, .backward = {kLogits, {size.times(2)}}});
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
  const TensorId logits = gather_logits(g, c, soft_capped(g, c, linear(g, c, hidden, head_weight(c))));
  const TensorId raised = c.framework.logits_upcast ? cast(g, logits, ElementType::fp32, kLogits) : logits;
  const TensorId shifted = c.framework.shift == LabelShift::labels ? raised : copy(g, raised);
  const bool gives_up = c.framework.shift == LabelShift::last_logits && logits != raised;
  // Autocast runs cross_entropy in FP32 whatever it is given (aten/src/ATen/autocast_mode.h).
  const TensorId entered = c.framework.autocast ? cast(g, shifted, ElementType::fp32, kLogits) : shifted;
  return {entered, {gives_up ? kNoTensor : logits, raised, shifted}};
}

// Cross-entropy of logits in their own type, raised to FP32 on the way.
TensorId upcast_loss(Graph& g, const BlockContext& c, TensorId logits) {
  if (!c.framework.compiled_loss) return log_softmax_loss(g, cast(g, logits, ElementType::fp32, kLogits));
  return g.apply({logits}, loss_size(), kLogits, {.saves = {logits}});
}

// torch's cross_entropy over all logits (transformers/loss/loss_utils.py, ForCausalLMLoss).
TensorId full_loss(Graph& g, const BlockContext& c, TensorId hidden) {
  if (c.framework.compiled_loss) {
    return upcast_loss(g, c, gather_logits(g, c, soft_capped(g, c, linear(g, c, hidden, head_weight(c)))));
  }
  const LossInput in = loss_input(g, c, hidden);
  const bool shared = c.framework.composite_loss_parallel && c.tensor_ranks > 1 && !c.gathers_logits;
  const TensorId loss = shared ? shared_loss(g, in.logits) : log_softmax_loss(g, in.logits);
  g.hold({in.held[0], in.held[1], in.held[2]});
  if (c.framework.keeps_logits) g.keep(in.held[1]);
  if (c.framework.keeps_stage_outputs) g.keep(in.held[0]);
  return loss;
}

// Accelerate raises what leaves an autocast model to FP32, the 16-bit logits beside the loss too
// (accelerate/utils/operations.py, ConvertOutputsToFp32). PyTorch's own loss has as much of them before.
TensorId raise_outputs(Graph& g, const BlockContext& c, TensorId loss, TensorId logits) {
  if (!c.framework.autocast || logits == kNoTensor || g.at(logits).size.type == ElementType::fp32) return loss;
  return g.apply({loss}, loss_size(), kLogits, {.forward = {kLogits, {g.at(logits).size.as(ElementType::fp32)}}});
}

// One loss kernel on materialised logits.
TensorId kernel_loss(Graph& g, const BlockContext& c, TensorId hidden) {
  const LossInput in = loss_input(g, c, hidden);
  const TensorId made = g.apply({in.logits}, loss_size(), kLogits,
                                {.saves = {in.logits}, .gradient_in_place = c.framework.gradient_over_logits});
  g.hold({in.held[1], in.held[2]});
  const TensorId loss = raise_outputs(g, c, made, in.held[0]);
  g.hold({in.held[0]});
  return loss;
}

// torchtune/modules/loss/ce_chunked_output_loss.py: all chunks are projected, then each is upcast in turn. The last
// chunk comes first in backward, and the sum of its gradient of the weight with the second one is a new tensor (see
// trained_weight); from then on autograd adds in place.
TensorId chunked_loss(Graph& g, const BlockContext& c, TensorId hidden) {
  constexpr std::size_t kMaxChunks = 16;
  const auto chunks = static_cast<std::size_t>(c.framework.loss_chunks) < kMaxChunks
                          ? static_cast<std::size_t>(c.framework.loss_chunks)
                          : kMaxChunks;
  const Linear head = head_weight(c, Symbol::sc);
  const Size part = token_size({Symbol::h}, g.at(hidden).size.type, Symbol::one, Symbol::sc);
  const Size matrix{{Symbol::h, Symbol::V, Symbol::one, Symbol::one}, 1, c.tables};
  const bool adds_up = c.trains_head && !c.framework.autocast;
  const TensorId weight = adds_up ? trained_weight(g, matrix, c.accumulates) : kNoTensor;
  std::array<TensorId, kMaxChunks> logits{};
  for (std::size_t i = 0; i < chunks; ++i) {
    const bool sums = adds_up && i + 2 == chunks;
    const TensorId view = g.view(hidden, part, sums ? Workspace(Component::gradients, {matrix, matrix}) : Workspace());
    logits[i] = adds_up ? g.apply({view, weight}, token_size(head.out, part.type, head.per_token, head.tokens), kLogits,
                                  {.saves = {view}, .flops = matrix_flops(g, head)})
                        : linear(g, c, view, head);
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
  const Size chunk{{Symbol::sc, Symbol::V, Symbol::one, Symbol::one}, 2, ElementType::fp32};
  const TensorId log_softmax = g.apply({logits32}, g.at(logits32).size, kLogits, {.passes_gradient = true});
  const TensorId loss = g.apply({log_softmax}, loss_size(), kLogits,
                                {.saves = {log_softmax}, .gradient_in_place = true, .backward = {kLogits, {chunk}}});
  g.keep(logits32);
  return loss;
}

// The head's weight, and with it the type of the logits of a fused loss.
Size head_matrix(ElementType type) { return Size{{Symbol::h, Symbol::V, Symbol::one, Symbol::one}, 1, type}; }
ElementType fused_logits_type(const Graph& g, const BlockContext& c, TensorId hidden) {
  return c.framework.autocast ? c.compute : g.at(hidden).size.type;
}

// What exists of one chunk of logits at most.
Workspace chunk_of_logits(const BlockContext& c, ElementType type) {
  const Size chunk = token_size({Symbol::V}, type, Symbol::one, Symbol::sc);
  Workspace w(kLogits, {});
  switch (c.framework.loss_chunk) {
    case LossChunk::in_type: w.add(chunk); break;
    case LossChunk::upcast:
      w.add(chunk.times(2));
      if (type != ElementType::fp32) w.add(chunk.as(ElementType::fp32));
      break;
    case LossChunk::fp32:
      w.add(chunk.as(ElementType::fp32));
      w.add(token_size({Symbol::h}, ElementType::fp32, Symbol::one, Symbol::sc));
      break;
    case LossChunk::with_gradient: w.add(chunk.times(2)); break;
    case LossChunk::composite: w.add(chunk.as(ElementType::fp32).times(3)); break;
  }
  return w;
}

// Head and loss in one function: the logits of one chunk exist at a time, and the gradients of the hidden states and of
// the weight are made in forward and saved (Liger's fused linear cross-entropy, arXiv 2410.10989). Under autocast the
// weight is cast for each product: transposed for the logits, which no cache keeps, and as it is for the gradient,
// which stays in autocast's cache when the weight is trained.
TensorId fused_linear_loss(Graph& g, const BlockContext& c, TensorId hidden) {
  const bool trains = c.trains_head;
  const ElementType type = fused_logits_type(g, c, hidden);
  OpTraits traits{.saves_gradients = true, .forward = chunk_of_logits(c, type)};
  if (c.tables != type) traits.forward.add(head_matrix(type).times(trains ? 2 : 1));
  if (trains) add_parameter_gradient(g, c, head_matrix(c.tables), traits);
  const TensorId made = g.tensor(g.at(hidden).size, kLogits, false);
  const TensorId loss = g.tensor(loss_size(), kLogits, g.at(hidden).requires_grad || trains);
  if (!trains) {
    g.run({hidden}, {loss, made}, traits);
  } else {
    const TensorId weight = g.tensor(head_matrix(c.tables), Component::gradients, false);
    g.run({hidden}, {loss, made, weight}, traits);
    g.save(weight);
  }
  g.save(made);
  return loss;
}

// The last tokens of each sequence, where only their logits are asked for.
TensorId scored_part(Graph& g, const BlockContext& c, TensorId hidden) {
  if (c.framework.kept_logits == 0) return hidden;
  return g.view(hidden, token_size({Symbol::h}, g.at(hidden).size.type, Symbol::one, Symbol::sk));
}

// trl/kernels/chunked_logprob.py: the hidden states that count are gathered, the logits exist for one tile of tokens
// and vocabulary at a time, and backward makes them again; it adds the gradients up in FP32 and casts them at the end.
TensorId tiled_loss(Graph& g, const BlockContext& c, TensorId hidden) {
  constexpr std::int32_t kTileColumns = 32768;  // trl/trainer/utils.py, _CHUNKED_LOGPROB_CHUNK_SIZE
  const TensorId gathered = copy(g, scored_part(g, c, hidden));
  const ElementType type = fused_logits_type(g, c, hidden);
  Workspace tile(kLogits, {token_size({Symbol::one, kTileColumns}, type, Symbol::one, Symbol::sc)});
  if (c.tables != type) tile.add({{Symbol::h, Symbol::one, Symbol::one, Symbol::one}, kTileColumns, type});
  OpTraits traits{.saves = {gathered}, .forward = tile, .backward = tile};
  const Size entered = g.at(gathered).size;
  if (entered.type != ElementType::fp32) traits.backward.add(entered.as(ElementType::fp32));
  if (c.trains_head) {
    if (c.tables != ElementType::fp32) traits.backward.add(head_matrix(ElementType::fp32));
    add_parameter_gradient(g, c, head_matrix(c.tables), traits);
  }
  return g.apply({gathered}, loss_size(), kLogits, traits);
}

// trl/trainer/utils.py, selective_log_softmax: sequence by sequence. FP32 logits are kept themselves, for the
// derivative of log-sum-exp; of 16-bit ones the log-softmax is kept.
TensorId token_log_probs(Graph& g, TensorId logits, Symbol tokens) {
  const Size size = g.at(logits).size;
  const Size log_probs{{Symbol::b, tokens, Symbol::one, Symbol::one}, 1, size.type};
  const Size sequence{{tokens, Symbol::V, Symbol::one, Symbol::one}, 1, size.type};
  if (size.type != ElementType::fp32) {
    const TensorId sequences = g.view(logits, size);
    const TensorId log_softmax = g.tensor(size, kLogits, false);
    const TensorId picked = g.tensor(log_probs, kLogits, g.at(logits).requires_grad);
    g.run({sequences}, {picked, log_softmax},
          {.saves = {log_softmax}, .backward = {Component::working_memory, {sequence}}});
    return picked;
  }
  const TensorId picked = g.apply({logits}, log_probs, kLogits);
  const TensorId sequences = g.view(logits, size);
  const TensorId sums = g.apply({sequences}, log_probs, kLogits,
                                {.saves = {sequences},
                                 .forward = {Component::working_memory, {sequence}},
                                 .backward = {Component::working_memory, {sequence, sequence}}});
  return add(g, picked, sums);
}

// Log-probabilities of the tokens, from logits that exist all at once. Accelerate raises what leaves an autocast model
// to FP32.
TensorId log_prob_loss(Graph& g, const BlockContext& c, TensorId hidden) {
  const Symbol tokens = c.framework.kept_logits > 0 ? Symbol::sk : Symbol::s;
  TensorId logits = soft_capped(g, c, linear(g, c, scored_part(g, c, hidden), head_weight(c, tokens)));
  if (c.framework.autocast) logits = cast(g, logits, ElementType::fp32, kLogits);
  if (c.framework.scales_logits) logits = scale(g, logits);
  const TensorId loss = token_log_probs(g, logits, tokens);
  g.hold({logits});
  return loss;
}

// The part of the logits that is the answer is divided by the temperature in place. Autograd copies no logits for that,
// but the gradient: into one for all logits, of which a clone of the part goes through the division
// (torch/csrc/autograd/functions/tensor.cpp, CopySlices).
TensorId answer_log_prob_loss(Graph& g, const BlockContext& c, TensorId hidden) {
  TensorId logits = soft_capped(g, c, linear(g, c, hidden, head_weight(c)));
  if (c.framework.autocast) logits = cast(g, logits, ElementType::fp32, kLogits);
  const Size all = g.at(logits).size;
  const Size answer = token_size({Symbol::V}, all.type, Symbol::one, Symbol::sk);
  const TensorId divided = g.view(logits, all, {Component::working_memory, {answer, answer}});
  const TensorId loss = token_log_probs(g, g.view(divided, answer), Symbol::sk);
  g.keep(logits);
  return loss;
}

// transformers/modeling_layers.py, GenericForSequenceClassification: one output for every token.
TensorId score(Graph& g, const BlockContext& c, TensorId hidden) {
  return linear(g, c, hidden,
                {.module = Module::head,
                 .in = {Symbol::h},
                 .out = {Symbol::one},
                 .quantizable = false,
                 .leftover = true,
                 .component = kLogits});
}

}  // namespace
}  // namespace vramplan::ops

namespace vramplan {

Graph head_graph(const BlockContext& c) {
  if (c.framework.megatron_modules) return megatron_head_graph(c);
  using namespace ops;
  Graph g(widths_for(c, nullptr));
  g.input = g.tensor(token_size(stream_of(c), c.residual), Component::activations_residual, c.gradient_enters);
  const TensorId normed = c.model->final_norm ? norm(g, c, g.input, stream_of(c)) : g.input;
  const TensorId hidden = enter_matrices(g, c, normed);
  switch (c.framework.loss) {
    case LossKind::upcast_full: g.output = full_loss(g, c, hidden); break;
    case LossKind::in_type_chunked: g.output = chunked_loss(g, c, hidden); break;
    case LossKind::kept_chunked: g.output = kept_loss(g, c, hidden); break;
    case LossKind::vocab_parallel:
    case LossKind::fused_kernel: g.output = kernel_loss(g, c, hidden); break;
    case LossKind::fused_linear: g.output = fused_linear_loss(g, c, hidden); break;
    case LossKind::tiled: g.output = tiled_loss(g, c, hidden); break;
    case LossKind::answer_log_probs: g.output = answer_log_prob_loss(g, c, hidden); break;
    case LossKind::log_probs: g.output = log_prob_loss(g, c, hidden); break;
    case LossKind::score: g.output = score(g, c, hidden); break;
  }
  if (c.keeps_streams) g.keep(hidden);
  g.hold({normed, hidden});
  g.hold_to_end(g.output);
  return g;
}

}  // namespace vramplan
