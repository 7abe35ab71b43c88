// The door: JSON text in, JSON text out. Never throws; whatever goes wrong is a problem in the answer.
#pragma once

#include <string>
#include <string_view>

namespace vramplan::api {

// A report, or {"version", "problems": [...]}: see design section 4 and web/src/wire.ts.
[[nodiscard]] std::string plan(std::string_view request_json);
// Models, GPUs, systems, options, sources.
[[nodiscard]] std::string catalogue();
// {"version": "…"}
[[nodiscard]] std::string version();

// True when an answer of plan() holds problems instead of a report. Reads only its beginning.
[[nodiscard]] bool has_problems(std::string_view report_json);

}  // namespace vramplan::api
