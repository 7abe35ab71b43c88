// A request (design section 4) from JSON into a PlanRequest.
#pragma once

#include "reader.hpp"
#include "vramplan/request.hpp"
#include "vramplan/result.hpp"

namespace vramplan {

inline constexpr NumberRange kTokens{1.0, 1e18};  // of training.tokens

// Every problem at once, each with its pointer: what the fields hold, then what check_request() says of them together.
// Whether a model or a GPU exists is for the catalogue to say.
[[nodiscard]] Result<PlanRequest> read_request(const Json& document);
// The same; what could be read is in `request` although other fields have problems.
[[nodiscard]] Problems read_request(const Json& document, PlanRequest& request);

}  // namespace vramplan
