#include "vramplan/evidence.hpp"

#include <doctest/doctest.h>

#include "data.hpp"
#include "evidence.hpp"

using namespace vramplan;

namespace {

constexpr Params kEight(8'000'000'000);

PlanRequest lora() {
  PlanRequest request;
  request.model = ModelById{"a/model", {}};
  request.hardware = HardwareChoice{"h100-sxm-80gb", 1, {}};
  return resolve_defaults(request);
}

MeasuredRun measured(std::string id, const PlanRequest& request, Params parameters = kEight) {
  MeasuredRun run;
  run.id = std::move(id);
  run.request = request;
  run.parameters = parameters;
  return run;
}

// How far a run is that differs from the request in one thing.
template <class Change>
std::int64_t distance_after(Change change) {
  MeasuredRun run = measured("changed", lora());
  change(run);
  return distance(lora(), kEight, run);
}

std::int64_t difference_of(std::int64_t measured, std::int64_t planned) {
  MeasuredRun run;
  run.measured = Bytes(measured);
  run.planned = Bytes(planned);
  return difference_permille(run);
}

}  // namespace

TEST_CASE("the same run is at no distance") {
  CHECK(distance_after([](MeasuredRun&) {}) == 0);
}

TEST_CASE("settings weigh in the order in which they decide what a run holds") {
  const auto framework = distance_after([](MeasuredRun& r) { r.request.training.framework = FrameworkId::torchtune; });
  const auto method = distance_after([](MeasuredRun& r) { r.request.training.method = Method::dora; });
  const auto weights = distance_after([](MeasuredRun& r) { r.request.training.base_weights = WeightFormat::int8; });
  const auto loss = distance_after([](MeasuredRun& r) { r.request.training.cross_entropy = CrossEntropy::chunked; });
  const auto attention = distance_after([](MeasuredRun& r) { r.request.training.attention = AttentionKernel::flash; });
  CHECK(framework > method);
  CHECK(method > weights);
  CHECK(weights > loss);
  CHECK(loss > attention);
  CHECK(attention == 1);
}

TEST_CASE("a whole doubling of parameters, tokens or GPUs costs two points, less costs none") {
  CHECK(distance_after([](MeasuredRun& r) { r.parameters = Params(15'999'999'999); }) == 2);
  CHECK(distance_after([](MeasuredRun& r) { r.parameters = Params(16'000'000'000); }) == 2 + 2);
  CHECK(distance_after([](MeasuredRun& r) { r.parameters = Params(1'000'000'000); }) == 2 + 6);
  CHECK(distance_after([](MeasuredRun& r) { r.request.training.micro_batch = 4; }) == 4);
  CHECK(distance_after([](MeasuredRun& r) {
          r.request.training.micro_batch = 4;
          r.request.training.sequence_length /= 4;
        }) == 1);
  CHECK(distance_after([](MeasuredRun& r) { r.request.hardware->count = 8; }) == 6);
  CHECK(distance_after([](MeasuredRun& r) { r.request.hardware.reset(); }) == 0);  // one GPU
}

TEST_CASE("a model of exactly as many parameters is the same model, whatever its name; another costs two points") {
  CHECK(distance_after([](MeasuredRun& r) { r.request.model = ModelById{"another/name", {}}; }) == 0);
  CHECK(distance_after([](MeasuredRun& r) { r.parameters = Params(8'000'000'001); }) == 2);
}

TEST_CASE("another optimizer, and leftovers raised to FP32, are a difference") {
  CHECK(distance_after([](MeasuredRun& r) { r.request.training.optimizer.states = StateFormat::int8; }) == 2);
  CHECK(distance_after([](MeasuredRun& r) { r.request.training.optimizer.name = OptimizerName::lion; }) == 2);
  CHECK(distance_after([](MeasuredRun& r) { r.request.training.kbit_upcast = true; }) == 2);
}

TEST_CASE("pretraining is as near as supervised fine-tuning, preference learning is not") {
  CHECK(distance_after([](MeasuredRun& r) { r.request.training.objective = Objective::pretrain; }) == 0);
  CHECK(distance_after([](MeasuredRun& r) { r.request.training.objective = Objective::dpo; }) > 0);
}

TEST_CASE("the nearest runs come first, equals in the order of the data, repetitions and the rest left out") {
  PlanRequest twice = lora();
  twice.training.micro_batch = 2;
  PlanRequest other = lora();
  other.training.framework = FrameworkId::torchtune;
  Evidence evidence;
  PlanRequest chunked = lora();
  chunked.training.cross_entropy = CrossEntropy::chunked;
  evidence.runs = {measured("other", other), measured("chunked", chunked), measured("twice", twice),
                   measured("first", lora()), measured("again", lora())};
  const auto nearest = nearest_runs(evidence, lora(), kEight, 3);
  REQUIRE(nearest.size() == 3);
  CHECK(nearest[0].id == "first");
  CHECK(nearest[1].id == "chunked");
  CHECK(nearest[2].id == "twice");
  CHECK(nearest_runs(evidence, lora(), kEight, 9).size() == 4);
  CHECK(nearest_runs(evidence, lora(), kEight, 1).size() == 1);
  CHECK(nearest_runs(Evidence{}, lora(), kEight, 3).empty());
}

TEST_CASE("the group of a request is that of its framework and method, in the metric with the most runs") {
  const auto group = [](FrameworkId framework, Method method, Metric metric, std::int64_t runs) {
    AccuracyGroup g;
    g.framework = framework;
    g.method = method;
    g.metric = metric;
    g.runs = runs;
    return g;
  };
  Evidence evidence;
  evidence.groups = {group(FrameworkId::transformers, Method::lora, Metric::reserved, 5),
                     group(FrameworkId::transformers, Method::lora, Metric::allocated, 40),
                     group(FrameworkId::torchtune, Method::dora, Metric::allocated, 99)};
  TrainingChoice training = lora().training;
  REQUIRE(accuracy_group(evidence, training) != nullptr);
  CHECK(accuracy_group(evidence, training)->runs == 40);
  training.method = Method::dora;
  CHECK(accuracy_group(evidence, training) == nullptr);
}

TEST_CASE("a difference is that of the plan from the measurement, in rounded thousandths") {
  CHECK(difference_of(1000, 1012) == 12);
  CHECK(difference_of(1000, 988) == -12);
  CHECK(difference_of(10'000, 10'004) == 0);
  CHECK(difference_of(10'000, 10'005) == 1);
  CHECK(difference_of(10'000, 9'995) == -1);
  CHECK(difference_of(80'000'000'000, 80'400'000'000) == 5);
}

TEST_CASE("the runs that are compiled in read without a problem, every one by the id of its model") {
  const Result<Evidence> read = read_evidence(Json::parse(data::measured_runs_json()));
  REQUIRE(read.ok());
  CHECK(read.value().runs.size() > 100);
  CHECK(read.value().runs.size() == shipped_evidence().runs.size());
  std::int64_t in_groups = 0;
  for (const AccuracyGroup& group : read.value().groups) in_groups += group.runs;
  CHECK(in_groups >= static_cast<std::int64_t>(read.value().runs.size()));
  for (const MeasuredRun& run : read.value().runs) {
    CAPTURE(run.id);
    CHECK(std::holds_alternative<ModelById>(run.request.model));
    CHECK(run.request.training.base_weights.has_value());
  }
}

TEST_CASE("a row that is no measured run is a problem at its place") {
  const Json run = {{"id", "x"},          {"source", "y"},   {"metric", "allocated"},      {"measured_bytes", 1},
                    {"planned_bytes", 1}, {"parameters", 1}, {"request", {{"model", "m"}}}};
  const auto problem_of = [&](const char* field, const Json& value) {
    Json changed = run;
    changed[field] = value;
    const Result<Evidence> read =
        read_evidence({{"groups", Json::array()}, {"runs", Json::array({std::move(changed)})}});
    REQUIRE_FALSE(read.ok());
    return read.problems().front();
  };
  CHECK(read_evidence({{"groups", Json::array()}, {"runs", Json::array({run})}}).ok());
  CHECK(problem_of("measured_bytes", 0).pointer == "/runs/0/measured_bytes");
  CHECK(problem_of("metric", "watts").code == ProblemCode::unknown_value);
  CHECK(problem_of("surprise", 1).code == ProblemCode::unknown_field);
  CHECK(problem_of("request", {{"model", {{"parameters", 7'000'000'000}}}}).pointer == "/model");
}
