// GPUs and systems as JSON: the rows of core/data, and the file with which a vendor replaces or extends them.
//
//   {"replace": false, "gpus": [...], "systems": [...]}
//
// Rows have the shape of core/data/gpus/*.json and core/data/systems/*.json. `note` is for whoever maintains the row
// and stays behind. Every problem is reported at once, each with its JSON Pointer.
#pragma once

#include <string>

#include "reader.hpp"
#include "vramplan/catalogue.hpp"

namespace vramplan {

[[nodiscard]] Result<Gpu> read_gpu(const Json& row, const std::string& pointer = "");
[[nodiscard]] Result<System> read_system(const Json& row, const std::string& pointer = "");

// A row replaces the row with the same id (letter case ignored); the others are added. With `replace`, a list that is
// given takes the place of the whole list; a list that is absent stays as it is, less the cards that are gone and the
// systems that have none left. Problems: those of the rows; inconsistent (two rows of the file with one id);
// unknown_gpu (a system of the file names a card that the outcome does not have).
[[nodiscard]] Result<Catalogue> extend_catalogue(Catalogue catalogue, const Json& extension);

}  // namespace vramplan
