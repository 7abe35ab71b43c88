// Stages of a pipeline under 1F1B and its interleaved form (Narayanan et al. 2021, arXiv 2104.04473; Megatron-LM,
// megatron/core/pipeline_parallel/schedules.py, forward_backward_pipelining_with_interleaving;
// torch/distributed/pipelining/schedules.py, ScheduleInterleaved1F1B).
#include <algorithm>

#include "vramplan/layout.hpp"

namespace vramplan {
namespace {

// Layers in front of a chunk: those of the ends, where these are given, and an even share for each other chunk. What
// does not divide evenly goes to the chunks behind the first, which has the embedding.
Dim layers_before(Dim layers, const LayoutChoice& layout, Dim chunk) {
  const Dim chunks = layout.pp * layout.vpp;
  const Dim of_first = divide_up(chunk, layout.pp), of_last = chunk / layout.pp;  // chunks in front, by stage
  Dim given = 0, open = chunks, open_before = chunk, behind_first = 1;
  if (layout.first_stage_layers) {
    given += *layout.first_stage_layers / layout.vpp * of_first;
    layers -= *layout.first_stage_layers;
    open -= layout.vpp, open_before -= of_first, behind_first = 0;
  }
  if (layout.last_stage_layers) {
    given += *layout.last_stage_layers / layout.vpp * of_last;
    layers -= *layout.last_stage_layers;
    open -= layout.vpp, open_before -= of_last;
  }
  if (open == 0) return given;
  return given + layers / open * open_before + std::clamp<Dim>(open_before - behind_first, 0, layers % open);
}

// Micro-batches in flight by chunk of the stage. A stage runs `warm_up` forwards before its first backward, and from
// then on one more; forwards take the chunks in turn, a micro-batch for each stage at a time.
std::vector<std::int64_t> in_flight(const LayoutChoice& layout, std::int64_t micro_batches, std::int64_t index) {
  const std::int64_t behind = layout.pp - index - 1;
  const std::int64_t warm_up = layout.vpp == 1 ? behind : 2 * behind + (layout.vpp - 1) * layout.pp;
  const std::int64_t forwards = std::min(warm_up + 1, saturating_multiply(micro_batches, layout.vpp));
  std::vector<std::int64_t> counts(static_cast<std::size_t>(layout.vpp));
  const std::int64_t round = layout.pp * layout.vpp;
  for (std::int64_t chunk = 0; chunk < layout.vpp; ++chunk) {
    const std::int64_t in_last_round = std::clamp<std::int64_t>(forwards % round - chunk * layout.pp, 0, layout.pp);
    counts[static_cast<std::size_t>(chunk)] = forwards / round * layout.pp + in_last_round;
  }
  return counts;
}

// How many of the layers [first, end) belong to each group.
void add_layers(const ModelArchitecture& model, Dim first, Dim end, Dim times, std::vector<Dim>& out) {
  Dim at = 0;
  for (std::size_t i = 0; i < model.groups.size(); ++i) {
    const Dim group_end = at + model.groups[i].count;
    out[i] += times * std::max<Dim>(std::min(end, group_end) - std::max(first, at), 0);
    at = group_end;
  }
}

// The chunk that has the layer.
std::int64_t chunk_with(Dim layers, const LayoutChoice& layout, Dim layer) {
  std::int64_t chunk = 0, end = layout.pp * layout.vpp;  // it lies in [chunk, end)
  while (end - chunk > 1) {
    const std::int64_t middle = chunk + (end - chunk) / 2;
    (layers_before(layers, layout, middle) <= layer ? chunk : end) = middle;
  }
  return chunk;
}

}  // namespace

std::vector<std::int64_t> binding_stages(const ModelArchitecture& model, const LayoutChoice& layout) {
  if (layout.pp <= 2) return layout.pp == 1 ? std::vector<std::int64_t>{0} : std::vector<std::int64_t>{0, 1};
  std::vector<std::int64_t> stages{0, 1, layout.pp - 1};
  const Dim layers = layers_of(model);
  Dim begin = model.groups.front().count;
  for (std::size_t i = 1; i < model.groups.size(); begin += model.groups[i++].count) {
    const std::int64_t chunk = chunk_with(layers, layout, begin);
    const bool mixed = layers_before(layers, layout, chunk) < begin;  // then the next is the first that is not
    for (std::int64_t stage = chunk % layout.pp; stage <= chunk % layout.pp + (mixed ? 1 : 0); ++stage) {
      if (stage > 1 && stage < layout.pp - 1) stages.push_back(stage);
    }
  }
  return stages;
}

Stage stage_of(const ModelArchitecture& model, const LayoutChoice& layout, std::int64_t micro_batches,
               std::int64_t index) {
  const Dim layers = layers_of(model);
  const std::vector<std::int64_t> counts = in_flight(layout, micro_batches, index);
  Stage stage{index, index == 0, index == layout.pp - 1, {}, {}, {}, counts[0] - 1};
  stage.held = stage.walked = stage.waiting = std::vector<Dim>(model.groups.size());
  // The last chunk that has a micro-batch: its backward comes first.
  std::int64_t walked = layout.vpp - 1;
  while (walked > 0 && counts[static_cast<std::size_t>(walked)] == 0) --walked;
  for (std::int64_t chunk = 0; chunk < layout.vpp; ++chunk) {
    const Dim first = layers_before(layers, layout, chunk * layout.pp + index);
    const Dim end = layers_before(layers, layout, chunk * layout.pp + index + 1);
    add_layers(model, first, end, 1, stage.held);
    if (chunk == walked) add_layers(model, first, end, 1, stage.walked);
    add_layers(model, first, end, counts[static_cast<std::size_t>(chunk)] - (chunk == walked ? 1 : 0), stage.waiting);
  }
  return stage;
}

}  // namespace vramplan
