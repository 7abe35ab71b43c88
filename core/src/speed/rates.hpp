// What a card reaches, and how GPUs are joined.
#pragma once

#include "vramplan/speed.hpp"

namespace vramplan {

[[nodiscard]] GpuFamily family_of(const Gpu& gpu);
// Dense TFLOP/s on paper; 0: the card has no such unit, or nobody published it.
[[nodiscard]] double peak_tflops(const Gpu& gpu, Precision precision);
[[nodiscard]] Rates rates_of(const Gpu& gpu, const NodeShape& node, const TrainingChoice& training,
                             const Calibration& calibration);
// Measured over estimated, for runs like this one.
[[nodiscard]] ErrorBand error_of(const Gpu& gpu, const TrainingChoice& training, bool has_experts,
                                 const Calibration& calibration);

}  // namespace vramplan
