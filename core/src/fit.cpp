#include "vramplan/fit.hpp"

#include <algorithm>

namespace vramplan {

Fit judge(const Estimate& device, Bytes usable) {
  if (usable.value <= 0) return {Verdict::unknown, Bytes(0), Bytes(0), {FitReason::usable_not_published}};
  const Bytes high = std::max({device.low, device.expected, device.high});
  const Bytes free_tenth(divide_up(usable.value, kComfortableParts));
  Fit fit{Verdict::does_not_fit, usable, usable - high, {}};
  if (high <= usable - free_tenth) {
    fit.verdict = Verdict::comfortable;
    fit.reasons = {FitReason::leaves_a_tenth};
  } else if (high <= usable) {
    fit.verdict = Verdict::tight;
    fit.reasons = {FitReason::less_than_a_tenth_is_free};
  } else if (device.expected <= usable) {
    fit.verdict = Verdict::at_risk;
    fit.reasons = {FitReason::high_exceeds_usable};
  } else {
    fit.reasons = {FitReason::expected_exceeds_usable};
    if (device.low > usable) fit.reasons.push_back(FitReason::low_exceeds_usable);
  }
  return fit;
}

}  // namespace vramplan
