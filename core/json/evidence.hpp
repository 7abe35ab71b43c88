// core/data/measured_runs.json: public measured runs, each with its request, and what they say of the planner.
#pragma once

#include "reader.hpp"
#include "vramplan/evidence.hpp"
#include "vramplan/result.hpp"

namespace vramplan {

// Problems stand at /groups/<index>/<field>, /runs/<index>/<field>, and for the request of a run at the request's own
// pointer.
[[nodiscard]] Result<Evidence> read_evidence(const Json& document);

// What was compiled in; read once. A test reads it with read_evidence and finds no problem.
[[nodiscard]] const Evidence& shipped_evidence();

}  // namespace vramplan
