#include "vramplan/curves.hpp"

#include <algorithm>

namespace vramplan {
namespace {

// 1, 2, 3, 4, 6, 8, 12, 16, …
std::vector<std::int64_t> geometric(IntegerRange range) {
  std::vector<std::int64_t> values;
  for (std::int64_t power = 1; power <= range.maximum; power *= 2) {
    for (const std::int64_t value : {power, power + power / 2}) {
      if (value >= range.minimum && value <= range.maximum && (values.empty() || value > values.back()))
        values.push_back(value);
    }
  }
  return values;
}

std::vector<std::int64_t> divisors(std::int64_t number, IntegerRange range) {
  std::vector<std::int64_t> values;
  for (std::int64_t low = 1; low <= number / low; ++low) {
    if (number % low != 0) continue;
    for (const std::int64_t value : {low, number / low}) {
      if (value >= range.minimum && value <= range.maximum) values.push_back(value);
    }
  }
  std::sort(values.begin(), values.end());
  return values;
}

std::vector<std::int64_t> grid(std::int64_t now, const CurveValues& values) {
  std::vector<std::int64_t> out = values.divides ? divisors(*values.divides, values.range) : geometric(values.range);
  out.push_back(now);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// The first value of `below`+1 … `above` that `ends`, which `above` does and `below` does not.
template <class Ends>
std::int64_t first_between(std::int64_t below, std::int64_t above, Ends ends) {
  while (above - below > 1) {
    const std::int64_t middle = below + (above - below) / 2;
    (ends(middle) ? above : below) = middle;
  }
  return above;
}

// Where a condition that holds from some value on begins to hold.
template <class Ends>
std::optional<std::int64_t> first_that(const Curve& curve, const CurveValues& values, Ends ends,
                                       const NeedOfValue& need) {
  const auto& points = curve.points;
  const auto above = std::find_if(points.begin(), points.end(), [&](const CurvePoint& p) { return ends(p.device); });
  if (above == points.end()) return std::nullopt;
  if (above == points.begin() || values.divides) return above->value;
  return first_between((above - 1)->value, above->value, [&](std::int64_t value) { return ends(need(value)); });
}

void find_ends(Curve& curve, const CurveValues& values, Bytes usable, const NeedOfValue& need) {
  const auto misfits = [&](const Estimate& device) { return !fits(judge(device, usable).verdict); };
  const auto exceeds = [&](const Estimate& device) { return device.expected > usable; };
  curve.runs_out_at = first_that(curve, values, exceeds, need);
  const auto too_large = first_that(curve, values, misfits, need);
  if (!too_large) {
    curve.largest_that_fits = curve.points.back().value;
  } else if (*too_large != curve.points.front().value) {
    const auto above = std::find_if(curve.points.begin(), curve.points.end(),
                                    [&](const CurvePoint& p) { return p.value >= *too_large; });
    curve.largest_that_fits = values.divides ? (above - 1)->value : *too_large - 1;
  }
}

}  // namespace

Curve curve_of(std::int64_t now, const CurveValues& values, Bytes usable, const NeedOfValue& need) {
  Curve curve;
  curve.now = now;
  const bool has_card = usable.value > 0;
  for (const std::int64_t value : grid(now, values)) {
    const Estimate device = need(value);
    if (value > now && device.high > kEndOfCurves) break;
    curve.points.push_back({value, device});
    const bool ended = has_card ? device.expected > usable : value >= saturating_multiply(now, kBeyondNow);
    if (value > now && ended) break;
  }
  if (has_card) find_ends(curve, values, usable, need);
  return curve;
}

}  // namespace vramplan
