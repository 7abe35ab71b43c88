// One function a framework; `switches_for` picks it.
#pragma once

#include "vramplan/framework.hpp"

namespace vramplan {

[[nodiscard]] FrameworkSwitches transformers_switches(const TrainingChoice& training, bool sharded);
[[nodiscard]] FrameworkSwitches litgpt_switches(const TrainingChoice& training, bool sharded);
[[nodiscard]] FrameworkSwitches torchtune_switches(const TrainingChoice& training);

}  // namespace vramplan
