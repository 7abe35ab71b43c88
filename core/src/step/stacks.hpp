// The layers of a stage as stacks of identical ones.
#pragma once

#include <vector>

#include "vramplan/graph_set.hpp"
#include "vramplan/step.hpp"

namespace vramplan {

// In the order in which forward walks them. Graphs are built or shared; nothing has a size yet.
[[nodiscard]] std::vector<LayerStack> stacks_of(const Run& run, GraphSet& graphs);
// One layer of each group, and the head; none where no reference runs.
[[nodiscard]] std::vector<WalkedGraph> reference_of(const Run& run, GraphSet& graphs);

}  // namespace vramplan
