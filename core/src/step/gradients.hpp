// Gradients of parameters, by what backward has made so far and what ranks exchange of them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "step/events.hpp"
#include "step/model_in_step.hpp"
#include "step/run.hpp"
#include "step/sharded_weights.hpp"

namespace vramplan {

// Gradients that are complete before the event runs, in the order in which backward makes them: head, layers from the
// last, embedding. Those of FSDP's root unit stay whole until the embedding has its own; the others' shards take the
// type of the weights that they belong to, which FSDP2 makes on the stream that reduces.
template <class Sink>
void describe_gradients_done(const ModelInStep& m, Event event, Sink& sink) {
  if (event.kind == EventKind::backward_head) return;
  const Sharding& sharding = m.run.sharding;
  const std::int64_t ranks = sharding.gradients;
  const bool trains_base = m.run.inventory.trained_base.value > 0;
  const std::int64_t widened =
      trains_base ? bytes_per_element(m.run.types.weights) / bytes_per_element(working_type(m.run)) : 1;
  const Factor of_head{"G_head", m.head.profile().parameter_gradients.value};
  if (!ends_are_units(m.run)) {
    sink.term(Component::gradients, 1, sharding.is_fsdp() ? 1 : ranks, 1, of_head);
  } else if (!sharding.host_gradients) {
    sink.side(Component::gradients, widened, ranks, 1, of_head);
  }
  if (sharding.host_gradients) return;
  for (const LayerStack& stack : m.stacks) {
    const Dim done =
        event.kind == EventKind::backward_embedding ? stack.count : stack.count - stack.below(event.layer + 1);
    const Factor of_layer{"G_layer", stack.block.profile().parameter_gradients.value};
    if (uses_side_streams(m.run)) {
      sink.side(Component::gradients, widened, ranks, done, of_layer);
    } else {
      sink.term(Component::gradients, widened, ranks, done, of_layer);
    }
  }
}

// Gradients that nothing is added to any more.
template <class Sink>
void describe_complete_gradients(const ModelInStep& m, Holding gradients, Sink& sink) {
  if (uses_side_streams(m.run) && !m.run.sharding.defers_reduction) {
    sink.side_list(m, gradients);
  } else {
    sink.list(m, gradients);
  }
}

// The gradient of a tied table, which autograd keeps from the head to the embedding, where it is not one of those that
// are done: it is to be used up, to be added to that of earlier passes, or to leave.
template <class Sink>
void describe_waiting_gradient(const ModelInStep& m, Event event, Sink& sink) {
  if (!trains_tied_table(m.run) || !m.run.stage.first || !m.run.stage.last) return;
  if (!is_backward(event.kind) || event.kind == EventKind::backward_head) return;
  sink.term(Component::gradients, bytes_per_element(working_type(m.run)), 1, 1, Factor{"V", m.run.model->vocab_size},
            Factor{"h", m.run.model->hidden_size});
}

// As far as backward has made them.
template <class Sink>
void describe_gradients(const ModelInStep& m, Event event, Sink& sink) {
  const Sharding& s = m.run.sharding;
  if (updates_in_backward(m.run.training.optimizer)) {
    if (uses_up_gradients(m.run.training, s)) describe_waiting_gradient(m, event, sink);
    return;
  }
  if (s.engine == Engine::megatron) return;  // in a buffer that stands (states/megatron.cpp)
  const bool zero_2_or_3 = s.engine == Engine::deepspeed && s.stage >= 2;
  const bool before_first_pass = event.kind == EventKind::reference_forward && !reference_runs_last(m.run);
  const bool beside = event.kind == EventKind::value_forward || event.kind == EventKind::value_backward;
  const bool from_last_pass = m.run.accumulation_steps > 1 && !before_first_pass && (in_pass(event.kind) || beside);
  if (from_last_pass || zero_2_or_3) describe_waiting_gradient(m, event, sink);
  if (event.kind == EventKind::optimizer_step) {
    describe_complete_gradients(m, Holding::gradients, sink);
  } else if (event.kind == EventKind::gradient_reduction) {
    describe_complete_gradients(m, s.engine == Engine::deepspeed ? Holding::kept : Holding::gradients, sink);
  } else if (zero_2_or_3) {
    // Stage 3 has one place for all gradients of the rank; stage 2 makes a new one in each pass and adds it to the
    // last.
    if (s.stage == 3 || from_last_pass) sink.list(m, Holding::kept);
    if (s.stage == 2 && is_backward(event.kind)) sink.list(m, Holding::gradients);
  } else if (from_last_pass) {
    describe_complete_gradients(m, Holding::kept, sink);
  } else if (event.kind == EventKind::value_backward) {
    sink.list(m, Holding::gradients);
  } else if (is_backward(event.kind)) {
    describe_gradients_done(m, event, sink);
  }
}

// Gradients are joined one after another until they are more than a bucket (Aleph-Alpha/scaling,
// core/optimizer/allreduce.py). The embedding's comes first, any other may be the last of a bucket.
inline std::int64_t largest_bucket(const Inventory& n, std::int64_t bucket) {
  std::int64_t first = 0, last = 0;
  for (const TrainedTensor& tensor : n.tensors) {
    std::int64_t& largest = tensor.kind == ParameterKind::embedding ? first : last;
    largest = std::max(largest, tensor.elements());
  }
  return std::min(n.trained().value, std::max(first, bucket + last));
}

// The joined gradients, and the FP32 copy in which ranks add them up.
template <class Sink>
void describe_bucket(const ModelInStep& m, Sink& sink) {
  sink.term(Component::communication_buffers,
            bytes_per_element(m.run.types.weights) + bytes_per_element(ElementType::fp32), 1, 1,
            Factor{"bucket", largest_bucket(m.run.inventory, m.run.framework.reduction_bucket)});
}

// FSDP2 drops the input of a reduction when the next one starts (_fully_shard/_fsdp_param_group.py, post_backward).
template <class Sink>
void describe_reduction(const ModelInStep& m, Event event, Sink& sink) {
  if (event.kind != EventKind::backward_block && event.kind != EventKind::recompute_block) return;
  const bool widens = m.run.framework.reduces_in_fp32 && m.run.inventory.trained_base.value > 0;
  const std::int64_t widened =
      widens ? bytes_per_element(ElementType::fp32) / bytes_per_element(working_type(m.run)) : 1;
  const bool after_head = event.layer + 1 == m.layers;
  if (after_head && !(ends_are_units(m.run) && m.run.stage.last)) return;
  const WalkedGraph& above = after_head ? m.head : stack_of(m, event.layer + 1).block;
  sink.term(Component::communication_buffers, widened, 1, 1,
            Factor{after_head ? "G_head" : "G_layer", above.profile().parameter_gradients.value});
}

// What communication holds beside the gradients themselves.
template <class Sink>
void describe_communication(const ModelInStep& m, Event event, Sink& sink) {
  constexpr Component kBuffers = Component::communication_buffers;
  const Sharding& s = m.run.sharding;
  const bool reduces = event.kind == EventKind::gradient_reduction;
  const bool goes_back = is_backward(event.kind) || event.kind == EventKind::value_backward;
  if (goes_back || (reduces && s.stage < 3)) sink.list(m, Holding::buffers);
  if (reduces && s.engine == Engine::deepspeed && s.stage == 1 && !s.host_gradients) {
    // The rank's part is copied out of the bucket, whose gradients have gone by then.
    const std::int64_t trained = m.run.inventory.trained().value;
    const std::int64_t bucket = zero_sizes(s, m.run.model->hidden_size).reduce_bucket;
    const std::int64_t part = divide_up(trained, s.optimizer) - std::min(bucket, trained);
    sink.term(kBuffers, bytes_per_element(m.run.types.weights), 1, 1,
              Factor{"P_part", std::max<std::int64_t>(part, 0)});
  }
  if (s.engine == Engine::fsdp2 && s.gathers) describe_reduction(m, event, sink);
  if (reduces && m.run.framework.reduction_bucket > 0 && s.ranks > 1) describe_bucket(m, sink);
}

}  // namespace vramplan
