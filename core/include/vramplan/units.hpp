// Units as types: quantities that must never be mixed do not convert into each other.
//
// Every quantity is a whole number held in 64 bits. Arithmetic saturates at the largest value instead of wrapping
// (below zero there are only differences of two quantities); a saturated value is never shown: the planner turns it
// into the problem `too_large` (result.hpp).
#pragma once

#include <bit>
#include <compare>
#include <cstdint>

namespace vramplan {

// Plain whole number for dimensions: hidden sizes, head counts, layers.
using Dim = std::int64_t;

// Two of the largest values still add up inside 64 bits, so a sum is looked at after it was made.
inline constexpr int kBits = 62;
inline constexpr std::int64_t kSaturated = (std::int64_t{1} << kBits) - 1;

// From -kSaturated - 1 to kSaturated: the two highest bits are the same.
[[nodiscard]] constexpr bool in_range(std::int64_t n) { return (n ^ (n << 1)) >= 0; }

// What has no room, out of the way of what has.
[[nodiscard, gnu::noinline, gnu::cold]] constexpr std::int64_t saturated(bool negative) {
  return negative ? -kSaturated : kSaturated;
}

#ifndef __wasm__
[[nodiscard]] constexpr std::int64_t saturating_add(std::int64_t a, std::int64_t b) {
  const std::int64_t sum = a + b;
  if (in_range(sum)) [[likely]]
    return sum;
  return saturated(sum < 0);
}

[[nodiscard]] constexpr std::int64_t saturating_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (!__builtin_mul_overflow(a, b, &product) && in_range(product)) [[likely]]
    return product;
  return saturated((a > 0) != (b > 0));
}
#else
// WebAssembly chooses more cheaply than it branches, and has no multiplication that reports overflow, but counts zeros
// in one step. Factors that leave so many bits unused (a negative one leaves none) have a product in range.
[[nodiscard, gnu::always_inline]] constexpr std::int64_t saturating_add(std::int64_t a, std::int64_t b) {
  const std::int64_t sum = a + b;
  return sum < kSaturated ? sum : kSaturated;
}

[[nodiscard, gnu::noinline, gnu::cold, gnu::const]] constexpr std::int64_t far_multiply(std::int64_t a,
                                                                                        std::int64_t b) {
  std::int64_t product = 0;
  if (!__builtin_mul_overflow(a, b, &product) && in_range(product)) return product;
  return saturated((a > 0) != (b > 0));
}

[[nodiscard, gnu::always_inline]] constexpr std::int64_t saturating_multiply(std::int64_t a, std::int64_t b) {
  const auto unused = [](std::int64_t n) { return std::countl_zero(static_cast<std::uint64_t>(n)); };
  return unused(a) + unused(b) >= 2 * 64 - kBits ? a * b : far_multiply(a, b);
}
#endif

// a / b rounded up; b > 0, a >= 0.
[[nodiscard]] constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return b == 1 ? a : a / b + (a % b != 0 ? 1 : 0);  // most things are divided by one, and a division takes long
}

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
