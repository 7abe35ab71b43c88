// The walk through a step: what is alive at each event, the highest of them, and what that asks of the allocator.
#include "vramplan/step.hpp"

#include <algorithm>
#include <utility>

#include "step/alive.hpp"
#include "step/events.hpp"
#include "step/model_in_step.hpp"
#include "step/run.hpp"
#include "step/sinks.hpp"

namespace vramplan {
namespace {

Bytes live_of(const ModelInStep& m, Event event) {
  ByteSink sink;
  describe(m, event, sink);
  return sink.bytes;
}

Event highest_of(const ModelInStep& m, bool forward) {
  Event best{forward ? EventKind::forward_embedding : EventKind::backward_head};
  Bytes most = live_of(m, best);
  visit_candidates(m, [&](Event event) {
    if (forward ? !is_forward(event.kind) : !is_backward(event.kind)) return;
    const Bytes bytes = live_of(m, event);
    if (bytes > most) best = event, most = bytes;
  });
  return best;
}

// With the value model's highest moments, which stand for all of its passes.
void measure_all(ModelInStep& m) {
  measure(m);
  for (ModelInStep& value : m.value_model) {
    measure(value);
    m.value_forward = highest_of(value, true);
    m.value_backward = highest_of(value, false);
  }
}

Bytes left_in_cache(const ModelInStep& m) {
  Bytes most;
  for (const LayerStack& stack : m.stacks) most = std::max(most, stack.block.left_in_cache);
  return checkpoints_blocks(m.run) ? most : Bytes{};
}

// In the place of logits that the caller has given up before backward, what backward makes in a wider type does not
// fit.
Bytes logits_hole(const Run& run, Event event) {
  if (!run.framework.leaves_logits_hole || event.kind != EventKind::backward_head) return {};
  const Bytes token = Bytes(bytes_per_element(run.types.compute)) * head_rows_of(*run.model);
  return token * batch_of(run).micro_batch * tokens_of(run);
}

// By the first step of the optimizer.
Bytes states_made(const ModelInStep& m) {
  Bytes made = m.bytes_of(Holding::states);
  for (const ModelInStep& value : m.value_model) made += states_made(value);
  return made;
}

bool overflowed(const ModelInStep& m) {
  const auto bad = [](const WalkedGraph& w) { return w.graph().overflowed(); };
  return bad(m.embedding) || bad(m.head) || std::any_of(m.reference.begin(), m.reference.end(), bad) ||
         std::any_of(m.stacks.begin(), m.stacks.end(), [&](const LayerStack& s) { return bad(s.block); }) ||
         std::any_of(m.value_model.begin(), m.value_model.end(), overflowed);
}

Contributions host_memory_of(const ModelInStep& m) {
  Contributions out;
  add_host_memory(out, m.run.inventory, m.run.training, m.run.framework, m.run.types, m.run.sharding,
                  m.run.accumulation_steps > 1);
  for (const ModelInStep& value : m.value_model) {
    for (const Contribution& c : host_memory_of(value)) out.add(c);
  }
  const bool all_but_last = m.run.framework.offloads_checkpoints;
  if (!all_but_last && !m.run.training.offload.activations) return out;
  Dim offloaded = all_but_last ? -1 : 0;
  for (const LayerStack& stack : m.stacks) offloaded += stack.trained ? stack.count : 0;
  out.add({Component::checkpoints,
           m.stream_bytes,
           {{"b", batch_of(m.run).micro_batch}, {"s", tokens_of(m.run)}, m.stream_width},
           1,
           offloaded});
  return out;
}

}  // namespace

Step::Step(Run run) : Step(std::move(run), *std::make_unique<GraphSet>()) {}

Step::Step(Run run, GraphSet& graphs) : model_(model_in_step(std::move(run), graphs)) { measure_all(model_); }

void Step::resize(const LayoutChoice& layout, BatchSize batch, Bytes cublas_workspace) {
  set_size(model_.run, layout, batch);
  model_.run.cublas_workspace = cublas_workspace;
  for (ModelInStep& value : model_.value_model) set_size(value.run, layout, batch);
  measure_all(model_);
}

bool Step::valid() const { return !overflowed(model_); }

std::vector<Event> Step::events() const { return events_of(model_); }

Bytes Step::live(Event event) const { return live_of(model_, event); }

std::vector<Contribution> Step::contributions(Event event) const {
  ContributionSink sink;
  describe(model_, event, sink);
  return sink.out;
}

Bytes Step::kept_per_layer(const LayerStack& stack) const {
  if (!stack.trained || run().framework.offloads_checkpoints) return {};
  return stack.checkpointed ? stack.block.input + stack.block.cached : stack.block.saved;
}

Contributions Step::host_memory() const { return host_memory_of(model_); }

Step::Highest Step::highest() const {
  Highest best{{EventKind::steady}, live({EventKind::steady}), {}};
  Bytes at_head;
  visit_candidates(model_, [&](Event event) {
    const Bytes bytes = live(event);
    if (is_head(event.kind)) at_head = std::max(at_head, bytes);
    if (bytes > best.bytes) best = {event, bytes, {}};
  });
  best.held = std::max(best.bytes, at_head + left_in_cache(model_));
  return best;
}

// Updates in backward make states while backward goes on: its end is as high as in later steps.
Bytes Step::highest_of_first_step() const {
  const bool states_come_last = !updates_in_backward(run().training.optimizer);
  Bytes most = live({EventKind::steady});
  visit_candidates(model_, [&](Event event) {
    const bool without = states_come_last && event.kind != EventKind::optimizer_step;
    most = std::max(most, without ? live(event) - states_made(model_) : live(event));
  });
  return most;
}

Bytes Step::highest_on_main_stream() const {
  Bytes most;
  const auto consider = [&](Event event) {
    MainStreamSink sink;
    describe(model_, event, sink);
    most = std::max(most, sink.bytes + logits_hole(run(), event));
  };
  consider({EventKind::steady});
  visit_candidates(model_, consider);
  return most;
}

// The buffer of a unit lives until the next unit has been copied out of its own (wait_for_unshard): two at a time, of
// neighbours. The gradients of the whole rank lie on the other stream in the end (foreach_reduce).
Step::SidePools Step::side_pools() const {
  const Run& r = run();
  if (!uses_side_streams(r)) return {};
  std::int64_t layer = 0;
  for (const LayerStack& stack : stacks()) layer = std::max(layer, unit_of(r, stack.parameters).value);
  const std::int64_t bytes = bytes_per_element(r.types.compute);
  const Params outside = r.inventory.outside_layers, embedding = embedding_unit(r);
  const Params end = ends_are_units(r) ? std::max(embedding, outside - embedding) : outside;
  const Bytes unit = Bytes(is_quantized(r.types.base) ? 1 : bytes) * layer;
  const Bytes neighbour = std::max(Bytes(bytes) * end.value, model_.layers > 1 ? unit : Bytes{});
  const bool on_side = !r.sharding.defers_reduction && !updates_in_backward(r.training.optimizer);
  return {unit + neighbour, on_side ? model_.bytes_of(Holding::gradients) : Bytes{}};
}

}  // namespace vramplan
