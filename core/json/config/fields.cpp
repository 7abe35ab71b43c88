#include "fields.hpp"

#include <algorithm>
#include <utility>

namespace vramplan::config {
namespace {

// Ten thousand layers can each be wrong; nobody reads more than these.
constexpr std::size_t kMostFaultyLayers = 32;

}  // namespace

ConfigFields::ConfigFields(const Json& object, std::string pointer, Problems& problems)
    : object_(object),
      problems_(problems),
      problems_before_(problems.size()),
      reader_(object, std::move(pointer), problems) {}

std::string_view ConfigFields::chosen(FieldNames names) const {
  const auto* present = std::find_if(names.begin(), names.end(), [&](const char* name) { return reader_.has(name); });
  return present != names.end() ? *present : *names.begin();
}

bool ConfigFields::has(FieldNames names) const { return reader_.has(chosen(names)); }

bool ConfigFields::is_null(const char* name) const {
  const auto found = object_.find(name);
  return found != object_.end() && found->is_null();
}

Dim ConfigFields::size(FieldNames names, IntegerRange range) {
  Dim value = range.minimum;
  // A size that is null is as good as missing.
  if (!has(names)) {
    report(problems_, ProblemCode::missing_field, pointer_to(names));
  } else {
    reader_.integer(chosen(names), value, range);
  }
  return value;
}

Dim ConfigFields::size_or(FieldNames names, IntegerRange range, Dim otherwise) {
  Dim value = otherwise;
  reader_.integer(chosen(names), value, range);
  return value;
}

bool ConfigFields::flag_or(FieldNames names, bool otherwise) {
  reader_.boolean(chosen(names), otherwise);
  return otherwise;
}

double ConfigFields::number_or(FieldNames names, double otherwise) {
  reader_.number(chosen(names), otherwise, NumberRange{});
  return otherwise;
}

std::string ConfigFields::text_or(FieldNames names, const std::string& otherwise) {
  std::string value = otherwise;
  reader_.string(chosen(names), value);
  return value;
}

std::vector<std::int64_t> ConfigFields::sizes_or_none(FieldNames names, IntegerRange range, std::size_t most) {
  std::vector<std::int64_t> values;
  const Json* array = reader_.array(chosen(names));
  if (array == nullptr) return values;
  if (array->size() > most) {
    inconsistent(names, "num_hidden_layers");
    return values;
  }
  reader_.integers(chosen(names), values, range);
  return values;
}

std::optional<std::vector<std::size_t>> ConfigFields::kind_of_layer(FieldNames names, Dim layers,
                                                                    std::initializer_list<std::string_view> allowed) {
  const Json* array = reader_.array(chosen(names));
  if (array == nullptr) return std::nullopt;
  if (static_cast<Dim>(array->size()) != layers) {
    inconsistent(names, "num_hidden_layers");
    return std::nullopt;
  }
  std::vector<std::size_t> kinds;
  const std::size_t most_problems = problems_.size() + kMostFaultyLayers;
  for (std::size_t i = 0; i < array->size() && problems_.size() < most_problems; ++i) {
    const std::string pointer = child_pointer(pointer_to(names), i);
    std::string text;
    if (!read_string((*array)[i], pointer, problems_, text)) continue;
    const auto* match = std::find(allowed.begin(), allowed.end(), text);
    if (match == allowed.end()) {
      report_unknown_value(problems_, pointer, text, std::span(allowed.begin(), allowed.size()));
    } else {
      kinds.push_back(static_cast<std::size_t>(match - allowed.begin()));
    }
  }
  if (kinds.size() != array->size()) return std::nullopt;
  return kinds;
}

const Json* ConfigFields::object(const char* name, Need need) { return reader_.object(name, need); }

const Json* ConfigFields::any(const char* name) { return reader_.any(name); }

void ConfigFields::inconsistent(FieldNames field, std::string_view other) {
  report(problems_, ProblemCode::inconsistent, pointer_to(field),
         {{"field", std::string(chosen(field))}, {"other", std::string(other)}});
}

void ConfigFields::not_supported(FieldNames field, std::string_view value) {
  report(problems_, ProblemCode::not_supported, pointer_to(field),
         {{"field", std::string(chosen(field))}, {"value", std::string(value)}});
}

}  // namespace vramplan::config
