// The answer: design section 4, as a value. core/json writes it; the page words it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "vramplan/after_training.hpp"
#include "vramplan/architecture.hpp"
#include "vramplan/component.hpp"
#include "vramplan/curves.hpp"
#include "vramplan/evidence.hpp"
#include "vramplan/fit.hpp"
#include "vramplan/fit_matrix.hpp"
#include "vramplan/growth.hpp"
#include "vramplan/ladder.hpp"
#include "vramplan/launch.hpp"
#include "vramplan/layout.hpp"
#include "vramplan/memory.hpp"
#include "vramplan/request.hpp"
#include "vramplan/search.hpp"
#include "vramplan/speed.hpp"
#include "vramplan/step.hpp"
#include "vramplan/suggestion.hpp"

namespace vramplan {

enum class WarningCode : std::uint8_t {
  model_inferred,         // args: - (a typical shape was inferred from a parameter count)
  model_confidence,       // args: confidence
  beyond_context,         // args: sequence_length, maximum
  gpu_doubtful,           // args: gpu, fields
  usable_unknown,         // args: gpu
  weight_format_caution,  // args: gpu, reason
  layout_chosen,          // args: count (several GPUs and no layout: the fastest that fits)
  towers_not_walked,      // args: parameters (towers count as weights; their activations are not modelled)
};
template <>
struct EnumNames<WarningCode> {
  static constexpr Names<8> values = {"model_inferred", "model_confidence",      "beyond_context", "gpu_doubtful",
                                      "usable_unknown", "weight_format_caution", "layout_chosen",  "towers_not_walked"};
};

struct Warning {
  WarningCode code = WarningCode::model_inferred;
  std::string pointer;
  std::vector<ProblemArgument> arguments;
};

struct TimelinePoint {
  Event event;
  Bytes live;
  std::vector<std::pair<Component, Bytes>> by_component;
};

// Identical layers in a row, and what one of them keeps from its forward to its backward.
struct LayerRow {
  Dim first = 0;
  Dim count = 0;
  Bytes kept;
};

using PatchValue = std::variant<std::int64_t, double, bool, std::string, std::vector<std::string>>;
struct Patch {
  std::string pointer;
  PatchValue value;
};

// A single change of the request, evaluated whole: applying `patches` gives exactly these figures.
struct Change {
  std::string id;
  std::vector<Patch> patches;
  PatchValue from;
  Estimate device;
  Bytes saved;  // device.expected before less after
  Verdict verdict = Verdict::unknown;
  double tokens_per_second = 0;  // after; 0: no estimate
  double times_as_fast = 0;      // as before; 0: no estimate
};

// How fast it runs, or why nobody can tell (speed.hpp).
struct SpeedEstimate {
  Speed speed;
  std::optional<Budget> budget;  // for `training.tokens`
  std::string_view refused;      // "": there is an estimate
};

// What lies around an answer: hardware, changes, growth, evidence, the way there and what comes after.
struct Outlook {
  HardwareSuggestions systems;
  std::vector<LadderStep> ladder;
  SearchResult layouts;  // of the chosen GPUs, with other micro-batches and recomputation
  FitMatrix matrix;
  std::vector<Change> changes;
  Curve micro_batch_curve, sequence_length_curve;
  std::optional<AccuracyGroup> accuracy;  // of runs of the same framework and method
  std::vector<MeasuredRun> nearest;       // measured runs that resemble this one
  std::vector<Growth> growth;             // empty: no GPU chosen, or nobody published what it holds
  AfterTraining after_training;
  Launch launch;  // how to start it
};

struct Report {
  PlanRequest request;         // every default filled in
  bool layout_chosen = false;  // by the planner: the request named none
  ResolvedModel model;
  Inventory inventory;
  Dim layers = 0;
  MemoryEstimate memory;
  Bytes first_step;  // allocated at the peak of the very first step, before there are optimizer states
  std::vector<ComponentRow> components;
  std::vector<ComponentRow> beyond_allocated;
  std::vector<LayerRow> layer_rows;
  std::vector<MemoryEstimate> stages;                        // of the pipeline
  std::optional<RankMap> ranks;                              // where a GPU is chosen
  std::vector<TimelinePoint> timeline;                       // of plan() and answer()
  Bytes host_memory_per_node;                                // what is offloaded or paged
  std::vector<std::pair<Component, Bytes>> host_components;  // of a node; they add up to it
  std::optional<Fit> fit;
  std::optional<SpeedEstimate> speed;  // where a GPU is chosen
  std::vector<Warning> warnings;
  std::optional<Outlook> outlook;  // of plan()
};

// What a request is changed from: a layout that the planner chose is chosen again for whatever is changed.
[[nodiscard]] inline PlanRequest own_choices(const Report& report) {
  PlanRequest request = report.request;
  if (report.layout_chosen) request.layout.reset();
  return request;
}

}  // namespace vramplan
