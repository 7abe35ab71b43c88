#include "vramplan/curves.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "catalogue.hpp"
#include "vramplan/planner.hpp"

using namespace vramplan;

namespace {

// 1000 bytes and 100 for each unit, give or take a tenth.
Estimate linear(std::int64_t value) {
  const Bytes expected(1000 + 100 * value);
  return {Bytes(expected.value * 9 / 10), expected, Bytes(expected.value * 11 / 10)};
}

std::vector<std::int64_t> values_of(const Curve& curve) {
  std::vector<std::int64_t> values;
  for (const CurvePoint& point : curve.points) values.push_back(point.value);
  return values;
}

}  // namespace

TEST_CASE("a curve names the largest value that fits and the first that does not") {
  // 1.1 * (1000 + 100 v) <= 3000 up to v = 17 (2970); 1000 + 100 v > 3000 from v = 21 on.
  const Curve curve = curve_of(4, {{1, 1000}, {}}, Bytes(3000), linear);
  CHECK(curve.now == 4);
  CHECK(curve.largest_that_fits == 17);
  CHECK(curve.runs_out_at == 21);
  CHECK(values_of(curve) == std::vector<std::int64_t>{1, 2, 3, 4, 6, 8, 12, 16, 24});
}

TEST_CASE("the present value is a point of the curve, wherever it lies") {
  const Curve curve = curve_of(29, {{1, 1000}, {}}, Bytes(3000), linear);
  CHECK(values_of(curve) == std::vector<std::int64_t>{1, 2, 3, 4, 6, 8, 12, 16, 24, 29, 32});
  CHECK(curve.largest_that_fits == 17);
}

TEST_CASE("where nothing fits there is no largest value") {
  const Curve curve = curve_of(2, {{1, 1000}, {}}, Bytes(500), linear);
  CHECK_FALSE(curve.largest_that_fits.has_value());
  CHECK(curve.runs_out_at == 1);
}

TEST_CASE("where everything fits the range ends the curve") {
  const Curve curve = curve_of(2, {{1, 12}, {}}, Bytes(1'000'000), linear);
  CHECK(curve.largest_that_fits == 12);
  CHECK_FALSE(curve.runs_out_at.has_value());
}

TEST_CASE("without a card there is no end, and the curve goes on to sixteen times the present value") {
  const Curve curve = curve_of(2, {{1, 1000}, {}}, Bytes(0), linear);
  CHECK_FALSE(curve.largest_that_fits.has_value());
  CHECK_FALSE(curve.runs_out_at.has_value());
  CHECK(curve.points.back().value == 32);
}

TEST_CASE("micro-batches that must divide a batch are its divisors") {
  const Curve curve = curve_of(4, {{1, 1000}, 60}, Bytes(3000), linear);
  CHECK(values_of(curve) == std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30});
  CHECK(curve.largest_that_fits == 15);  // 20 needs 3300 at the high end
  CHECK(curve.runs_out_at == 30);
}

TEST_CASE("no point lies where no device is") {
  const auto huge = [](std::int64_t value) {
    const Bytes bytes(value * 300'000'000'000'000);
    return Estimate{bytes, bytes, bytes};
  };
  const Curve curve = curve_of(1, {{1, 1000}, {}}, Bytes(0), huge);
  CHECK(values_of(curve) == std::vector<std::int64_t>{1, 2, 3});
}

TEST_CASE("what a curve promises holds when it is planned") {
  PlanRequest request;
  request.model = ModelById{"meta-llama/Llama-3.1-8B", {}};
  request.training.method = Method::qlora;
  request.hardware = HardwareChoice{"rtx-4090", 1, {}};
  const auto report_of = [&] { return plan(request, shipped_catalogue(), {}).value(); };
  const Report report = report_of();
  const Curve& curve = report.outlook->sequence_length_curve;
  REQUIRE(curve.largest_that_fits.has_value());
  REQUIRE(curve.runs_out_at.has_value());
  const auto now =
      std::find_if(curve.points.begin(), curve.points.end(), [](const CurvePoint& p) { return p.value == 2048; });
  REQUIRE(now != curve.points.end());
  CHECK(now->device == report.memory.device);
  const auto verdict_at = [&](std::int64_t length) {
    request.training.sequence_length = length;
    return report_of().fit->verdict;
  };
  CHECK(fits(verdict_at(*curve.largest_that_fits)));
  CHECK_FALSE(fits(verdict_at(*curve.largest_that_fits + 1)));
  CHECK(verdict_at(*curve.runs_out_at) == Verdict::does_not_fit);
  CHECK(verdict_at(*curve.runs_out_at - 1) == Verdict::at_risk);
}
