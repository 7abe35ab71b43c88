#include "vramplan/fit_matrix.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "api.hpp"
#include "catalogue.hpp"
#include "vramplan/device.hpp"

using namespace vramplan;

namespace {

// 200 GB for full training, 20 for LoRA, 10 for QLoRA, spread evenly.
NeedPerGpu need_of(const PlanRequest& request) {
  const Method method = request.training.method;
  const std::int64_t whole = method == Method::full ? 200 : method == Method::lora ? 20 : 10;
  return [whole](const Gpu&, std::int64_t count) {
    const Bytes share(whole * 1'000'000'000 / count);
    return RunNeed{{share, share, share}};
  };
}

PlanRequest request_with(Method method) {
  PlanRequest request;
  request.training.method = method;
  return resolve_defaults(request);
}

}  // namespace

TEST_CASE("the matrix gives the smallest number of each card for each method") {
  const FitMatrix matrix = fit_matrix(shipped_catalogue(), request_with(Method::lora), need_of);
  CHECK(matrix.methods == std::vector<Method>{Method::full, Method::lora, Method::qlora});
  const auto row =
      std::find_if(matrix.rows.begin(), matrix.rows.end(), [](const MatrixRow& r) { return r.gpu == "rtx-4090"; });
  REQUIRE(row != matrix.rows.end());
  // 25.28 GB usable: 200 / 8 = 25 GB is tight; 20 GB leaves more than a tenth; so does 10.
  CHECK(row->cells[0].count == 8);
  CHECK(row->cells[0].verdict == Verdict::tight);
  CHECK(row->cells[1].count == 1);
  CHECK(row->cells[1].verdict == Verdict::comfortable);
  CHECK(row->cells[2].count == 1);
}

TEST_CASE("a method beside the three has a column of its own, and a card that refuses a precision no number") {
  const FitMatrix matrix = fit_matrix(shipped_catalogue(), request_with(Method::dora), need_of);
  CHECK(matrix.methods.back() == Method::dora);
  const auto row = std::find_if(matrix.rows.begin(), matrix.rows.end(), [](const MatrixRow& r) {
    const Gpu* gpu = find_gpu(shipped_catalogue(), r.gpu);
    return precision_refusal(*gpu, Precision::bf16_amp).has_value();
  });
  REQUIRE(row != matrix.rows.end());
  for (const MatrixCell& cell : row->cells) CHECK(cell.count == 0);
}

TEST_CASE("a vendor's own cards are planned with, and what is wrong with them is told at its place") {
  const std::string vendor =
      R"({"gpus": [{"id": "own-card", "name": "Own card", "vendor": "Us", "architecture": "Hopper",
    "form_factor": "pcie", "memory_gb": 96, "usable_mib": 97887, "usable_basis": "driver_total",
    "memory_bandwidth_gb_per_s": 4000, "precisions": ["bf16"], "pcie_generation": 5, "pcie_lanes": 16,
    "max_per_server": 8}]})";
  const std::string request = R"({"model": "meta-llama/Llama-3.1-8B", "hardware": {"gpu": "own-card"}})";
  CHECK(api::has_problems(api::plan(request)));
  CHECK_FALSE(api::has_problems(api::plan_with(request, vendor)));
  CHECK(api::catalogue_with(vendor).find("\"own-card\"") != std::string::npos);
  const std::string wrong = api::catalogue_with(R"({"gpus": [{"id": "own-card"}]})");
  CHECK(wrong.find("\"pointer\":\"/gpus/0/name\"") != std::string::npos);
  CHECK(api::plan_with(request, "{").find("\"invalid_json\"") != std::string::npos);
}
