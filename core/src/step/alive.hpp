// Everything that is alive while an event runs: of the model that is trained, and of PPO's value model beside it.
#pragma once

#include "step/activations.hpp"
#include "step/generation.hpp"
#include "step/gradients.hpp"
#include "step/pipeline.hpp"
#include "step/sharded_weights.hpp"

namespace vramplan {

// From the first step on.
template <class Sink>
void describe_standing(const ModelInStep& m, Sink& sink) {
  for (const Holding h : {Holding::weights, Holding::master_weights, Holding::states, Holding::others}) sink.list(m, h);
}

// Whole gradients of earlier micro-batches are there when the last one ends a unit's backward: the gradients of the
// unit's weights, the flat one made of them, and what the pass itself still holds.
template <class Sink>
void describe_unit_end(const ModelInStep& m, Sink& sink) {
  const bool keeps_whole = m.run.sharding.defers_reduction && m.run.accumulation_steps > 1;
  if (!keeps_whole || !m.run.framework.trains_whole_units) return;
  describe_sharded(m, {EventKind::backward_block, static_cast<std::int32_t>(m.layers - 1)}, sink);
  describe_kept_logits(m, sink);
  sink.term(Component::communication_buffers, bytes_per_element(m.run.types.weights), 1, 2,
            Factor{"P_layer", m.run.inventory.largest_layer.value});
}

// Of one model.
template <class Sink>
void describe_model(const ModelInStep& m, Event event, Sink& sink) {
  if (event.kind == EventKind::load) return sink.list(m, Holding::weights);
  describe_standing(m, sink);
  describe_gradients(m, event, sink);
  describe_communication(m, event, sink);
  describe_earlier_logits(m, event, sink);
  describe_handed_on(m, event, sink);
  if (event.kind == EventKind::optimizer_step) sink.list(m, Holding::temporaries);
  if (event.kind == EventKind::generation && generates(m.run)) return describe_generation(m, sink);
  if (event.kind == EventKind::gradient_reduction) describe_unit_end(m, sink);
  if (event.kind == EventKind::reference_forward && !runs_reference(m)) return;
  if (event.kind == EventKind::reference_forward && plays_ppo(m.run)) describe_rollout(m, sink);
  if (!in_pass(event.kind)) return;
  describe_sharded(m, event, sink);
  if (m.has_window_mask && (is_forward(event.kind) || checkpoints_blocks(m.run))) {
    const Factor length{"s", m.run.training.sequence_length};
    sink.term(Component::activations_attention, bytes_per_element(ElementType::bool8), 1, 1, length, length);
  }
  describe_kept(m, event, sink);
  if (m.run.layout.pp > 1) describe_waiting(m, sink);
  describe_running(m, event, sink);
}

// A model between its forward and its backward, while another runs.
template <class Sink>
void describe_paused(const ModelInStep& m, bool in_forward, Sink& sink) {
  constexpr Event kAfterForward{EventKind::reference_forward};
  describe_standing(m, sink);
  describe_gradients(m, kAfterForward, sink);
  describe_kept(m, kAfterForward, sink);
  if (!in_forward) describe_communication(m, {EventKind::backward_head}, sink);
  // Autocast's copies of weights go when both models have run forward; without checkpoints a graph keeps them.
  for (const LayerStack& stack : m.stacks) {
    if (!in_forward || !checkpoints_blocks(m.run) || !stack.trained) continue;
    describe_weight_copies(stack, stack.count, sink);
  }
}

// PPO's value model runs forward before the policy and backward after it: autograd takes what was made last first.
template <class Sink>
void describe_value_model(const ModelInStep& m, Event event, Sink& sink) {
  const ModelInStep& value = m.value_model.front();
  switch (event.kind) {
    case EventKind::value_forward: return describe_model(value, m.value_forward, sink);
    case EventKind::value_backward: return describe_model(value, m.value_backward, sink);
    case EventKind::load:
    case EventKind::gradient_reduction:
    case EventKind::optimizer_step: return describe_model(value, event, sink);
    case EventKind::generation:
    case EventKind::reference_forward:
    case EventKind::steady: return describe_model(value, {EventKind::steady}, sink);
    default: return describe_paused(value, is_forward(event.kind), sink);
  }
}

// Inputs of layers that a checkpoint or a graph still holds.
inline Dim inputs_counted(const ModelInStep& m, Event event) {
  Dim held = 0;
  for (const LayerStack& stack : m.stacks) held += stack.trained ? layers_met(stack, event) : 0;
  return held;
}

// What the policy answered, by the names that PPO gives it: to the end of the optimizer's step.
template <class Sink>
void describe_outputs(const ModelInStep& m, Event event, Sink& sink) {
  const bool head = is_head(event.kind);
  const bool later = is_backward(event.kind) || event.kind == EventKind::value_backward ||
                     event.kind == EventKind::gradient_reduction || event.kind == EventKind::optimizer_step;
  if (!m.run.framework.keeps_outputs || (!head && !later)) return;
  const Factor sequences{"b", m.run.training.micro_batch}, length{"s", m.run.training.sequence_length};
  const bool raised = raises_outputs(m.run, m.stream_bytes);
  const Dim elsewhere = raised ? 0 : inputs_counted(m, event) + (head ? 1 : 0);
  sink.term(Component::activations_residual, raised ? bytes_per_element(ElementType::fp32) : m.stream_bytes, 1,
            m.layers + 1 - elsewhere, sequences, length, Factor{"h", m.run.model->hidden_size});
  if (head) return;
  const ElementType logits = m.run.framework.autocast ? ElementType::fp32 : m.run.types.compute;
  sink.term(Component::logits, bytes_per_element(logits), 1, 1, sequences, length,
            Factor{"V", head_rows_of(*m.run.model)});
}

// Of all models.
template <class Sink>
void describe(const ModelInStep& m, Event event, Sink& sink) {
  describe_model(m, event, sink);
  if (m.value_model.empty()) return;
  describe_value_model(m, event, sink);
  describe_outputs(m, event, sink);
}

}  // namespace vramplan
