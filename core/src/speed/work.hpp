// What the layers of a model do for one token, and the head: made once for a model and a training choice.
#pragma once

#include <vector>

#include "vramplan/speed.hpp"

namespace vramplan {

[[nodiscard]] SpeedStack stack_of(const TrainingChoice& training);
// Whether norms, rotary positions and activations are one kernel each.
[[nodiscard]] bool runs_fused(const TrainingChoice& training);

[[nodiscard]] std::vector<LayerWork> layer_work(const ModelArchitecture& model, const TrainingChoice& training);
[[nodiscard]] LayerWork head_work(const ModelArchitecture& model, const TrainingChoice& training);

}  // namespace vramplan
