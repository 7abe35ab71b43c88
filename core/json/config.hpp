// A model's shape from the config.json that Hugging Face's Transformers saves beside its weights.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "reader.hpp"
#include "vramplan/model.hpp"
#include "vramplan/result.hpp"

namespace vramplan {

// Fields that decide the shape are read strictly; all others are ignored. An absent field takes the default of the
// dialect's own configuration class, but sizes that differ from model to model must be there. A config of text and
// vision (`text_config`) gives the text model with the vision tower as a whole. Multi-token-prediction layers are left
// out: Transformers does not load them.
// Problems: not_a_config, unknown_dialect, missing_field, wrong_type, not_an_integer, out_of_range, unknown_value,
// inconsistent, not_supported, each at its pointer below `pointer`.
[[nodiscard]] Result<ModelArchitecture> read_config(const Json& config, const std::string& pointer);

// Every model_type that read_config knows, in alphabetical order.
[[nodiscard]] std::vector<std::string_view> config_dialects();

}  // namespace vramplan
