// States and temporaries of real optimizers (tests/oracle/optimizers.py) against the planner's, to the byte.
#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "config.hpp"
#include "request.hpp"
#include "vramplan/states.hpp"

using namespace vramplan;

namespace {

nlohmann::json table() {
  std::ifstream file(VRAMPLAN_SOURCE_DIR "/tests/tables/optimizers.json");
  return nlohmann::json::parse(file);
}

PlanRequest request_of(const nlohmann::json& model, const nlohmann::json& row) {
  const Json document = {{"model", {{"config", model}}},
                         {"training",
                          {{"method", "full"},
                           {"framework", row["framework"]},
                           {"precision", row["precision"]},
                           {"optimizer", row["optimizer"]}}}};
  const Result<PlanRequest> read = read_request(document);
  REQUIRE(read.ok());
  return resolve_defaults(read.value());
}

struct Sizes {
  std::int64_t states, temporaries;
};

Sizes sizes_of(const PlanRequest& request) {
  const ModelArchitecture& model = std::get<ModelByConfig>(request.model).architecture;
  const TrainingChoice& t = request.training;
  const FrameworkSwitches framework = switches_for(t, {});
  const StateTypes types = state_types(t, framework);
  const Inventory n = take_inventory(model, t, parameter_groups(model));
  Contributions states;
  Contributions temporaries;
  const OptimizerMemory memory = optimizer_memory(n, t, framework, types);
  add_optimizer_states(states, memory, {});
  add_optimizer_temporaries(temporaries, memory, n, types, {});
  const bool in_backward = updates_in_backward(t.optimizer);
  const Bytes one = largest_update(n, t, framework, types, false).temporaries;
  return {states.total().value, in_backward ? one.value : temporaries.total().value};
}

// Scalars and rows and columns of one tensor beside temporaries of whole tensors.
constexpr double kSmallTensors = 0.02;

}  // namespace

TEST_CASE("optimizers keep and make what the real ones do") {
  const nlohmann::json all = table();
  REQUIRE(all["rows"].size() > 20);
  for (const nlohmann::json& row : all["rows"]) {
    CAPTURE(row.dump());
    const Sizes sizes = sizes_of(request_of(all["model"], row));
    CHECK(sizes.states == row["states_bytes"].get<std::int64_t>());
    if (!row.contains("temporaries_bytes")) continue;
    const auto measured = row["temporaries_bytes"].get<double>();
    CHECK(static_cast<double>(sizes.temporaries) <= measured);
    CHECK(static_cast<double>(sizes.temporaries) >= measured * (1 - kSmallTensors) - 64);
  }
}
