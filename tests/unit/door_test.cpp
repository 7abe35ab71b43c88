// Hostile texts at the door: each is answered with a problem, in time, and nothing is thrown.
#include <doctest/doctest.h>

#include <algorithm>
#include <ctime>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "api.hpp"
#include "parse.hpp"

using vramplan::api::plan;
using Json = nlohmann::json;

namespace {

// The codes of an answer that holds problems and nothing else. The answer is valid UTF-8: parsing checks it.
std::set<std::string> problems_of(std::string_view text) {
  std::string answered;
  CHECK_NOTHROW(answered = plan(text));
  CHECK(vramplan::api::has_problems(answered));
  const Json answer = Json::parse(answered, nullptr, false);
  REQUIRE(answer.is_object());
  CHECK(answer.size() == 2);
  CHECK(answer.at("version") == Json::parse(vramplan::api::version()).at("version"));
  REQUIRE(!answer.at("problems").empty());
  std::set<std::string> codes;
  for (const Json& problem : answer.at("problems")) {
    codes.insert(problem.at("code").get<std::string>());
    const std::string pointer = problem.at("pointer");
    CHECK((pointer.empty() || pointer.front() == '/'));
  }
  return codes;
}

using Codes = std::set<std::string>;

// g++ 12 warns of overlapping memory where a literal and a temporary string are added.
std::string joined(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text += part;
  return text;
}

std::string repeated(std::string_view part, std::size_t times) {
  std::string text;
  text.reserve(part.size() * times);
  for (std::size_t i = 0; i < times; ++i) text += part;
  return text;
}

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

// A sound request with one member replaced by a text.
std::string with_member(std::string_view name, std::string_view value) {
  std::string text = R"({"model": "meta-llama/Llama-3.1-8B", "training": {")";
  return text.append(name).append("\": ").append(value).append("}}");
}

// Of this process, so that a busy machine makes no difference.
double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

}  // namespace

TEST_CASE("an answer is the plan without what lies around it") {
  const std::string_view request = R"({"model": "meta-llama/Llama-3.1-8B", "training": {"method": "qlora"},
                                       "hardware": {"gpu": "rtx-4090", "count": 2}})";
  Json whole = Json::parse(plan(request));
  const Json answered = Json::parse(vramplan::api::answer(request));
  for (const char* field : {"layouts", "curves", "fit_matrix", "suggestions", "accuracy", "launch", "launch_left_out",
                            "growth", "after_training"}) {
    CHECK(whole.erase(field) == 1);
  }
  CHECK((answered == whole));
  CHECK(whole.erase("timeline") == 1);
  CHECK((Json::parse(vramplan::api::glance(request)) == whole));
}

TEST_CASE("what is no JSON text is invalid") {
  for (const std::string_view text :
       {"", " ", "{", "}", "[", "nul", "\"", "{\"model\"", "{\"model\":}", "{'model':1}", "{} {}", "{\"model\":\"a\",}",
        "// note\n{}", "NaN", "Infinity", "[1,]", "01", "\"\\x\"", "\"\t\""}) {
    CAPTURE(text);
    CHECK(problems_of(text) == Codes{"invalid_json"});
  }
}

TEST_CASE("a text of another kind is no request") {
  for (const std::string_view text : {"null", "[]", "[{}]", "true", "0", "1e300", "\"model\"", "\"\""}) {
    CAPTURE(text);
    CHECK(problems_of(text) == Codes{"wrong_type"});
  }
  CHECK(problems_of("{}") == Codes{"missing_field"});
}

TEST_CASE("invalid UTF-8 is refused wherever it stands") {
  for (const std::string_view bad : {"\x80", "\xC3", "\xC0\xAF", "\xE0\x80\xAF", "\xED\xA0\x80", "\xF0\x80\x80\x80",
                                     "\xF4\x90\x80\x80", "\xF8\x88\x80\x80\x80", "\xFE", "\xFF", "\xE2\x82"}) {
    CHECK(problems_of(bad) == Codes{"invalid_utf8"});
    CHECK(problems_of(joined({"{\"model\": \"", bad, "\"}"})) == Codes{"invalid_utf8"});
    CHECK(problems_of(joined({"{\"", bad, "\": 1}"})) == Codes{"invalid_utf8"});
  }
  CHECK(problems_of("\xFF\xFE{\0}\0") == Codes{"invalid_utf8"});  // UTF-16
}

TEST_CASE("half a surrogate pair in an escape is refused, a whole one is read") {
  CHECK(problems_of(R"({"model": "\ud83d"})") == Codes{"invalid_json"});
  CHECK(problems_of(R"({"model": "\ude00\ud83d"})") == Codes{"invalid_json"});
  CHECK(problems_of(R"({"model": "\ud83d\ude00"})") == Codes{"unknown_model"});
}

TEST_CASE("zero bytes and control characters do not cut a text short") {
  using namespace std::string_view_literals;
  CHECK(problems_of("\0"sv) == Codes{"invalid_json"});
  CHECK(problems_of("{\"model\": \"meta-llama/Llama-3.1-8B\"}\0"sv) == Codes{"invalid_json"});
  CHECK(problems_of("{\"model\": \"meta-llama/Llama-3.1-8B\\u0000\"}") == Codes{"unknown_model"});
  CHECK(problems_of("{\"model\": \"meta-llama/Llama-3.1-8B\", \"a\\u0000b~/\": 1}") == Codes{"unknown_field"});
}

TEST_CASE("numbers that no double holds are refused") {
  for (const std::string_view number : {"1e999", "-1e999", "1e99999999999999999999"}) {
    CHECK(problems_of(number) == Codes{"invalid_json"});
    CHECK(problems_of(with_member("sequence_length", number)) == Codes{"invalid_json"});
  }
}

TEST_CASE("numbers at the edge of what is whole") {
  const auto length = [](std::string_view number) { return problems_of(with_member("sequence_length", number)); };
  for (const std::string_view number : {"0", "-0", "-1", "1e300", "9007199254740993", "-9223372036854775808",
                                        "9223372036854775808", "18446744073709551616", "1e-999"}) {
    CAPTURE(number);
    const Codes codes = length(number);
    CHECK((codes == Codes{"out_of_range"} || codes == Codes{"not_an_integer"}));
  }
  CHECK(length("2048.5") == Codes{"not_an_integer"});
  CHECK(length("true") == Codes{"wrong_type"});
  CHECK(length("\"2048\"") == Codes{"wrong_type"});
}

TEST_CASE("nesting is counted, not walked") {
  CHECK(problems_of(nested(vramplan::kDeepestNesting)) == Codes{"wrong_type"});
  CHECK(problems_of(nested(vramplan::kDeepestNesting + 1)) == Codes{"too_deep"});
  CHECK(problems_of(std::string(vramplan::kLongestText, '[')) == Codes{"too_deep"});
  CHECK(problems_of(repeated("{\"a\":", vramplan::kLongestText / 5)) == Codes{"too_deep"});
  // Brackets inside strings are text.
  CHECK(problems_of(joined({"{\"model\": \"", std::string(1000, '['), "\\\"", std::string(1000, '{'), "\"}"})) ==
        Codes{"unknown_model"});
}

TEST_CASE("a text beyond the limit is not looked at") {
  CHECK(problems_of(std::string(vramplan::kLongestText, ' ')) == Codes{"invalid_json"});
  CHECK(problems_of(std::string(vramplan::kLongestText + 1, ' ')) == Codes{"too_large_input"});
  CHECK(problems_of(std::string(vramplan::kLongestText + 1, '\xFF')) == Codes{"too_large_input"});
}

TEST_CASE("100 MB of brackets are answered in less time than it takes to write them") {
  const double start = processor_seconds();
  const std::string brackets(100'000'000, '[');
  const double written = processor_seconds();
  CHECK(problems_of(brackets) == Codes{"too_large_input"});
  CHECK(processor_seconds() - written < written - start);
}

TEST_CASE("texts as long as they may be are answered") {
  const std::size_t most = vramplan::kLongestText;
  CHECK(problems_of(joined({"{\"model\": \"", std::string(most - 20, 'x'), "\"}"})) == Codes{"unknown_model"});
  CHECK(problems_of(joined({"{\"model\": {\"id\": \"", std::string(most - 30, '/'), "\"}}"})) ==
        Codes{"unknown_model"});
  CHECK(problems_of(joined({"[", repeated("[],", most / 3 - 2), "[]]"})) == Codes{"wrong_type"});
  CHECK(problems_of(joined({"{", repeated("\"a\":1,", most / 6 - 2), "\"a\":1}"})).count("duplicate_field") == 1);
  CHECK(problems_of(joined({"{\"", std::string(most - 20, '~'), "\":1}"})) == Codes{"missing_field", "unknown_field"});
}

TEST_CASE("answers to hostile texts stay short") {
  std::string fields = "{\"model\": 1";
  for (int i = 0; i < 100'000; ++i) fields += joined({",\"f", std::to_string(i), "\":1"});
  CHECK(plan(fields + "}").size() < 100'000);
  CHECK(plan(joined({"{\"model\": \"", std::string(1'000'000, 'x'), "\"}"})).size() < 10'000);
}

TEST_CASE("the largest of everything is refused, not computed wrongly") {
  const Codes codes = problems_of(R"({"model": {"parameters": 1e14}, "training": {"method": "full", "recompute": "none",
    "micro_batch": 65536, "sequence_length": 16777216, "attention": "eager"}})");
  CHECK(codes == Codes{"too_large"});
}

TEST_CASE("an option that some frameworks do not have names the others, and those refuse it") {
  const Json catalogue = Json::parse(vramplan::api::catalogue());
  const Json& options = catalogue.at("options");
  const auto of = [&](std::string_view pointer) {
    return *std::find_if(options.begin(), options.end(), [&](const Json& o) { return o.at("pointer") == pointer; });
  };
  CHECK_FALSE(of("/layout/dp").contains("frameworks"));
  CHECK_FALSE(of("/training/packing").contains("frameworks"));
  CHECK(of("/layout/tp").at("frameworks") == Json{"torchtitan", "megatron"});
  CHECK(of("/training/mtp_layers").at("frameworks") == Json{"megatron"});
  const Json fields = {{"/layout/tp", 2}, {"/training/mtp_layers", 1}, {"/training/fp32_gradients", true}};
  const Json all = of("/training/framework").at("values");
  for (const auto& [pointer, value] : fields.items()) {
    const Json named = of(pointer).at("frameworks");
    for (const Json& framework : all) {
      CAPTURE(pointer);
      CAPTURE(framework);
      Json request = {{"model", "meta-llama/Llama-3.1-8B"},
                      {"training", {{"method", "full"}, {"framework", framework}}},
                      {"hardware", {{"gpu", "h100-sxm-80gb"}, {"count", 2}}}};
      request[Json::json_pointer(pointer)] = value;
      const Json problems = Json::parse(vramplan::api::glance(request.dump())).at("problems");
      const bool refused = std::any_of(problems.begin(), problems.end(), [&](const Json& p) {
        return p.at("code") == "not_supported" && p.at("pointer") == pointer;
      });
      CHECK(refused == (std::find(named.begin(), named.end(), framework) == named.end()));
    }
  }
}
