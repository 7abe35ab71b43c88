// Activations: what the running block holds, and what forward has kept for backward.
#pragma once

#include <algorithm>
#include <cstdint>

#include "step/events.hpp"
#include "step/model_in_step.hpp"
#include "step/run.hpp"

namespace vramplan {

inline Phase phase_of(const Peak& backward) {
  return backward.update.value > 0 ? Phase::after_backward : Phase::backward;
}

inline const WalkedGraph& highest_of_reference(const ModelInStep& m) {
  return *std::max_element(m.reference.begin(), m.reference.end(), [](const WalkedGraph& a, const WalkedGraph& b) {
    return a.forward_without_grad.bytes < b.forward_without_grad.bytes;
  });
}

// Inside the block, or what else runs.
template <class Sink>
void describe_running(const ModelInStep& m, Event event, Sink& sink) {
  const Component gradients = m.run.sharding.gathers ? Component::communication_buffers : Component::gradients;
  switch (event.kind) {
    case EventKind::forward_embedding:
      return sink.moment(m.embedding, m.embedding.forward_with_grad, Phase::forward_with_grad, gradients);
    case EventKind::forward_head:
      return sink.moment(m.head, m.head.forward_with_grad, Phase::forward_with_grad, gradients);
    case EventKind::reference_forward: {
      const WalkedGraph& highest = highest_of_reference(m);
      return sink.moment(highest, highest.forward_without_grad, Phase::forward_without_grad, gradients);
    }
    case EventKind::backward_head: return sink.moment(m.head, m.head.backward, phase_of(m.head.backward), gradients);
    case EventKind::backward_embedding:
      return sink.moment(m.embedding, m.embedding.backward, phase_of(m.embedding.backward), gradients);
    default: break;
  }
  if (!is_block(event.kind)) return;
  const LayerStack& stack = stack_of(m, event.layer);
  const WalkedGraph& block = stack.block;
  if (event.kind == EventKind::backward_block) {
    sink.moment(block, block.backward, phase_of(block.backward), gradients);
  } else if (event.kind == EventKind::forward_block && (stack.checkpointed || !stack.trained)) {
    sink.moment(block, block.forward_without_grad, Phase::forward_without_grad, gradients);
  } else {
    sink.moment(block, block.forward_with_grad, Phase::forward_with_grad, gradients);
  }
}

// The input of a block that runs forward is there, and that of the last block stays
// (unsloth_zoo/gradient_checkpointing.py, LAST_GC_INDEX); the others come back through buffers.
inline Dim not_offloaded(const ModelInStep& m, Event event, const LayerStack& stack) {
  const bool holds_last = stack.end() == m.layers;
  if (is_head(event.kind)) return holds_last ? 1 : 0;
  return stack.holds(event.layer) && (event.kind == EventKind::forward_block || event.layer + 1 == m.layers) ? 1 : 0;
}

// Inputs of checkpointed blocks that are still on the GPU when they are offloaded: the newest wait for their copy
// (max_fwd_stash_size of torchtune/training/_activation_offloading.py, which TRL took over).
inline constexpr Dim kOffloadStash = 5;

// Forward sends them to the host behind a stash of the newest, which the final norm empties; backward holds the one of
// the layer that runs and the one before it.
inline Dim checkpoints_on_gpu(const ModelInStep& m, Event event) {
  if (!m.run.training.offload.activations) return m.layers;
  if (!is_block(event.kind)) return 0;
  return event.kind == EventKind::forward_block ? kOffloadStash - 1 : 1;
}

// The residual stream, as many times as there are copies of it.
template <class Sink>
void describe_streams(const ModelInStep& m, Component component, std::int64_t times, Sink& sink) {
  if (times == 0) return;
  sink.known(m.stream, component, m.stream_bytes, times, Factor{"b", batch_of(m.run).micro_batch},
             Factor{"s", tokens_of(m.run)}, m.stream_width);
}

// Autocast's copies of the weights of so many layers.
template <class Sink>
void describe_weight_copies(const LayerStack& stack, Dim layers, Sink& sink) {
  sink.term(Component::autocast_weights, 1, 1, layers,
            Factor{"W_cast", stack.block.profile().cached_weight_copies.value});
}

template <class Sink>
void describe_kept_logits(const ModelInStep& m, Sink& sink) {
  if (m.run.framework.loss != LossKind::kept_chunked) return;
  sink.term(Component::logits, bytes_per_element(ElementType::fp32), 1, 1, Factor{"b", m.run.training.micro_batch},
            Factor{"s", m.run.training.sequence_length}, Factor{"V", head_rows_of(*m.run.model)});
}

// What earlier layers have left for backward, and what later ones have not given up.
template <class Sink>
void describe_kept(const ModelInStep& m, Event event, Sink& sink) {
  if (event.kind == EventKind::reference_forward && !reference_runs_last(m.run)) return;
  const bool after_head = event.kind == EventKind::reference_forward;
  if (after_head) sink.saved(m.head, 1);
  const bool at_embedding = is_embedding(event.kind);
  if (!at_embedding && m.run.stage.first) sink.saved(m.embedding, 1);
  const bool forward = is_forward(event.kind);
  const bool at_head = after_head || is_head(event.kind);
  Dim on_gpu = checkpoints_on_gpu(m, event);
  for (auto stack = m.stacks.rbegin(); stack != m.stacks.rend(); ++stack) {
    const Dim below = at_head ? stack->count : is_block(event.kind) ? stack->below(event.layer) : 0;
    if (!stack->trained) continue;
    if (!stack->checkpointed) {
      sink.saved(stack->block, below);
      continue;
    }
    sink.cached(stack->block, below);
    sink.pinned(stack->block, forward ? below : stack->count);
    const Dim own = stack->holds(event.layer) ? 1 : 0;
    const bool kept = m.run.framework.keeps_stream_in_backward && !forward;
    const Dim above = kept && !at_head ? stack->count - below - own : 0;
    const Dim waiting = std::min(below, on_gpu);
    on_gpu -= waiting;
    describe_streams(m, Component::checkpoints,
                     m.run.framework.offloads_checkpoints ? not_offloaded(m, event, *stack) : waiting + own + above,
                     sink);
    // The hook of the layer above holds the gradient that enters the block that runs: it counts there.
    describe_streams(m, Component::activation_gradients, above > 0 ? above - own : 0, sink);
    if (forward && !after_head) describe_weight_copies(*stack, below, sink);
  }
  if (!forward && !at_head) describe_kept_logits(m, sink);
  if (event.kind != EventKind::recompute_block) return;
  if (recomputes_before_backward(m.run.framework)) {
    describe_streams(m, Component::activation_gradients, 1, sink);
  } else {
    sink.entering(stack_of(m, event.layer).block);
  }
}

}  // namespace vramplan
