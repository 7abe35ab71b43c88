// Strict reading of JSON: every problem at once, each with its JSON Pointer; nothing is guessed.
//
//   ObjectReader reader(value, pointer, problems);
//   reader.integer("rank", lora.rank, limits::kLoraRank);
//   reader.enumerator("method", training.method, Need::required);
//   reader.finish();   // whatever nobody asked for is an unknown_field, with the closest known name
//
// An absent optional field leaves its destination as it was; null counts as absent. Numbers follow JSON, not C++: 7e9
// and 7.0 are integers as long as no precision is lost (|value| <= 2^53).
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vramplan/enum_names.hpp"
#include "vramplan/request.hpp"
#include "vramplan/result.hpp"

namespace vramplan {

using Json = nlohmann::json;

enum class Need : std::uint8_t { optional, required };

// 2^53 - 1: the largest integer that JavaScript and a double keep exactly.
inline constexpr std::int64_t kLargestJsonInteger = 9'007'199'254'740'991;
inline constexpr IntegerRange kAnyCount{0, kLargestJsonInteger};

// string | number | boolean | object | array | null
[[nodiscard]] std::string_view type_name(const Json& value);

// The pointer to a member or an element of what `pointer` points to (RFC 6901: ~ becomes ~0 and / becomes ~1).
[[nodiscard]] std::string child_pointer(const std::string& pointer, std::string_view key);
[[nodiscard]] std::string child_pointer(const std::string& pointer, std::size_t index);

// What a visitor sent, cut to a length that is safe to repeat in a problem (never inside a UTF-8 character).
[[nodiscard]] std::string shortened(std::string_view text);

void report(Problems& problems, ProblemCode code, const std::string& pointer,
            std::vector<ProblemArgument> arguments = {});
void report_wrong_type(Problems& problems, const std::string& pointer, std::string_view expected, const Json& found);
void report_unknown_value(Problems& problems, const std::string& pointer, std::string_view value,
                          std::span<const std::string_view> allowed);

// One value. False, after a problem, when it is not what is asked for; `destination` is then unchanged.
bool read_integer(const Json& value, const std::string& pointer, IntegerRange range, Problems& problems,
                  std::int64_t& destination);
bool read_number(const Json& value, const std::string& pointer, NumberRange range, Problems& problems,
                 double& destination);
bool read_boolean(const Json& value, const std::string& pointer, Problems& problems, bool& destination);
bool read_string(const Json& value, const std::string& pointer, Problems& problems, std::string& destination);

template <NamedEnum Enum>
bool read_enumerator(const Json& value, const std::string& pointer, Problems& problems, Enum& destination) {
  std::string name;
  if (!read_string(value, pointer, problems, name)) return false;
  const std::optional<Enum> parsed = parse_enum<Enum>(name);
  if (!parsed) {
    report_unknown_value(problems, pointer, name, EnumNames<Enum>::values);
    return false;
  }
  destination = *parsed;
  return true;
}

// Walks one object and remembers which fields were asked for. Getters return true when a value was read.
class ObjectReader {
 public:
  // Reports wrong_type when `value` is not an object; then every getter stays silent and finds nothing.
  ObjectReader(const Json& value, std::string pointer, Problems& problems);

  [[nodiscard]] bool valid() const { return object_ != nullptr; }
  [[nodiscard]] const std::string& pointer() const { return pointer_; }
  [[nodiscard]] std::string pointer_to(std::string_view name) const { return child_pointer(pointer_, name); }
  [[nodiscard]] Problems& problems() { return problems_; }
  // Present and not null; does not count as asking for it.
  [[nodiscard]] bool has(std::string_view name) const;

  bool integer(std::string_view name, std::int64_t& destination, IntegerRange range, Need need = Need::optional);
  bool integer(std::string_view name, std::optional<std::int64_t>& destination, IntegerRange range);
  bool number(std::string_view name, double& destination, NumberRange range, Need need = Need::optional);
  bool number(std::string_view name, std::optional<double>& destination, NumberRange range);
  bool boolean(std::string_view name, bool& destination, Need need = Need::optional);
  bool boolean(std::string_view name, std::optional<bool>& destination);
  bool string(std::string_view name, std::string& destination, Need need = Need::optional);
  // Replace `destination`; each faulty element is a problem of its own.
  bool strings(std::string_view name, std::vector<std::string>& destination, Need need = Need::optional);
  bool integers(std::string_view name, std::vector<std::int64_t>& destination, IntegerRange range,
                Need need = Need::optional);

  template <NamedEnum Enum>
  bool enumerator(std::string_view name, Enum& destination, Need need = Need::optional) {
    const Json* value = take(name, need);
    return value != nullptr && read_enumerator(*value, pointer_to(name), problems_, destination);
  }
  template <NamedEnum Enum>
  bool enumerator(std::string_view name, std::optional<Enum>& destination) {
    Enum read{};
    if (!enumerator(name, read)) return false;
    destination = read;
    return true;
  }

  // The member itself, of the right type, or nullptr (after a problem when it is required or of another type).
  const Json* object(std::string_view name, Need need = Need::optional);
  const Json* array(std::string_view name, Need need = Need::optional);
  const Json* any(std::string_view name, Need need = Need::optional);

  // Known, and of no interest here.
  void ignore(std::string_view name);

  // Reports unknown_field for every member that nobody asked for, up to a hundred.
  void finish();

 private:
  const Json* take(std::string_view name, Need need);

  const Json* object_ = nullptr;
  std::string pointer_;
  Problems& problems_;
  std::vector<std::string_view> known_;
};

}  // namespace vramplan
