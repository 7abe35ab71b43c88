// What a report says of the time after training, and of larger models.
#pragma once

#include "report.hpp"
#include "vramplan/after_training.hpp"
#include "vramplan/growth.hpp"

namespace vramplan {

[[nodiscard]] OrderedJson write_after_training(const AfterTraining& after);
[[nodiscard]] OrderedJson write_growth(const std::vector<Growth>& growth);

}  // namespace vramplan
