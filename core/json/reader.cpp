#include "reader.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "vramplan/closest.hpp"

namespace vramplan {
namespace {

constexpr std::size_t kLongestEcho = 120;
// A hostile object can hold two hundred thousand unknown fields; nobody reads more than these.
constexpr std::size_t kMostUnknownFields = 100;

ProblemArgument text_argument(std::string name, std::string_view value) { return {std::move(name), shortened(value)}; }

// Whole numbers show as whole numbers in a problem, the rest as it was written.
ProblemArgument number_argument(std::string name, const Json& value) {
  const double number = value.get<double>();
  const bool whole = std::abs(number) <= static_cast<double>(kLargestJsonInteger) && std::trunc(number) == number;
  if (whole) return {std::move(name), static_cast<std::int64_t>(number)};
  return {std::move(name), number};
}

std::string joined(std::span<const std::string_view> words) {
  std::string text;
  for (const std::string_view word : words) {
    if (!text.empty()) text += ", ";
    text += word;
  }
  return text;
}

// `value` is a number. Nothing when it has a fraction or does not fit.
std::optional<std::int64_t> exact_integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  const double number = value.get<double>();
  if (std::abs(number) > static_cast<double>(kLargestJsonInteger) || std::trunc(number) != number) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

bool has_fraction(const Json& value) {
  return value.is_number_float() && std::trunc(value.get<double>()) != value.get<double>();
}

}  // namespace

std::string_view type_name(const Json& value) {
  if (value.is_number()) return "number";
  if (value.is_string()) return "string";
  if (value.is_boolean()) return "boolean";
  if (value.is_object()) return "object";
  if (value.is_array()) return "array";
  return "null";
}

std::string child_pointer(const std::string& pointer, std::string_view key) {
  std::string child = pointer + '/';
  for (const char c : shortened(key)) {
    if (c == '~') {
      child += "~0";
    } else if (c == '/') {
      child += "~1";
    } else {
      child += c;
    }
  }
  return child;
}

std::string child_pointer(const std::string& pointer, std::size_t index) {
  return pointer + '/' + std::to_string(index);
}

std::string shortened(std::string_view text) {
  if (text.size() <= kLongestEcho) return std::string(text);
  std::size_t end = kLongestEcho;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return std::string(text.substr(0, end)) + "…";
}

void report(Problems& problems, ProblemCode code, const std::string& pointer, std::vector<ProblemArgument> arguments) {
  problems.push_back({code, pointer, std::move(arguments)});
}

void report_wrong_type(Problems& problems, const std::string& pointer, std::string_view expected, const Json& found) {
  report(problems, ProblemCode::wrong_type, pointer,
         {text_argument("expected", expected), text_argument("found", type_name(found))});
}

void report_unknown_value(Problems& problems, const std::string& pointer, std::string_view value,
                          std::span<const std::string_view> allowed) {
  report(problems, ProblemCode::unknown_value, pointer, {text_argument("value", value), {"allowed", joined(allowed)}});
}

bool read_integer(const Json& value, const std::string& pointer, IntegerRange range, Problems& problems,
                  std::int64_t& destination) {
  if (!value.is_number()) {
    report_wrong_type(problems, pointer, "integer", value);
    return false;
  }
  if (has_fraction(value)) {
    report(problems, ProblemCode::not_an_integer, pointer, {number_argument("value", value)});
    return false;
  }
  const std::optional<std::int64_t> read = exact_integer(value);
  if (!read || *read < range.minimum || *read > range.maximum) {
    report(problems, ProblemCode::out_of_range, pointer,
           {number_argument("value", value), {"minimum", range.minimum}, {"maximum", range.maximum}});
    return false;
  }
  destination = *read;
  return true;
}

bool read_number(const Json& value, const std::string& pointer, NumberRange range, Problems& problems,
                 double& destination) {
  if (!value.is_number()) {
    report_wrong_type(problems, pointer, "number", value);
    return false;
  }
  const auto read = value.get<double>();
  if (!(read >= range.minimum && read <= range.maximum)) {
    report(problems, ProblemCode::out_of_range, pointer,
           {number_argument("value", value), {"minimum", range.minimum}, {"maximum", range.maximum}});
    return false;
  }
  destination = read;
  return true;
}

bool read_boolean(const Json& value, const std::string& pointer, Problems& problems, bool& destination) {
  if (!value.is_boolean()) {
    report_wrong_type(problems, pointer, "boolean", value);
    return false;
  }
  destination = value.get<bool>();
  return true;
}

bool read_string(const Json& value, const std::string& pointer, Problems& problems, std::string& destination) {
  if (!value.is_string()) {
    report_wrong_type(problems, pointer, "string", value);
    return false;
  }
  destination = value.get_ref<const std::string&>();
  return true;
}

ObjectReader::ObjectReader(const Json& value, std::string pointer, Problems& problems)
    : pointer_(std::move(pointer)), problems_(problems) {
  if (value.is_object()) {
    object_ = &value;
  } else {
    report_wrong_type(problems_, pointer_, "object", value);
  }
}

bool ObjectReader::has(std::string_view name) const {
  if (object_ == nullptr) return false;
  const auto found = object_->find(std::string(name));
  return found != object_->end() && !found->is_null();
}

const Json* ObjectReader::take(std::string_view name, Need need) {
  ignore(name);
  if (object_ == nullptr) return nullptr;
  const auto found = object_->find(std::string(name));
  if (found == object_->end()) {
    if (need == Need::required) report(problems_, ProblemCode::missing_field, pointer_to(name));
    return nullptr;
  }
  if (found->is_null() && need == Need::optional) return nullptr;
  return &*found;
}

void ObjectReader::ignore(std::string_view name) { known_.push_back(name); }

bool ObjectReader::integer(std::string_view name, std::int64_t& destination, IntegerRange range, Need need) {
  const Json* value = take(name, need);
  return value != nullptr && read_integer(*value, pointer_to(name), range, problems_, destination);
}

bool ObjectReader::integer(std::string_view name, std::optional<std::int64_t>& destination, IntegerRange range) {
  std::int64_t read = 0;
  if (!integer(name, read, range)) return false;
  destination = read;
  return true;
}

bool ObjectReader::number(std::string_view name, double& destination, NumberRange range, Need need) {
  const Json* value = take(name, need);
  return value != nullptr && read_number(*value, pointer_to(name), range, problems_, destination);
}

bool ObjectReader::number(std::string_view name, std::optional<double>& destination, NumberRange range) {
  double read = 0;
  if (!number(name, read, range)) return false;
  destination = read;
  return true;
}

bool ObjectReader::boolean(std::string_view name, bool& destination, Need need) {
  const Json* value = take(name, need);
  return value != nullptr && read_boolean(*value, pointer_to(name), problems_, destination);
}

bool ObjectReader::boolean(std::string_view name, std::optional<bool>& destination) {
  bool read = false;
  if (!boolean(name, read)) return false;
  destination = read;
  return true;
}

bool ObjectReader::string(std::string_view name, std::string& destination, Need need) {
  const Json* value = take(name, need);
  return value != nullptr && read_string(*value, pointer_to(name), problems_, destination);
}

bool ObjectReader::strings(std::string_view name, std::vector<std::string>& destination, Need need) {
  const Json* values = array(name, need);
  if (values == nullptr) return false;
  std::vector<std::string> read(values->size());
  bool good = true;
  for (std::size_t i = 0; i < read.size(); ++i) {
    good = read_string((*values)[i], child_pointer(pointer_to(name), i), problems_, read[i]) && good;
  }
  if (good) destination = std::move(read);
  return good;
}

bool ObjectReader::integers(std::string_view name, std::vector<std::int64_t>& destination, IntegerRange range,
                            Need need) {
  const Json* values = array(name, need);
  if (values == nullptr) return false;
  std::vector<std::int64_t> read(values->size());
  bool good = true;
  for (std::size_t i = 0; i < read.size(); ++i) {
    good = read_integer((*values)[i], child_pointer(pointer_to(name), i), range, problems_, read[i]) && good;
  }
  if (good) destination = std::move(read);
  return good;
}

const Json* ObjectReader::object(std::string_view name, Need need) {
  const Json* value = take(name, need);
  if (value == nullptr || value->is_object()) return value;
  report_wrong_type(problems_, pointer_to(name), "object", *value);
  return nullptr;
}

const Json* ObjectReader::array(std::string_view name, Need need) {
  const Json* value = take(name, need);
  if (value == nullptr || value->is_array()) return value;
  report_wrong_type(problems_, pointer_to(name), "array", *value);
  return nullptr;
}

const Json* ObjectReader::any(std::string_view name, Need need) { return take(name, need); }

void ObjectReader::finish() {
  if (object_ == nullptr) return;
  std::size_t reported = 0;
  for (const auto& [name, value] : object_->items()) {
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    if (++reported > kMostUnknownFields) return;
    report(problems_, ProblemCode::unknown_field, pointer_to(name),
           {text_argument("name", name), text_argument("closest", closest(name, known_))});
  }
}

}  // namespace vramplan
