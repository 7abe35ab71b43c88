// Errors as values. A problem is a code, a place in the request and arguments; it holds no sentence. The page words
// it in the visitor's language (web/src/i18n, key `problem.<code>`). All problems of a request are reported at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace vramplan {

// Every way in which a request can be wrong. Spelled the same in JSON and in the translation keys.
enum class ProblemCode : std::uint8_t {
  invalid_json,           // args: byte (offset)
  too_large_input,        // args: bytes, limit
  too_deep,               // args: limit
  invalid_utf8,           // -
  missing_field,          // -
  unknown_field,          // args: name, closest
  duplicate_field,        // args: name (the same name twice in one object)
  wrong_type,             // args: expected (string | integer | number | boolean | object | array), found
  not_an_integer,         // args: value
  out_of_range,           // args: value, minimum, maximum
  unknown_value,          // args: value, allowed
  unknown_model,          // args: value, closest
  unknown_gpu,            // args: value, closest
  unknown_system,         // args: value, closest
  not_a_config,           // args: - (a JSON object without the fields of a config.json)
  unknown_dialect,        // args: value (model_type)
  inconsistent,           // args: field, other
  precision_unsupported,  // args: precision, gpu, reason
  not_supported,          // args: field, value (a combination that the planner does not model yet)
  method_mismatch,        // args: method, base_weights
  layout_mismatch,        // args: product, count
  illegal_layout,         // args: rule, value, below, above (legal values next to it)
  too_large,              // args: - (a number in the answer would not fit)
  internal,               // args: what
};

struct ProblemArgument {
  std::string name;
  std::variant<std::int64_t, double, std::string> value;
};

struct Problem {
  ProblemCode code = ProblemCode::internal;
  std::string pointer;  // RFC 6901 JSON Pointer into the request, "" for the whole document
  std::vector<ProblemArgument> arguments;
};

using Problems = std::vector<Problem>;

// A value, or the reasons why there is none.
template <class T>
class Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Problem problem) { problems_.push_back(std::move(problem)); }
  Result(Problems problems) : problems_(std::move(problems)) {}

  [[nodiscard]] bool ok() const { return value_.has_value(); }
  [[nodiscard]] const T& value() const& { return *value_; }
  [[nodiscard]] T&& value() && { return std::move(*value_); }
  [[nodiscard]] const Problems& problems() const { return problems_; }

 private:
  std::optional<T> value_;
  Problems problems_;
};

}  // namespace vramplan
