// A configuration as a tree of settings, and the ways in which it is written down.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace vramplan::launch {

struct Setting;
using Settings = std::vector<Setting>;
using Words = std::vector<std::string>;

// What the visitor fills in; written with a comment where the format has comments.
struct Placeholder {
  std::string name;
};

// nullptr: the field must be there, and says nothing.
using SettingValue = std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, Placeholder, Words, Settings,
                                  std::vector<Settings>>;

struct Setting {
  std::string key;
  SettingValue value;
};

[[nodiscard]] std::string yaml(const Settings& settings);
[[nodiscard]] std::string json(const Settings& settings);
// `--key value`, an argument a line; a switch that is on is its key alone, and one that is off is not written.
[[nodiscard]] Words arguments(const Settings& settings);

// Shortest text that reads back as the same number.
[[nodiscard]] std::string text_of(double number);

// A command over several lines.
[[nodiscard]] std::string command(const Words& words);

}  // namespace vramplan::launch
