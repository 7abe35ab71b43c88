// Units as types: quantities that must never be mixed do not convert into each other.
//
// Every quantity is a whole number held in 64 bits. Arithmetic saturates at the largest value instead of wrapping;
// a saturated value is never shown: the planner turns it into the problem `too_large` (result.hpp).
#pragma once

#include <bit>
#include <compare>
#include <cstdint>
#include <limits>

namespace vramplan {

// Plain whole number for dimensions: hidden sizes, head counts, layers.
using Dim = std::int64_t;

inline constexpr std::int64_t kSaturated = std::numeric_limits<std::int64_t>::max();

[[nodiscard]] constexpr std::int64_t saturating_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return a > 0 ? kSaturated : std::numeric_limits<std::int64_t>::min();
  return sum;
}

// WebAssembly has no multiplication that reports overflow: there it is asked for only where one is possible.
#ifdef __wasm__
inline constexpr bool kOverflowIsReported = false;
#else
inline constexpr bool kOverflowIsReported = true;
#endif

// Whether a * b takes no more than 63 bits, by the bits that the factors leave unused.
[[nodiscard]] constexpr bool has_room(std::int64_t a, std::int64_t b) {
  const auto unused = [](std::int64_t n) { return std::countl_zero(static_cast<std::uint64_t>(n)); };
  return (a | b) >= 0 && unused(a) + unused(b) >= 2 * 64 - 63;
}

[[nodiscard]] constexpr std::int64_t saturating_multiply(std::int64_t a, std::int64_t b) {
  if (!kOverflowIsReported && has_room(a, b)) return a * b;
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) {
    return (a > 0) == (b > 0) ? kSaturated : std::numeric_limits<std::int64_t>::min();
  }
  return product;
}

// a / b rounded up; b > 0, a >= 0.
[[nodiscard]] constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

template <class Tag>
struct Quantity {
  std::int64_t value = 0;

  constexpr Quantity() = default;
  constexpr explicit Quantity(std::int64_t v) : value(v) {}

  friend constexpr auto operator<=>(Quantity, Quantity) = default;
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(saturating_add(a.value, b.value)); }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(saturating_add(a.value, -b.value)); }
  friend constexpr Quantity operator*(Quantity a, std::int64_t n) { return Quantity(saturating_multiply(a.value, n)); }
  friend constexpr Quantity operator*(std::int64_t n, Quantity a) { return a * n; }
  constexpr Quantity& operator+=(Quantity b) { return *this = *this + b; }
  constexpr Quantity& operator-=(Quantity b) { return *this = *this - b; }
  [[nodiscard]] constexpr bool saturated() const { return value == kSaturated; }
};

// One share of `a` when it is divided over n ranks, rounded up (the largest shard decides).
template <class Tag>
[[nodiscard]] constexpr Quantity<Tag> shard_up(Quantity<Tag> a, std::int64_t n) {
  return Quantity<Tag>(divide_up(a.value, n));
}

using Bytes = Quantity<struct BytesTag>;
using Params = Quantity<struct ParamsTag>;
using Tokens = Quantity<struct TokensTag>;
using Flops = Quantity<struct FlopsTag>;
using Ranks = Quantity<struct RanksTag>;

namespace literals {
// Vendors sell GB and TB (powers of ten), drivers and allocators count KiB, MiB and GiB (powers of two).
constexpr Bytes operator""_B(unsigned long long n) { return Bytes(static_cast<std::int64_t>(n)); }
constexpr Bytes operator""_KiB(unsigned long long n) { return Bytes(static_cast<std::int64_t>(n) << 10); }
constexpr Bytes operator""_MiB(unsigned long long n) { return Bytes(static_cast<std::int64_t>(n) << 20); }
constexpr Bytes operator""_GiB(unsigned long long n) { return Bytes(static_cast<std::int64_t>(n) << 30); }
constexpr Bytes operator""_GB(unsigned long long n) { return Bytes(static_cast<std::int64_t>(n) * 1'000'000'000); }
}  // namespace literals

}  // namespace vramplan
