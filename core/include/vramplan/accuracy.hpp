// How far measured runs lie from the planner's expected value, by framework and method, and whether the run names its
// release: the width of the interval.
#pragma once

#include <cstdint>

#include "vramplan/request.hpp"

namespace vramplan {

// Measured over expected, in thousandths: the range that held nine in ten of the public measured runs.
struct Residual {
  std::int64_t low = 1000;
  std::int64_t high = 1000;
};
[[nodiscard]] Residual residual_of(const TrainingChoice& training);

}  // namespace vramplan
