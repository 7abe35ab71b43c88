// One function a framework; `switches_for` picks it.
#pragma once

#include "vramplan/framework.hpp"

namespace vramplan {

// What the Trainer makes of the names of optimizers (transformers/trainer_optimizer.py).
void set_trainer_optimizers(FrameworkSwitches& switches);
[[nodiscard]] FrameworkSwitches transformers_switches(const TrainingChoice& training, const Sharding& sharding);
[[nodiscard]] FrameworkSwitches liger_switches(const TrainingChoice& training, const Sharding& sharding);
[[nodiscard]] FrameworkSwitches unsloth_switches(const TrainingChoice& training);
[[nodiscard]] FrameworkSwitches deepspeed_switches(const TrainingChoice& training, const Sharding& sharding);
[[nodiscard]] FrameworkSwitches litgpt_switches(const TrainingChoice& training, const Sharding& sharding);
[[nodiscard]] FrameworkSwitches torchtune_switches(const TrainingChoice& training);
[[nodiscard]] FrameworkSwitches torchtitan_switches(const TrainingChoice& training);
[[nodiscard]] FrameworkSwitches megatron_switches(const TrainingChoice& training);
[[nodiscard]] FrameworkSwitches scaling_switches(const TrainingChoice& training);

}  // namespace vramplan
