// Reports, problems and the catalogue as JSON (web/src/wire.ts is the same shape for the page).
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "reader.hpp"
#include "vramplan/catalogue.hpp"
#include "vramplan/report.hpp"
#include "vramplan/result.hpp"

namespace vramplan {

using OrderedJson = nlohmann::ordered_json;  // fields in the order in which people read them

[[nodiscard]] OrderedJson write_problems(const Problems& problems);
// `document` is the request as it was sent: the model in the echoed request is taken from there.
[[nodiscard]] OrderedJson write_report(const Report& report, const Json& document, std::string_view version);
// The changes of a report alone.
[[nodiscard]] OrderedJson write_changes(const std::vector<Change>& changes, const PlanRequest& request,
                                        const Json& document);
// A request with every default filled in.
[[nodiscard]] OrderedJson write_request(const PlanRequest& request, const Json& document);
// What the page offers: models, GPUs, systems, the options of a request with their limits and defaults, sources.
[[nodiscard]] OrderedJson write_catalogue(const Catalogue& catalogue, std::string_view sources_json,
                                          std::string_view version);

}  // namespace vramplan
