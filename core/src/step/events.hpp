// The events of a step: their kinds, their order, and those among which the highest one is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "step/model_in_step.hpp"
#include "step/run.hpp"

namespace vramplan {

inline bool is_forward(EventKind k) {
  return k == EventKind::forward_embedding || k == EventKind::forward_block || k == EventKind::forward_head ||
         k == EventKind::reference_forward;
}
inline bool is_backward(EventKind k) {
  return k == EventKind::backward_head || k == EventKind::recompute_block || k == EventKind::backward_block ||
         k == EventKind::backward_embedding;
}
inline bool in_pass(EventKind k) { return is_forward(k) || is_backward(k); }
inline bool is_block(EventKind k) {
  return k == EventKind::forward_block || k == EventKind::recompute_block || k == EventKind::backward_block;
}
inline bool is_head(EventKind k) { return k == EventKind::forward_head || k == EventKind::backward_head; }
inline bool is_embedding(EventKind k) {
  return k == EventKind::forward_embedding || k == EventKind::backward_embedding;
}

// Layers of a stack up to the one that runs; at the head all.
inline Dim layers_met(const LayerStack& stack, Event event) {
  if (is_head(event.kind)) return stack.count;
  return is_block(event.kind) ? stack.below(event.layer + 1) : 0;
}

// All of one step in order.
inline std::vector<Event> events_of(const ModelInStep& m) {
  const Stage& stage = m.run.stage;
  std::vector<Event> events{{EventKind::load}};
  if (generates(m.run)) events.push_back({EventKind::generation});
  if (runs_reference(m) && !reference_runs_last(m.run)) events.push_back({EventKind::reference_forward});
  if (!m.value_model.empty()) events.push_back({EventKind::value_forward});
  if (stage.first) events.push_back({EventKind::forward_embedding});
  const auto layers = static_cast<std::int32_t>(m.layers);
  for (std::int32_t i = 0; i < layers; ++i) events.push_back({EventKind::forward_block, i});
  if (stage.last) events.push_back({EventKind::forward_head});
  if (runs_reference(m) && reference_runs_last(m.run)) events.push_back({EventKind::reference_forward});
  if (stage.last) events.push_back({EventKind::backward_head});
  for (std::int32_t i = layers; i-- > 0;) {
    if (!stack_of(m, i).trained) break;
    if (stack_of(m, i).checkpointed) events.push_back({EventKind::recompute_block, i});
    events.push_back({EventKind::backward_block, i});
  }
  if (runs_embedding_back(m.run)) events.push_back({EventKind::backward_embedding});
  if (!m.value_model.empty()) events.push_back({EventKind::value_backward});
  for (const EventKind kind : {EventKind::gradient_reduction, EventKind::optimizer_step, EventKind::steady})
    events.push_back({kind});
  return events;
}

// Calls consider(event) for the events among which the highest one is, of whatever batch and length.
template <class Visit>
void visit_candidates(const ModelInStep& m, Visit consider) {
  for (const EventKind kind : {EventKind::gradient_reduction, EventKind::optimizer_step}) consider({kind});
  if (m.run.stage.first) consider({EventKind::forward_embedding});
  if (m.run.stage.last) {
    for (const EventKind kind : {EventKind::forward_head, EventKind::backward_head}) consider({kind});
  }
  if (runs_embedding_back(m.run)) consider({EventKind::backward_embedding});
  if (generates(m.run)) consider({EventKind::generation});
  if (runs_reference(m)) consider({EventKind::reference_forward});
  if (!m.value_model.empty()) {
    consider({EventKind::value_forward});
    consider({EventKind::value_backward});
  }
  for (const LayerStack& stack : m.stacks) {
    if (stack.count == 0) continue;
    const Dim last = stack.end() - 1;
    // Forward only adds from layer to layer; in backward the ends differ from what lies between.
    consider({EventKind::forward_block, static_cast<std::int32_t>(last)});
    if (!stack.trained) continue;
    const Bytes gradients = recomputes_before_backward(m.run.framework) ? m.stream : stack.block.entering;
    const bool recomputes =
        stack.checkpointed && stack.block.forward_with_grad.bytes + gradients > stack.block.backward.bytes;
    for (const Dim layer : {stack.first, std::min(stack.first + 1, last), std::max(last - 1, stack.first), last}) {
      const auto i = static_cast<std::int32_t>(layer);
      if (recomputes) consider({EventKind::recompute_block, i});
      consider({EventKind::backward_block, i});
    }
  }
}

}  // namespace vramplan
