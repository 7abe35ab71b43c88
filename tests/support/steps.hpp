// Models of the catalogue, and what their steps hold.
#pragma once

#include <doctest/doctest.h>

#include <string_view>

#include "catalogue.hpp"
#include "vramplan/step.hpp"

namespace vramplan::support {

inline const ModelArchitecture& model_of(std::string_view id) {
  const ModelCard* card = find_model(shipped_catalogue(), id);
  REQUIRE(card != nullptr);
  return card->architecture;
}

// A stage of a training as a request with this layout starts it.
inline Step step_of(std::string_view model, const TrainingChoice& training, const LayoutChoice& layout,
                    std::int64_t stage = 0) {
  PlanRequest request;
  request.training = training;
  request.layout = layout;
  return Step(prepare(model_of(model), resolve_defaults(request).training, layout, Bytes(0), stage));
}

// Bytes that each layer of the first kind keeps for backward.
inline std::int64_t kept(const Step& step) { return step.kept_per_layer(step.stacks().front()).value; }

// Bytes of a component while an event runs.
inline std::int64_t held(const Step& step, Component component, Event event) {
  Bytes sum;
  for (const Contribution& c : step.contributions(event)) {
    if (c.component == component) sum += c.bytes();
  }
  return sum.value;
}
inline std::int64_t held(const Step& step, Component component, EventKind kind, std::int32_t layer = -1) {
  return held(step, component, Event{kind, layer});
}

}  // namespace vramplan::support
