// The door: JSON text in, JSON text out. Never throws; whatever goes wrong is a problem in the answer.
#pragma once

#include <string>
#include <string_view>

namespace vramplan::api {

// A report, or {"version", "problems": [...]}: see design section 4 and web/src/wire.ts.
[[nodiscard]] std::string plan(std::string_view request_json);
// The same without what lies around the answer (report.hpp, Outlook).
[[nodiscard]] std::string answer(std::string_view request_json);
// Without the timeline, too: what a page shows first.
[[nodiscard]] std::string glance(std::string_view request_json);
// Models, GPUs, systems, options, sources.
[[nodiscard]] std::string catalogue();
// The same with a vendor's cards and systems, {"replace": …, "gpus": […], "systems": […]} (catalogue_hardware.hpp).
// The answer holds problems with their places in that document where it is not in order.
[[nodiscard]] std::string plan_with(std::string_view request_json, std::string_view vendor_json);
[[nodiscard]] std::string glance_with(std::string_view request_json, std::string_view vendor_json);
[[nodiscard]] std::string catalogue_with(std::string_view vendor_json);
// {"text": what PyTorch or nvidia-smi printed, "request": the run, optional} in; {"diagnosis", "changes"} out: what
// filled the card, and those changes of the run that free enough.
[[nodiscard]] std::string diagnose(std::string_view document_json);
// {"version": "…"}
[[nodiscard]] std::string version();

// True when an answer of plan() holds problems instead of a report. Reads only its beginning.
[[nodiscard]] bool has_problems(std::string_view report_json);

}  // namespace vramplan::api
