// What a pipeline adds: micro-batches that wait for their backward, and what stages hand on.
#pragma once

#include <algorithm>
#include <cstdint>

#include "step/activations.hpp"
#include "step/events.hpp"
#include "step/model_in_step.hpp"
#include "step/run.hpp"

namespace vramplan {

// Activations of micro-batches that wait while the newest one runs.
template <class Sink>
void describe_waiting(const ModelInStep& m, Sink& sink) {
  sink.saved(m.embedding, m.run.stage.embeddings_waiting);
  for (const LayerStack& stack : m.stacks) {
    if (!stack.checkpointed) {
      sink.saved(stack.block, stack.waiting);
    } else {
      sink.cached(stack.block, stack.waiting);
      sink.pinned(stack.block, stack.waiting);
      describe_streams(m, Component::checkpoints, stack.waiting, sink);
    }
  }
}

// A pipeline of two buffers keeps what its last stage makes of a micro-batch until the next but one has been made, and
// of the last two until the step has ended (Aleph-Alpha/scaling, core/nn/parallel_module/parallel_module.py,
// _execute_loss_fn, and pipeline_schedule/train.py, required_buffer_count).
inline std::int64_t earlier_logits(const Run& run, EventKind kind) {
  if (!run.stage.last || !run.framework.keeps_stage_outputs) return 0;
  if (kind == EventKind::gradient_reduction || kind == EventKind::optimizer_step) {
    return std::min<std::int64_t>(run.accumulation_steps, 2);
  }
  const bool before_head = is_forward(kind) && kind != EventKind::forward_head;
  return in_pass(kind) ? std::min<std::int64_t>(run.accumulation_steps - 1, before_head ? 2 : 1) : 0;
}

template <class Sink>
void describe_earlier_logits(const ModelInStep& m, Event event, Sink& sink) {
  const std::int64_t earlier = earlier_logits(m.run, event.kind);
  if (earlier == 0) return;
  sink.term(Component::logits, bytes_per_element(m.run.types.compute), 1, earlier,
            Factor{"b", m.run.training.micro_batch}, Factor{"s", tokens_of(m.run)},
            Factor{"V", saturating_multiply(head_rows_of(*m.run.model), m.run.layout.tp)});
}

// What such a pipeline holds of the streams between stages: one buffer for each side to receive into, and what a stage
// handed on, until its backward has run.
template <class Sink>
void describe_handed_on(const ModelInStep& m, Event event, Sink& sink) {
  if (!m.run.framework.keeps_stage_outputs || m.run.layout.pp == 1) return;
  const bool last = m.run.stage.last;
  describe_streams(m, Component::communication_buffers, (m.run.stage.first ? 0 : 1) + (last ? 0 : 1), sink);
  if (last || !in_pass(event.kind)) return;
  const std::int64_t handed_on = m.run.stage.embeddings_waiting + (is_backward(event.kind) ? 1 : 0);
  describe_streams(m, Component::activations_residual, handed_on, sink);
}

}  // namespace vramplan
