#include <doctest/doctest.h>
#include <chrono>
#include <string>

#include "parse.hpp"

namespace vramplan {
namespace {

Problems problems_of(std::string_view text) { return parse_document(text).problems(); }

// The one problem that `text` has.
Problem problem_of(std::string_view text) {
  const Problems problems = problems_of(text);
  REQUIRE(problems.size() == 1);
  return problems.front();
}

std::int64_t whole(const Problem& problem, std::string_view name) {
  for (const ProblemArgument& argument : problem.arguments) {
    if (argument.name == name) return std::get<std::int64_t>(argument.value);
  }
  return -1;
}

std::string repeated(std::string_view part, std::size_t times) {
  std::string text;
  text.reserve(part.size() * times);
  for (std::size_t i = 0; i < times; ++i) text += part;
  return text;
}

TEST_CASE("a document is read as it is") {
  const Result<Json> read = parse_document(R"( {"a": [1, -2, 2.5, 7e9, "é\n\u00e9", true, null], "b": {"c": {}}} )");
  REQUIRE(read.ok());
  CHECK(read.value() == Json::parse(R"({"a": [1, -2, 2.5, 7e9, "é\n\u00e9", true, null], "b": {"c": {}}})"));
  CHECK(parse_document("3").value() == Json(3));
}

TEST_CASE("what is not JSON says where it stops being so") {
  CHECK(problem_of("").code == ProblemCode::invalid_json);
  const Problem problem = problem_of(R"({"a": tru})");
  CHECK(problem.code == ProblemCode::invalid_json);
  CHECK(problem.pointer.empty());
  CHECK(whole(problem, "byte") == 9);
  for (const char* text : {"{", "[1,]", "{} {}", "{'a': 1}", "// no\n{}", R"({"a")", R"(["\ud800"])", "[01]"}) {
    CAPTURE(text);
    CHECK(problem_of(text).code == ProblemCode::invalid_json);
  }
}

TEST_CASE("a number is finite") {
  for (const char* text : {"[NaN]", "[Infinity]", "[-Infinity]", "[1e999]", "[-1e999]"}) {
    CAPTURE(text);
    CHECK(problem_of(text).code == ProblemCode::invalid_json);
  }
  CHECK(parse_document("[123456789012345678901234567890]").ok());  // a double; readers find it out of range
}

TEST_CASE("equal names in one object are each reported") {
  const Problems problems = problems_of(R"({"a": 1, "b": [{}, {"x/y": 1, "x/y": 2}], "a": {"c": 1, "c": 2}, "a": 3})");
  REQUIRE(problems.size() == 4);
  CHECK(problems[0].code == ProblemCode::duplicate_field);
  CHECK(problems[0].pointer == "/b/1/x~1y");
  CHECK(problems[1].pointer == "/a");
  CHECK(problems[2].pointer == "/a/c");
  CHECK(problems[3].pointer == "/a");
  CHECK(parse_document(R"({"a": {"a": 1}, "b": {"a": 1}})").ok());
}

TEST_CASE("a text full of equal names ends") {
  const Problems problems = problems_of(std::string("{") + repeated(R"("a":1,)", 300'000) + R"("a":1})");
  CHECK(problems.size() <= 32);
}

TEST_CASE("text that is not UTF-8 is refused") {
  for (const char* bytes :
       {"\xFF", "\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xC3", "\xE2\x82", "\x80"}) {
    CHECK(problem_of(std::string("[\"") + bytes + "\"]").code == ProblemCode::invalid_utf8);
  }
  CHECK(parse_document("[\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xF4\x8F\xBF\xBF\"]").ok());
}

TEST_CASE("nesting has a limit, and brackets in strings are not nesting") {
  CHECK(parse_document(repeated("[", 64) + repeated("]", 64)).ok());
  const Problem problem = problem_of(repeated("[", 65) + repeated("]", 65));
  CHECK(problem.code == ProblemCode::too_deep);
  CHECK(whole(problem, "limit") == 64);
  CHECK(problem_of(repeated(R"({"a":)", 65)).code == ProblemCode::too_deep);
  CHECK(parse_document("[\"" + repeated(R"([\"{\\)", 100) + "\"]").ok());
  CHECK(problem_of("[\"" + repeated("[", 100)).code == ProblemCode::invalid_json);
  CHECK(problem_of("\"\\").code == ProblemCode::invalid_json);
}

TEST_CASE("a hundred megabytes of brackets are refused at once") {
  const std::string text(100'000'000, '[');
  const auto start = std::chrono::steady_clock::now();
  const Problem problem = problem_of(text);
  const auto elapsed = std::chrono::steady_clock::now() - start;
  CHECK(problem.code == ProblemCode::too_large_input);
  CHECK(whole(problem, "bytes") == 100'000'000);
  CHECK(elapsed < std::chrono::milliseconds(100));
}

TEST_CASE("the largest text that is allowed, of brackets, is refused before it is parsed") {
  const Problem problem = problem_of(std::string(kLongestText, '['));
  CHECK(problem.code == ProblemCode::too_deep);
}

}  // namespace
}  // namespace vramplan
