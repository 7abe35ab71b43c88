// Reads the fields of a config.json by whichever of their names a dialect uses. Fields that nobody asks for are
// ignored.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../reader.hpp"

namespace vramplan::config {

// The names of one field; the first is the dialect's own and the one that a problem points at when none is there.
using FieldNames = std::initializer_list<const char*>;

// Getters return a harmless value after a problem, so that a dialect reads on and reports all its problems.
// Nothing made of such values leaves read_config().
class ConfigFields {
 public:
  ConfigFields(const Json& object, std::string pointer, Problems& problems);

  [[nodiscard]] bool clean() const { return problems_.size() == problems_before_; }
  [[nodiscard]] bool has(FieldNames names) const;      // present and not null
  [[nodiscard]] bool is_null(const char* name) const;  // present and null: often another meaning than absent

  [[nodiscard]] Dim size(FieldNames names, IntegerRange range);  // required
  [[nodiscard]] Dim size_or(FieldNames names, IntegerRange range, Dim otherwise);
  [[nodiscard]] bool flag_or(FieldNames names, bool otherwise);
  [[nodiscard]] double number_or(FieldNames names, double otherwise);
  [[nodiscard]] std::string text_or(FieldNames names, const std::string& otherwise);
  [[nodiscard]] std::vector<std::int64_t> sizes_or_none(FieldNames names, IntegerRange range, std::size_t most);

  // The index of `value of the field` in `allowed`, for one text a layer. nullopt: absent, or after a problem.
  [[nodiscard]] std::optional<std::vector<std::size_t>> kind_of_layer(FieldNames names, Dim layers,
                                                                      std::initializer_list<std::string_view> allowed);

  [[nodiscard]] const Json* object(const char* name, Need need);
  [[nodiscard]] const Json* any(const char* name);  // of whatever type; nullptr when absent or null

  void inconsistent(FieldNames field, std::string_view other);
  void not_supported(FieldNames field, std::string_view value);

  [[nodiscard]] std::string pointer_to(FieldNames names) const { return reader_.pointer_to(chosen(names)); }
  [[nodiscard]] Problems& problems() { return problems_; }

 private:
  [[nodiscard]] std::string_view chosen(FieldNames names) const;

  const Json& object_;
  Problems& problems_;
  std::size_t problems_before_;
  ObjectReader reader_;
};

}  // namespace vramplan::config
