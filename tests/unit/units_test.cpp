#include "vramplan/units.hpp"

#include <doctest/doctest.h>

#include <type_traits>

#include "vramplan/component.hpp"
#include "vramplan/element_type.hpp"

using namespace vramplan;
using namespace vramplan::literals;

namespace {

template <class A, class B>
concept Addable = requires(A a, B b) {
  a + b;
};
template <class A, class B>
concept Multipliable = requires(A a, B b) {
  a* b;
};

// Quantities of different kinds, and plain numbers, do not meet by accident.
static_assert(Addable<Bytes, Bytes> && !Addable<Bytes, Params> && !Addable<Tokens, Flops> && !Addable<Ranks, Params>);
static_assert(!Addable<Bytes, std::int64_t> && !std::is_convertible_v<std::int64_t, Bytes>);
static_assert(!std::is_convertible_v<Bytes, std::int64_t> && !std::is_constructible_v<Bytes, Params>);
static_assert(Multipliable<Bytes, std::int64_t> && !Multipliable<Bytes, Bytes> && !Multipliable<Bytes, Params>);

}  // namespace

TEST_CASE("GB and GiB are different literals") {
  CHECK(24_GB == Bytes(24'000'000'000));
  CHECK(24_GiB == Bytes(25'769'803'776));
  CHECK(1_GiB == 1024_MiB);
  CHECK(1_MiB == 1024_KiB);
  CHECK(1_KiB == 1024_B);
}

TEST_CASE("sums and products saturate instead of wrapping") {
  constexpr std::int64_t kTwo31 = std::int64_t{1} << 31;
  CHECK(saturating_add(kSaturated, 1) == kSaturated);
  CHECK(saturating_add(kSaturated, kSaturated) == kSaturated);
  CHECK(saturating_add(kSaturated - 1, 1) == kSaturated);
  CHECK(saturating_add(kSaturated, -1) == kSaturated - 1);
  CHECK(saturating_add(-kSaturated, -kSaturated) == -kSaturated);
  CHECK(saturating_multiply(kTwo31, kTwo31) == kSaturated);
  CHECK(saturating_multiply(kTwo31 - 1, kTwo31) == kSaturated - kTwo31 + 1);
  CHECK(saturating_multiply(kTwo31 - 1, -kTwo31) == -(kSaturated - kTwo31 + 1));
  CHECK(saturating_multiply(kSaturated, 1) == kSaturated);
  CHECK(saturating_multiply(kSaturated / 2, 2) == kSaturated - 1);
  CHECK(saturating_multiply(2 * kTwo31, kTwo31) == kSaturated);  // would still fit 64 bits
  CHECK(saturating_multiply(4 * kTwo31, kTwo31) == kSaturated);
  CHECK(saturating_multiply(8 * kTwo31, 8 * kTwo31) == kSaturated);  // would not fit twice 63
  CHECK(saturating_multiply(-2 * kTwo31, 2 * kTwo31) == -kSaturated);
  CHECK(saturating_multiply(0, kSaturated) == 0);
  CHECK((Bytes(kSaturated) + 1_B).saturated());
  CHECK((Bytes(kSaturated / 2) * 3).saturated());
  CHECK_FALSE((Bytes(kSaturated / 2) * 2).saturated());
}

TEST_CASE("rounding up: the largest share of what does not divide") {
  CHECK(divide_up(0, 7) == 0);
  CHECK(divide_up(7, 7) == 1);
  CHECK(divide_up(8, 7) == 2);
  CHECK(divide_up(kSaturated, 1) == kSaturated);
  CHECK(shard_up(Params(10), 4) == Params(3));
  CHECK(shard_up(10_B, 16) == 1_B);
}

TEST_CASE("a block format stores whole blocks") {
  constexpr BlockFormat kNibbles{2, 1};
  constexpr BlockFormat kBlocks{32, 18};  // 32 values in 4 bits and a 16-bit scale: no "4.5 bits" anywhere
  CHECK(bytes_in_blocks(64, kNibbles) == 32_B);
  CHECK(bytes_in_blocks(65, kNibbles) == 33_B);
  CHECK(bytes_in_blocks(33, kBlocks) == 36_B);
  CHECK(bytes_in_blocks(0, kBlocks) == 0_B);
}

TEST_CASE("a list of contributions leaves none out, however many there are") {
  Contributions list;
  for (std::int64_t i = 1; i <= 40; ++i) list.add({Component::weights, i, {}});
  CHECK(list.total() == 820_B);  // 40 x 41 / 2
  list.add({Component::weights, 0, {{"h", 4096}}});
  CHECK(list.end() - list.begin() == 40);
  Contributions sum(Contributions::Keeps::sum);
  for (const Contribution& c : list) sum.add(c);
  CHECK(sum.total() == list.total());
  CHECK(sum.begin() == sum.end());
}
