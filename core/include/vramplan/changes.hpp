// What to change: every single change of the request that the planner knows, evaluated whole, best verdict first.
#pragma once

#include <functional>
#include <vector>

#include "vramplan/report.hpp"

namespace vramplan {

// Need of a changed request; nothing when the change makes no sense there.
using EvaluateChange = std::function<std::optional<RunNeed>(const PlanRequest&)>;

// Changes that save device memory, ordered by verdict, then by least speed lost, then by bytes saved, then by id.
// `usable` 0: verdict unknown. A request without a layout has its changes made to the layout that suits them.
[[nodiscard]] std::vector<Change> suggest_changes(const PlanRequest& request, const RunNeed& now, Bytes usable,
                                                  const EvaluateChange& evaluate);

}  // namespace vramplan
