// Evaluates the notation of a component row: sums of products of whole numbers, symbols and ceil(x/y).
//   sum     = product { "+" product }
//   product = factor { "*" factor }
//   factor  = number | symbol | "ceil(" sum "/" factor ")"
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "vramplan/memory.hpp"

namespace vramplan {

class Notation {
 public:
  Notation(std::string_view text, const std::vector<Term>& terms) : rest_(text), terms_(terms) {}

  // Nothing when the text is no notation, or names a symbol that has no term.
  [[nodiscard]] std::optional<std::int64_t> value() {
    const std::int64_t result = sum();
    skip_spaces();
    if (!is_sound_ || !rest_.empty()) return std::nullopt;
    return result;
  }

 private:
  std::int64_t sum() {
    std::int64_t total = product();
    while (take("+")) total = saturating_add(total, product());
    return total;
  }
  std::int64_t product() {
    std::int64_t total = factor();
    while (take("*")) total = saturating_multiply(total, factor());
    return total;
  }
  std::int64_t factor() {
    if (take("ceil(")) return rounded_up();
    const std::string_view word = take_word();
    if (word.empty()) return fail();
    return is_digit(word.front()) ? number(word) : symbol(word);
  }
  std::int64_t rounded_up() {
    const std::int64_t dividend = sum();
    if (!take("/")) return fail();
    const std::int64_t divisor = factor();
    if (!take(")") || divisor <= 0) return fail();
    return divide_up(dividend, divisor);
  }
  std::int64_t number(std::string_view word) {
    std::int64_t n = 0;
    for (const char c : word) n = is_digit(c) ? saturating_add(saturating_multiply(n, 10), c - '0') : fail();
    return n;
  }
  std::int64_t symbol(std::string_view word) {
    for (const Term& term : terms_) {
      if (term.symbol == word) return term.value;
    }
    return fail();
  }
  std::int64_t fail() {
    is_sound_ = false;
    return 0;
  }

  void skip_spaces() {
    while (rest_.starts_with(' ')) rest_.remove_prefix(1);
  }
  bool take(std::string_view token) {
    skip_spaces();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  std::string_view take_word() {
    skip_spaces();
    std::size_t n = 0;
    while (n < rest_.size() && is_word(rest_[n])) ++n;
    const std::string_view word = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return word;
  }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_word(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

  std::string_view rest_;
  const std::vector<Term>& terms_;
  bool is_sound_ = true;
};

}  // namespace vramplan
