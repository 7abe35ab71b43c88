// Changes to a known shape. Private to src/architecture.
#pragma once

#include <string>

#include "vramplan/model.hpp"
#include "vramplan/request.hpp"
#include "vramplan/result.hpp"

namespace vramplan {

// Applies what is set; a field that the model does not have is a problem (inconsistent) at prefix/<field>.
// An override changes what it names and what follows from it by definition; see overrides.cpp for each.
void apply_overrides(const ModelOverrides& overrides, const std::string& prefix, ModelArchitecture& model,
                     Problems& problems);

}  // namespace vramplan
