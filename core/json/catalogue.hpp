// The rows of core/data, and those that a vendor adds, from JSON into the catalogue.
#pragma once

#include <string>

#include "catalogue_hardware.hpp"
#include "reader.hpp"
#include "vramplan/catalogue.hpp"
#include "vramplan/result.hpp"

namespace vramplan {

// A row of core/data/models: `pointer` is where it stands in its document. Strict: an unknown
// field, a wrong type or a number out of range is a problem, and all of them are reported. A model that reads well is
// also checked for what its numbers say together (check_architecture).
[[nodiscard]] Result<ModelCard> read_model(const Json& value, const std::string& pointer);

// Three arrays of rows; the problems of a row stand at /models/<index>, /gpus/<index>, /systems/<index>.
[[nodiscard]] Result<Catalogue> read_catalogue(const Json& models, const Json& gpus, const Json& systems);

// What was compiled in; read once. A test reads it with read_catalogue and finds no problem: a row that could not be
// read would leave the catalogue empty.
[[nodiscard]] const Catalogue& shipped_catalogue();

}  // namespace vramplan
