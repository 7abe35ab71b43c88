// A number of bytes that is known within an interval: nine runs in ten fall between low and high.
#pragma once

#include "vramplan/units.hpp"

namespace vramplan {

struct Estimate {
  Bytes low;
  Bytes expected;
  Bytes high;

  friend constexpr bool operator==(const Estimate&, const Estimate&) = default;
  friend constexpr Estimate operator+(const Estimate& a, const Estimate& b) {
    return {a.low + b.low, a.expected + b.expected, a.high + b.high};
  }
  friend constexpr Estimate operator*(const Estimate& a, std::int64_t n) {
    return {a.low * n, a.expected * n, a.high * n};
  }
};

}  // namespace vramplan
