// Weights that are divided over ranks and come together to compute: FSDP's units, DeepSpeed's fetched modules.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "step/events.hpp"
#include "step/model_in_step.hpp"
#include "step/run.hpp"

namespace vramplan {

inline bool uses_side_streams(const Run& run) { return run.sharding.engine == Engine::fsdp2 && run.sharding.gathers; }

inline bool ends_are_units(const Run& run) {
  return uses_side_streams(run) && run.framework.ends_are_units && !run.model->tie_word_embeddings;
}

// What the embedding has of the parameters outside the layers.
inline Params embedding_unit(const Run& run) {
  if (!run.stage.first) return Params(0);
  return std::min(run.inventory.outside_layers,
                  Params(saturating_multiply(run.model->vocab_size, run.model->hidden_size)));
}

// DeepSpeed's stage 3 fetches module by module and the next ones in advance. A module stays when it is needed again
// within a distance: the last layers from forward to backward, and a layer from its recompute to its backward
// (deepspeed/runtime/zero/partitioned_param_coordinator.py, fetch_sub_module and __params_to_release).
inline constexpr Params kReuseDistance{1'000'000'000};  // stage3_max_reuse_distance, elements

// Layers of which no more lies between forward and backward than the distance; what does is met twice.
inline Dim layers_within_reuse(const Run& run, const std::vector<LayerStack>& stacks) {
  Params between(saturating_multiply(run.model->vocab_size, run.model->hidden_size));
  Dim layers = 0;
  for (auto stack = stacks.rbegin(); stack != stacks.rend(); ++stack) {
    for (Dim i = 0; i < stack->count; ++i, ++layers) {
      if (between * 2 >= kReuseDistance) return layers;
      between += stack->parameters;
    }
  }
  return layers;
}

// Elements of a unit, or bytes where they are packed.
inline Factor unit_of(const Run& run, Params elements) {
  if (!is_quantized(run.types.base)) return {"P_layer", elements.value};
  const BlockFormat format = storage_of(run.types.base);
  return {"P_layer", divide_up(saturating_multiply(elements.value, format.bytes), format.elements)};
}

// Whole layers of a stack under FSDP: the one that runs, and in backward the layer before, which FSDP2 gathers in
// advance (_fully_shard/_fsdp_param_group.py, _backward_prefetch). FSDP1 does so where the framework asks for it.
inline Dim gathered_layers(const ModelInStep& m, const LayerStack& stack, Event event) {
  const Sharding& s = m.run.sharding;
  const auto holds = [&](Dim layer) { return stack.holds(layer) ? Dim{1} : 0; };
  const bool second = s.engine == Engine::fsdp2;
  if (!s.reshards && m.run.layout.pp > 1) {  // other micro-batches have come by all of them
    return stack.count + (stack.last_of_group ? m.run.stage.held[stack.group] - m.run.stage.walked[stack.group] : 0);
  }
  if (!s.reshards) return layers_met(stack, event);
  if (event.kind == EventKind::forward_block) return holds(event.layer);
  const bool keeps_last = second && m.run.framework.keeps_last_unit && !m.run.layout.reshard.has_value();
  if (event.kind == EventKind::forward_head) return keeps_last ? holds(m.layers - 1) : 0;
  const bool ahead = second || m.run.framework.gathers_ahead;
  if (event.kind == EventKind::backward_head) return ahead ? holds(m.layers - 1) : 0;
  if (event.kind == EventKind::reference_forward) return holds(m.layers - 1);
  return holds(event.layer) + (ahead ? holds(event.layer - 1) : 0);
}

// Buffers out of which FSDP2 copies whole layers. In forward one lives until the next unit needs one
// (wait_for_unshard).
inline Dim gather_buffers(const ModelInStep& m, const LayerStack& stack, Event event) {
  if (m.run.sharding.engine != Engine::fsdp2) return 0;
  const auto holds = [&](Dim layer) { return stack.holds(layer) ? Dim{1} : 0; };
  if (event.kind == EventKind::forward_block) return holds(event.layer);
  return event.kind == EventKind::forward_head && m.run.sharding.reshards ? holds(m.layers - 1) : 0;
}

// What lies outside the layers: one unit, whole from forward to the end of backward, or the embedding and the head each
// for itself. A tied table is in one unit.
template <class Sink>
void describe_ends(const ModelInStep& m, Event event, Sink& sink) {
  const std::int64_t bytes = bytes_per_element(m.run.types.compute);
  const auto gathered = [&](std::string_view name, Params elements) {
    sink.term(Component::gathered_parameters, bytes, 1, 1, Factor{name, elements.value});
  };
  if (!ends_are_units(m.run)) return gathered("P_root", m.run.inventory.outside_layers);
  if (is_embedding(event.kind) || !m.run.sharding.reshards) gathered("P_embedding", embedding_unit(m.run));
  if (is_head(event.kind) || (m.run.layout.pp > 1 && m.run.stage.last))
    gathered("P_head", m.run.inventory.outside_layers - embedding_unit(m.run));
}

// DeepSpeed's stage 3: the module that runs, the next ones, and those that are needed again soon.
template <class Sink>
void describe_fetched(const ModelInStep& m, Event event, Sink& sink) {
  constexpr Component kGathered = Component::gathered_parameters;
  const bool packed = is_quantized(m.run.types.base);
  const std::int64_t bytes = bytes_per_element(m.run.types.weights);
  const std::int64_t each = packed ? 1 : bytes;
  const Params fetch = m.run.inventory.largest_fetch;
  const Params in_advance(zero_sizes(m.run.sharding, m.run.model->hidden_size).prefetch_bucket);
  sink.term(kGathered, each, 1, 1, unit_of(m.run, std::max(in_advance, fetch)));
  if (is_block(event.kind)) {
    const Params layer = stack_of(m, event.layer).parameters;
    const bool stays = event.kind != EventKind::forward_block || event.layer >= m.layers - m.reused_layers;
    const Params most = std::max(fetch, Params(kReuseDistance.value / 2));
    sink.term(kGathered, each, 1, 1, unit_of(m.run, stays ? std::min(layer, most) : fetch));
  } else {
    sink.term(kGathered, bytes, 1, 1, Factor{"V", m.run.model->vocab_size}, Factor{"h", m.run.model->hidden_size});
  }
  const Dim below = is_head(event.kind) ? m.layers : std::max<Dim>(event.layer, 0);
  for (const LayerStack& stack : m.stacks) {
    const Dim first = std::max(stack.first, m.layers - m.reused_layers);
    const Dim end = std::min(stack.end(), below);
    sink.term(kGathered, each, 1, std::max<Dim>(end - first, 0), unit_of(m.run, stack.parameters));
  }
}

// Of whatever engine.
template <class Sink>
void describe_sharded(const ModelInStep& m, Event event, Sink& sink) {
  if (!m.run.sharding.gathers || !in_pass(event.kind)) return;
  if (m.run.sharding.engine == Engine::deepspeed) return describe_fetched(m, event, sink);
  const std::int64_t bytes = bytes_per_element(m.run.types.compute);
  const bool second_root = event.kind == EventKind::reference_forward && reference_runs_last(m.run) &&
                           m.run.training.reference == Reference::model;
  describe_ends(m, event, sink);
  if (second_root) describe_ends(m, event, sink);
  const std::int64_t each = is_quantized(m.run.types.base) ? 1 : bytes;
  for (const LayerStack& stack : m.stacks) {
    const Factor unit = unit_of(m.run, stack.parameters);
    sink.term(Component::gathered_parameters, each, 1, gathered_layers(m, stack, event), unit);
    sink.side(Component::gathered_parameters, each, 1, gather_buffers(m, stack, event), unit);
  }
}

}  // namespace vramplan
