// Sizes as polynomials of batch and length.
#include "vramplan/component.hpp"

#include <algorithm>
#include <array>
#include <span>

namespace vramplan {
namespace {

constexpr std::int64_t kLargestCoefficient = std::int64_t{1} << 52;

// Symbols that change with batch and length. Besides the batch a size has one of them, or two that Product knows.
constexpr std::array kVarying = {Symbol::b,  Symbol::s,  Symbol::sk, Symbol::sc, Symbol::w,
                                 Symbol::nc, Symbol::se, Symbol::sp, Symbol::sx, Symbol::sm};
constexpr std::size_t kNone = kVarying.size();

std::size_t varying(Symbol s) {
  return static_cast<std::size_t>(std::find(kVarying.begin(), kVarying.end(), s) - kVarying.begin());
}

// How often each occurs in a size.
using Occurrences = std::array<std::uint8_t, kVarying.size()>;

struct Pattern {
  std::array<Symbol, 3> symbols;  // one: nothing more
  Product product;
};
constexpr std::array kPatterns = {
    Pattern{{Symbol::one, Symbol::one, Symbol::one}, Product::one},
    Pattern{{Symbol::b, Symbol::one, Symbol::one}, Product::b},
    Pattern{{Symbol::s, Symbol::one, Symbol::one}, Product::s},
    Pattern{{Symbol::b, Symbol::s, Symbol::one}, Product::bs},
    Pattern{{Symbol::sc, Symbol::one, Symbol::one}, Product::sc},
    Pattern{{Symbol::sk, Symbol::one, Symbol::one}, Product::sk},
    Pattern{{Symbol::b, Symbol::sk, Symbol::one}, Product::bsk},
    Pattern{{Symbol::b, Symbol::s, Symbol::w}, Product::bsw},
    Pattern{{Symbol::b, Symbol::s, Symbol::s}, Product::bss},
    Pattern{{Symbol::s, Symbol::s, Symbol::one}, Product::ss},
    Pattern{{Symbol::b, Symbol::nc, Symbol::one}, Product::bnc},
    Pattern{{Symbol::b, Symbol::se, Symbol::one}, Product::bse},
    Pattern{{Symbol::b, Symbol::sp, Symbol::one}, Product::bsp},
    Pattern{{Symbol::b, Symbol::sx, Symbol::one}, Product::bsx},
    Pattern{{Symbol::b, Symbol::sm, Symbol::one}, Product::bsm},
};

Occurrences occurrences_in(std::span<const Symbol> symbols) {
  Occurrences counts{};
  for (const Symbol s : symbols) {
    if (const std::size_t i = varying(s); i != kNone) ++counts[i];
  }
  return counts;
}

std::optional<Product> product_of(const Occurrences& n) {
  for (const Pattern& pattern : kPatterns) {
    if (occurrences_in(pattern.symbols) == n) return pattern.product;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Polynomial> polynomial_of(const Size& size, const SymbolTable& widths) {
  std::int64_t coefficient = constant_bytes(size);
  for (const Symbol s : size.symbols) {
    if (varying(s) == kNone && s != Symbol::one) coefficient = saturating_multiply(coefficient, widths[s]);
  }
  const std::optional<Product> product = product_of(occurrences_in(size.symbols));
  if (!product) return std::nullopt;
  Polynomial polynomial;
  polynomial.coefficient[static_cast<std::size_t>(*product)] = std::min(coefficient, kLargestCoefficient);
  return polynomial;
}

}  // namespace vramplan
