// Tests that go through the door: a request as JSON in, an answer as JSON out.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api.hpp"

namespace vramplan::door {

using Json = nlohmann::json;

inline Json answer(const Json& request) { return Json::parse(api::answer(request.dump())); }

inline Json without_problems(Json answered) {
  REQUIRE_MESSAGE(answered.at("problems").empty(), answered.at("problems").dump());
  return answered;
}
// The answer to a request that has no problem; and with its outlook.
inline Json report(const Json& request) { return without_problems(answer(request)); }
inline Json plan(const Json& request) { return without_problems(Json::parse(api::plan(request.dump()))); }

// Bytes of a component at the peak; 0 when it is not alive there.
inline std::int64_t component(const Json& report, const std::string& id) {
  for (const Json& row : report.at("memory").at("components")) {
    if (row.at("id") == id) return row.at("bytes").get<std::int64_t>();
  }
  return 0;
}

// Bytes of a component while an event runs (the first one of that name); 0 when it is not alive then.
inline std::int64_t component_at(const Json& report, const std::string& event, const std::string& id) {
  for (const Json& point : report.at("timeline")) {
    if (point.at("event") == event) return point.at("by_component").value(id, std::int64_t{0});
  }
  FAIL("no event " << event);
  return 0;
}

inline std::int64_t allocated(const Json& report) {
  return report.at("memory").at("per_gpu").at("allocated").at("expected").get<std::int64_t>();
}

struct Golden {
  std::string name;
  std::string text;
};

// The golden requests, in the order of their names.
inline std::vector<Golden> golden_requests() {
  std::vector<Golden> requests;
  const std::filesystem::path folder = std::filesystem::path(VRAMPLAN_SOURCE_DIR) / "tests/golden/requests";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path());
    requests.push_back({entry.path().stem().string(), {std::istreambuf_iterator<char>(file), {}}});
  }
  std::sort(requests.begin(), requests.end(), [](const Golden& a, const Golden& b) { return a.name < b.name; });
  REQUIRE(!requests.empty());
  return requests;
}

inline bool has_problems(const Golden& request) { return request.name.starts_with("problem-"); }

}  // namespace vramplan::door
