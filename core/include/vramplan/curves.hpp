// How the need of a run grows with its micro-batch and with its sequence length, and where a card's memory ends.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "vramplan/estimate.hpp"
#include "vramplan/fit.hpp"
#include "vramplan/request.hpp"
#include "vramplan/units.hpp"

namespace vramplan {

struct CurvePoint {
  std::int64_t value = 0;
  Estimate device;
};

struct Curve {
  std::int64_t now = 0;            // what the request has; one of the points
  std::vector<CurvePoint> points;  // ascending
  // The largest value that fits over the whole interval; nothing when none does, or when no card is known.
  std::optional<std::int64_t> largest_that_fits;
  // The smallest value whose expected need is more than the card has: where it runs out of memory. Nothing when no
  // possible value does, or when no card is known.
  std::optional<std::int64_t> runs_out_at;
};

// What device memory the run needs with this value. It never falls as the value grows.
using NeedOfValue = std::function<Estimate(std::int64_t)>;

// The values of a curve: `range`, or, where `divides` is given, those of its divisors that lie in the range.
struct CurveValues {
  IntegerRange range;
  std::optional<std::int64_t> divides;
};

// `usable` 0: no card. Points lie at powers of two and halfway between, from the smallest of interest to the first
// beyond both `now` and the end of memory, or to kBeyondNow times `now` where memory does not end before.
[[nodiscard]] Curve curve_of(std::int64_t now, const CurveValues& values, Bytes usable, const NeedOfValue& need);
inline constexpr std::int64_t kBeyondNow = 16;
// No device has as much, and what is more may not be exact on the wire.
inline constexpr Bytes kEndOfCurves{1'000'000'000'000'000};

}  // namespace vramplan
