#include "vramplan/fit.hpp"

#include <doctest/doctest.h>

using namespace vramplan;
using namespace vramplan::literals;

namespace {

Fit judged(std::int64_t low, std::int64_t expected, std::int64_t high, std::int64_t usable) {
  return judge({Bytes(low), Bytes(expected), Bytes(high)}, Bytes(usable));
}

}  // namespace

TEST_CASE("a tenth of the card free at the high end is comfortable, to the byte") {
  CHECK(judged(70, 80, 90, 100).verdict == Verdict::comfortable);
  CHECK(judged(70, 80, 91, 100).verdict == Verdict::tight);
  CHECK(judged(70, 80, 89, 99).verdict == Verdict::comfortable);  // a tenth is rounded up: 10 of 99
  CHECK(judged(70, 80, 90, 99).verdict == Verdict::tight);
}

TEST_CASE("tight until the last byte, at risk while the expected figure fits") {
  CHECK(judged(70, 80, 100, 100).verdict == Verdict::tight);
  CHECK(judged(70, 80, 101, 100).verdict == Verdict::at_risk);
  CHECK(judged(70, 100, 101, 100).verdict == Verdict::at_risk);
  CHECK(judged(70, 101, 110, 100).verdict == Verdict::does_not_fit);
}

TEST_CASE("headroom is usable minus the high end") {
  CHECK(judged(70, 80, 90, 100).headroom == Bytes(10));
  CHECK(judged(70, 80, 130, 100).headroom == Bytes(-30));
  CHECK(judged(70, 80, 90, 100).usable == Bytes(100));
}

TEST_CASE("each verdict says why") {
  CHECK(judged(1, 2, 3, 100).reasons == std::vector{FitReason::leaves_a_tenth});
  CHECK(judged(1, 2, 95, 100).reasons == std::vector{FitReason::less_than_a_tenth_is_free});
  CHECK(judged(1, 2, 101, 100).reasons == std::vector{FitReason::high_exceeds_usable});
  CHECK(judged(1, 101, 102, 100).reasons == std::vector{FitReason::expected_exceeds_usable});
  CHECK(judged(101, 102, 103, 100).reasons ==
        std::vector{FitReason::expected_exceeds_usable, FitReason::low_exceeds_usable});
}

TEST_CASE("no verdict for a card of which nobody published what it holds") {
  const Fit fit = judged(1, 2, 3, 0);
  CHECK(fit.verdict == Verdict::unknown);
  CHECK(fit.headroom == Bytes(0));
  CHECK(fit.reasons == std::vector{FitReason::usable_not_published});
  CHECK_FALSE(fits(fit.verdict));
}

TEST_CASE("an interval in disorder or beyond counting never fits by accident") {
  CHECK(judged(0, 101, 50, 100).verdict == Verdict::does_not_fit);
  CHECK(judged(101, 50, 60, 100).verdict == Verdict::at_risk);
  CHECK(judged(0, 0, kSaturated, 100).verdict == Verdict::at_risk);
  CHECK(judged(kSaturated, kSaturated, kSaturated, 100).verdict == Verdict::does_not_fit);
  CHECK(judge({Bytes(0), Bytes(0), Bytes(0)}, Bytes(kSaturated)).verdict == Verdict::comfortable);
}

TEST_CASE("only a run that fits over its whole interval fits") {
  CHECK(fits(Verdict::comfortable));
  CHECK(fits(Verdict::tight));
  CHECK_FALSE(fits(Verdict::at_risk));
  CHECK_FALSE(fits(Verdict::does_not_fit));
}

TEST_CASE("verdicts and reasons have names") {
  CHECK(name_of(Verdict::unknown) == "unknown");
  CHECK(name_of(FitReason::usable_not_published) == "usable_not_published");
}
