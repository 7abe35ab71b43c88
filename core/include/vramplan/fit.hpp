// The verdict: does what a run needs on one device go into what the device has?
#pragma once

#include <cstdint>
#include <vector>

#include "vramplan/enum_names.hpp"
#include "vramplan/estimate.hpp"
#include "vramplan/units.hpp"

namespace vramplan {

// From best to worst; `unknown` when nobody has published what the card can hold.
enum class Verdict : std::uint8_t { comfortable, tight, at_risk, does_not_fit, unknown };
enum class FitReason : std::uint8_t {
  leaves_a_tenth,             // comfortable: a tenth of the card stays free even at the high end
  less_than_a_tenth_is_free,  // tight: the high end fits
  high_exceeds_usable,        // at_risk: only the expected figure fits
  expected_exceeds_usable,    // does_not_fit
  low_exceeds_usable,         // does_not_fit, and not even the low end would
  usable_not_published,       // unknown
};
template <>
struct EnumNames<Verdict> {
  static constexpr Names<5> values = {"comfortable", "tight", "at_risk", "does_not_fit", "unknown"};
};
template <>
struct EnumNames<FitReason> {
  static constexpr Names<6> values = {"leaves_a_tenth",          "less_than_a_tenth_is_free", "high_exceeds_usable",
                                      "expected_exceeds_usable", "low_exceeds_usable",        "usable_not_published"};
};

struct Fit {
  Verdict verdict = Verdict::unknown;
  Bytes usable;
  Bytes headroom;  // usable minus device.high: negative when the high end does not fit; 0 when unknown
  std::vector<FitReason> reasons;
};

// The share of the card that stays free when a run fits comfortably. Source: fit-verdict.
inline constexpr std::int64_t kComfortableParts = 10;

// `device`: what nvidia-smi would show, low <= expected <= high; the largest of the three counts as the high end.
// `usable`: usable_bytes (device.hpp); 0 makes the verdict `unknown`.
[[nodiscard]] Fit judge(const Estimate& device, Bytes usable);

// comfortable or tight: the run fits over the whole interval.
[[nodiscard]] constexpr bool fits(Verdict verdict) {
  return verdict == Verdict::comfortable || verdict == Verdict::tight;
}

}  // namespace vramplan
