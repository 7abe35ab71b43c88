// Makes what a model has in a step, and answers simple questions about it.
#pragma once

#include <cstdint>

#include "vramplan/step.hpp"

namespace vramplan {

// Graphs are built or shared; nothing has a size yet. Of the value model too.
[[nodiscard]] ModelInStep model_in_step(Run run, GraphSet& graphs);
// Sizes graphs and counts what is held for the run as it is, of this model alone.
void measure(ModelInStep& m);
// What is held, part by part.
[[nodiscard]] Contributions contributions_of(const ModelInStep& m, Holding holding);

inline bool runs_reference(const ModelInStep& m) { return !m.reference.empty(); }

inline const LayerStack& stack_of(const ModelInStep& m, std::int32_t layer) {
  for (const LayerStack& stack : m.stacks) {
    if (layer < stack.end()) return stack;
  }
  return m.stacks.back();
}

}  // namespace vramplan
