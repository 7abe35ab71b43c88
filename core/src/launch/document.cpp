#include "document.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace vramplan::launch {
namespace {

constexpr std::size_t kIndent = 2;

// Words that YAML 1.1 reads as something else than text.
constexpr std::array<std::string_view, 8> kReserved = {"yes", "no", "on", "off", "true", "false", "null", "y"};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_plain_character(char c) {
  return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.' || c == '/';
}

bool is_plain(std::string_view text) {
  return !text.empty() && is_letter(text.front()) && std::all_of(text.begin(), text.end(), is_plain_character) &&
         std::find(kReserved.begin(), kReserved.end(), text) == kReserved.end();
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string yaml_text(std::string_view text) { return is_plain(text) ? std::string(text) : quoted(text); }

std::string yaml_list(const Words& words) {
  std::string out = "[";
  for (const std::string& word : words) out += (out.size() > 1 ? ", " : "") + yaml_text(word);
  return out + "]";
}

std::string lines(const Settings& settings, std::size_t indent);

// The rows of a list: the first setting of each stands behind the dash.
std::string rows(const std::vector<Settings>& list, std::size_t indent) {
  std::string out;
  for (const Settings& row : list) {
    std::string text = lines(row, indent + kIndent);
    text[indent] = '-';
    out += text;
  }
  return out;
}

std::string on_the_line(std::string_view text) {
  std::string out(1, ' ');
  out += text;
  out += '\n';
  return out;
}

std::string below(std::string_view text) {
  std::string out(1, '\n');
  out += text;
  return out;
}

struct YamlValue {
  std::size_t indent;
  std::string operator()(std::nullptr_t) const { return " null\n"; }
  std::string operator()(bool v) const { return v ? " true\n" : " false\n"; }
  std::string operator()(std::int64_t v) const { return on_the_line(std::to_string(v)); }
  std::string operator()(double v) const { return on_the_line(text_of(v)); }
  std::string operator()(const std::string& v) const { return on_the_line(yaml_text(v)); }
  std::string operator()(const Placeholder& v) const { return on_the_line(v.name + "  # placeholder"); }
  std::string operator()(const Words& v) const { return on_the_line(yaml_list(v)); }
  std::string operator()(const Settings& v) const { return below(lines(v, indent + kIndent)); }
  std::string operator()(const std::vector<Settings>& v) const { return below(rows(v, indent + kIndent)); }
};

std::string lines(const Settings& settings, std::size_t indent) {
  std::string out;
  for (const Setting& s : settings) {
    out += std::string(indent, ' ') + s.key + ":" + std::visit(YamlValue{indent}, s.value);
  }
  return out;
}

std::string object(const Settings& settings, std::size_t indent);

struct JsonValue {
  std::size_t indent;
  std::string operator()(std::nullptr_t) const { return "null"; }
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(std::int64_t v) const { return std::to_string(v); }
  std::string operator()(double v) const { return text_of(v); }
  std::string operator()(const std::string& v) const { return quoted(v); }
  std::string operator()(const Placeholder& v) const { return quoted(v.name); }
  std::string operator()(const Settings& v) const { return object(v, indent); }
  std::string operator()(const Words& v) const {
    std::string out = "[";
    for (const std::string& word : v) out += (out.size() > 1 ? ", " : "") + quoted(word);
    return out + "]";
  }
  std::string operator()(const std::vector<Settings>& v) const {
    std::string out = "[";
    for (const Settings& row : v) out += (out.size() > 1 ? ", " : "") + object(row, indent);
    return out + "]";
  }
};

std::string object(const Settings& settings, std::size_t indent) {
  std::string out = "{";
  for (const Setting& s : settings) {
    out += (out.size() > 1 ? ",\n" : "\n") + std::string(indent + kIndent, ' ') + quoted(s.key) + ": " +
           std::visit(JsonValue{indent + kIndent}, s.value);
  }
  return out + "\n" + std::string(indent, ' ') + "}";
}

}  // namespace

// The fewest decimals that read back as the number: a quotient of two whole numbers is rounded as a reader rounds it.
// (std::to_chars brings tables that would be a tenth of the page.)
std::string text_of(double number) {
  constexpr std::size_t kMostDecimals = 15;
  const auto scaled = [&](double power) { return static_cast<std::int64_t>(number * power + 0.5); };
  std::size_t decimals = 0;
  double power = 1;
  while (decimals < kMostDecimals && static_cast<double>(scaled(power)) / power != number) {
    power *= 10;
    ++decimals;
  }
  if (decimals == 0) return std::to_string(scaled(power)) + ".0";
  std::string digits = std::to_string(scaled(power));
  if (digits.size() <= decimals) digits.insert(0, decimals + 1 - digits.size(), '0');
  digits.insert(digits.end() - static_cast<std::ptrdiff_t>(decimals), '.');
  return digits;
}

std::string yaml(const Settings& settings) { return lines(settings, 0); }
std::string json(const Settings& settings) { return object(settings, 0) + "\n"; }

Words arguments(const Settings& settings) {
  Words out;
  for (const Setting& s : settings) {
    const std::string key = "--" + s.key;
    if (const bool* on = std::get_if<bool>(&s.value)) {
      if (*on) out.push_back(key);
    } else if (const auto* words = std::get_if<Words>(&s.value)) {
      std::string line = key;
      for (const std::string& word : *words) line += " " + word;
      out.push_back(line);
    } else {
      const auto* name = std::get_if<std::string>(&s.value);
      const auto* place = std::get_if<Placeholder>(&s.value);
      out.push_back(key + " " +
                    (name != nullptr    ? *name
                     : place != nullptr ? place->name
                                        : std::visit(JsonValue{0}, s.value)));
    }
  }
  return out;
}

std::string command(const Words& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " \\\n  ") + word;
  return out + "\n";
}

}  // namespace vramplan::launch
