// Which layout a request without one gets.
#include "vramplan/placement.hpp"

#include <doctest/doctest.h>

#include "support/steps.hpp"
#include "vramplan/planner.hpp"

using namespace vramplan;

namespace {

PlanRequest request_for(const char* model, Method method, std::int64_t count) {
  PlanRequest request;
  request.model = ModelById{model, {}};
  request.training.method = method;
  request.training.precision = Precision::bf16;
  request.hardware = HardwareChoice{"h100-sxm-80gb", count, {}};
  return request;
}

Report report_of(const PlanRequest& request) {
  Result<Report> report = answer(request, shipped_catalogue());
  REQUIRE(report.ok());
  return std::move(report).value();
}

}  // namespace

TEST_CASE("where a whole model fits on each GPU, nothing is divided that would have to travel") {
  const Report report = report_of(request_for("meta-llama/Llama-3.1-8B", Method::lora, 8));
  CHECK(report.layout_chosen);
  CHECK(report.request.layout->dp == 8);
  CHECK(report.request.layout->zero == 0);
  CHECK(fits(report.fit->verdict));
}

TEST_CASE("where it does not, the layout divides it") {
  const Report report = report_of(request_for("meta-llama/Llama-3.1-70B", Method::full, 32));
  CHECK(report.request.layout->zero == 3);
  CHECK(fits(report.fit->verdict));
}

TEST_CASE("where nothing fits, the layout that needs the least is shown, and it does not fit") {
  PlanRequest request = request_for("meta-llama/Llama-3.1-405B", Method::full, 8);
  const Report report = report_of(request);
  CHECK(report.fit->verdict == Verdict::does_not_fit);
  for (const std::int64_t stage : {0, 2}) {
    request.layout = LayoutChoice{};
    request.layout->dp = 8;
    request.layout->zero = stage;
    CHECK(report.memory.device.expected <= report_of(request).memory.device.expected);
  }
}

TEST_CASE("a layout that is given stays, and a global batch that no layout takes is a problem") {
  PlanRequest request = request_for("meta-llama/Llama-3.1-8B", Method::lora, 8);
  request.layout = LayoutChoice{};
  request.layout->dp = 8;
  request.layout->zero = 3;
  CHECK_FALSE(report_of(request).layout_chosen);
  CHECK(report_of(request).request.layout->zero == 3);
  request.layout.reset();
  request.training.global_batch = 4;
  const Result<Report> refused = answer(request, shipped_catalogue());
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.problems().front().pointer == "/training/global_batch");
}

TEST_CASE("tensor parallelism stays within what a scale-up link joins, and no layout leaves the GPUs") {
  TrainingChoice training = request_for("", Method::full, 1).training;
  training.framework = FrameworkId::megatron;
  training.precision = Precision::bf16_amp;
  PlanRequest request;
  request.training = training;
  training = resolve_defaults(request).training;
  const Gpu& h100 = *find_gpu(shipped_catalogue(), "h100-sxm-80gb");
  Placement placement(support::model_of("meta-llama/Llama-3.1-70B"), training);
  const SearchResult found = placement.all(usual_nodes(h100, 64), 20);
  CHECK(found.best.size() == 20);
  for (const FoundLayout& f : found.best) {
    CHECK(f.layout.tp <= 8);
    CHECK(ranks_of(f.layout) == 64);
    CHECK(f.tokens_per_second <= found.best.front().tokens_per_second);
  }
}
