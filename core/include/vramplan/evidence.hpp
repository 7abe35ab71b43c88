// Public measured runs: how far the planner is off for runs of a kind, and which runs are nearest to a request.
// core/data/measured_runs.json holds them; tests/tables/accuracy.mjs writes it, and a test plans every run of it again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "vramplan/enum_names.hpp"
#include "vramplan/request.hpp"
#include "vramplan/units.hpp"

namespace vramplan {

// Which of the three numbers of a GPU was measured.
enum class Metric : std::uint8_t { allocated, reserved, device };
template <>
struct EnumNames<Metric> {
  static constexpr Names<3> values = {"allocated", "reserved", "device"};
};

struct MeasuredRun {
  std::string id;
  std::string source;  // repository, file and line, or issue
  std::string date;    // yyyy, yyyy-mm or yyyy-mm-dd; empty when unknown
  Metric metric = Metric::allocated;
  Bytes measured;
  Bytes planned;  // the expected value in the same metric
  Params parameters;
  PlanRequest request;  // the model by its id; defaults filled in
};

// The runs of one framework and method, in one metric. Errors are |planned / measured - 1|, in thousandths.
struct AccuracyGroup {
  FrameworkId framework = FrameworkId::transformers;
  Method method = Method::full;
  Metric metric = Metric::allocated;
  std::int64_t runs = 0;
  std::int64_t median = 0, p90 = 0, worst = 0;
  std::int64_t inside = 0;  // share of the runs that lie in the planned interval
  std::int64_t width = 0;   // of that interval: high / low - 1, the mean
};

struct Evidence {
  std::vector<AccuracyGroup> groups;
  std::vector<MeasuredRun> runs;
};

// The group of the request's framework and method; of several metrics the one with the most runs. nullptr: nobody has
// published a run of this kind that could be planned.
[[nodiscard]] const AccuracyGroup* accuracy_group(const Evidence& evidence, const TrainingChoice& training);

// How unlike two runs are: points for each setting in which they differ, the heaviest first (evidence.cpp). `request`
// has its defaults filled in; `parameters` belong to its model.
[[nodiscard]] std::int64_t distance(const PlanRequest& request, Params parameters, const MeasuredRun& run);

// The runs nearest to a request, the nearest first; equally near ones in the order of the data, and of runs that are at
// no distance from each other the first.
[[nodiscard]] std::vector<MeasuredRun> nearest_runs(const Evidence& evidence, const PlanRequest& request,
                                                    Params parameters, std::size_t count);

// planned / measured - 1 in thousandths, rounded to the nearest.
[[nodiscard]] std::int64_t difference_permille(const MeasuredRun& run);

}  // namespace vramplan
