// What to change: every single change of the request that the planner knows, evaluated whole, best verdict first.
#pragma once

#include <functional>
#include <vector>

#include "vramplan/report.hpp"

namespace vramplan {

// Memory of a changed request; nothing when the change makes no sense there.
using EvaluateChange = std::function<std::optional<MemoryEstimate>(const PlanRequest&)>;

// Changes that save device memory, ordered by verdict, then by bytes saved, then by id. `usable` 0: verdict unknown.
[[nodiscard]] std::vector<Change> suggest_changes(const PlanRequest& request, const MemoryEstimate& now, Bytes usable,
                                                  const EvaluateChange& evaluate);

}  // namespace vramplan
