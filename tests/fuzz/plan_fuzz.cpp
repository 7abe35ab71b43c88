// libFuzzer over the one door. Whatever comes in, an answer comes out: a JSON object that is either a report or a list
// of problems, in valid UTF-8, without a number that JSON cannot hold.
//   fuzz_plan_fuzz CORPUS tests/golden/requests
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "api.hpp"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check_problem(const nlohmann::json& problem) {
  require(problem.at("code").is_string() && problem.at("pointer").is_string());
  const std::string pointer = problem.at("pointer");
  require(pointer.empty() || pointer.front() == '/');
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const nlohmann::json answer = nlohmann::json::parse(vramplan::api::plan(text));
  require(answer.is_object() && answer.contains("version") && answer.at("problems").is_array());
  for (const nlohmann::json& problem : answer.at("problems")) check_problem(problem);
  require(!answer.at("problems").empty() || answer.contains("memory"));
  return 0;
}
