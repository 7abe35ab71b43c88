// Sizes as polynomials of batch and length.
#include "vramplan/component.hpp"

#include <algorithm>

namespace vramplan {
namespace {

constexpr std::int64_t kLargestCoefficient = std::int64_t{1} << 52;

// How often batch, length, chunk, span and number of chunks occur in a size.
struct Occurrences {
  std::array<std::uint8_t, kSymbolCount> of{};
  [[nodiscard]] bool are(std::uint8_t b, std::uint8_t s, std::uint8_t sc, std::uint8_t w, std::uint8_t sk = 0,
                         std::uint8_t nc = 0, std::uint8_t se = 0) const {
    const auto at = [this](Symbol symbol) { return of[static_cast<std::size_t>(symbol)]; };
    return at(Symbol::b) == b && at(Symbol::s) == s && at(Symbol::sc) == sc && at(Symbol::w) == w &&
           at(Symbol::sk) == sk && at(Symbol::nc) == nc && at(Symbol::se) == se;
  }
};

bool varies(Symbol s) {
  return s == Symbol::b || s == Symbol::s || s == Symbol::sk || s == Symbol::sc || s == Symbol::w || s == Symbol::nc ||
         s == Symbol::se;
}

std::optional<Product> product_of(const Occurrences& n) {
  if (n.are(0, 0, 0, 0)) return Product::one;
  if (n.are(1, 0, 0, 0)) return Product::b;
  if (n.are(0, 1, 0, 0)) return Product::s;
  if (n.are(1, 1, 0, 0)) return Product::bs;
  if (n.are(0, 0, 1, 0)) return Product::sc;
  if (n.are(0, 0, 0, 0, 1)) return Product::sk;
  if (n.are(1, 0, 0, 0, 1)) return Product::bsk;
  if (n.are(1, 1, 0, 1)) return Product::bsw;
  if (n.are(1, 2, 0, 0)) return Product::bss;
  if (n.are(0, 2, 0, 0)) return Product::ss;
  if (n.are(1, 0, 0, 0, 0, 1)) return Product::bnc;
  if (n.are(1, 0, 0, 0, 0, 0, 1)) return Product::bse;
  return std::nullopt;
}

}  // namespace

std::optional<Polynomial> polynomial_of(const Size& size, const SymbolTable& widths) {
  Occurrences occurrences;
  std::int64_t coefficient = constant_bytes(size);
  for (const Symbol s : size.symbols) {
    if (varies(s)) {
      ++occurrences.of[static_cast<std::size_t>(s)];
    } else if (s != Symbol::one) {
      coefficient = saturating_multiply(coefficient, widths[s]);
    }
  }
  const std::optional<Product> product = product_of(occurrences);
  if (!product) return std::nullopt;
  Polynomial polynomial;
  polynomial.coefficient[static_cast<std::size_t>(*product)] = std::min(coefficient, kLargestCoefficient);
  return polynomial;
}

}  // namespace vramplan
