// The pipeline, stage by stage: request -> architecture -> parameters -> states -> ops -> layout -> step -> memory ->
// fit -> speed -> suggestions -> evidence -> report. The only place that chains them.
#pragma once

#include "vramplan/catalogue.hpp"
#include "vramplan/evidence.hpp"
#include "vramplan/report.hpp"
#include "vramplan/request.hpp"
#include "vramplan/result.hpp"

namespace vramplan {

// Problems: those of check_request, resolve_model; unknown_gpu; precision_unsupported; inconsistent at
// /training/lora/targets when none of them is a module of the model; too_large when a number would not fit in 2^53.
[[nodiscard]] Result<Report> plan(const PlanRequest& request, const Catalogue& catalogue, const Evidence& evidence);

// The same report without its outlook, in a fraction of the time.
[[nodiscard]] Result<Report> answer(const PlanRequest& request, const Catalogue& catalogue);

// Without its timeline, too: a fifth of that.
[[nodiscard]] Result<Report> glance(const PlanRequest& request, const Catalogue& catalogue);

// Only what plan() says of names: unknown_model, unknown_gpu, and overrides that do not suit the model.
[[nodiscard]] Problems check_names(const PlanRequest& request, const Catalogue& catalogue);

// Memory of one rank: the part of the pipeline that searches and suggestions call, many times.
[[nodiscard]] MemoryEstimate evaluate(const ModelArchitecture& model, const TrainingChoice& training,
                                      const LayoutChoice& layout, const Gpu* gpu);

}  // namespace vramplan
