// What the layers of a model do for one token, and the head: made once for a model and a training choice.
#pragma once

#include <vector>

#include "vramplan/speed.hpp"

namespace vramplan {

[[nodiscard]] SpeedStack stack_of(const TrainingChoice& training);
// Whether norms, rotary positions and activations are one kernel each.
[[nodiscard]] bool runs_fused(const TrainingChoice& training);

[[nodiscard]] std::vector<LayerWork> layer_work(const ModelArchitecture& model, const TrainingChoice& training);
// A module of multi-token prediction: `last`, a layer like the last one, behind a projection of stream and embedding.
[[nodiscard]] LayerWork prediction_work(const ModelArchitecture& model, const TrainingChoice& training,
                                        const LayerWork& last);
[[nodiscard]] LayerWork head_work(const ModelArchitecture& model, const TrainingChoice& training);

}  // namespace vramplan
