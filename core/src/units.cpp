// The edges of whole numbers, checked where they are compiled: WebAssembly has sums and products of its own, which the
// native tests do not see.
#include "vramplan/units.hpp"

namespace vramplan {
namespace {

constexpr std::int64_t kTwo31 = std::int64_t{1} << 31;
static_assert(saturating_add(kSaturated, kSaturated) == kSaturated);
static_assert(saturating_add(kSaturated - 1, 1) == kSaturated);
static_assert(saturating_add(kSaturated, -1) == kSaturated - 1);
static_assert(saturating_multiply(kTwo31, kTwo31) == kSaturated);
static_assert(saturating_multiply(kTwo31 - 1, kTwo31) == kSaturated - kTwo31 + 1);
static_assert(saturating_multiply(kTwo31 - 1, -kTwo31) == -(kSaturated - kTwo31 + 1));
static_assert(saturating_multiply(kSaturated, 1) == kSaturated);
static_assert(saturating_multiply(8 * kTwo31, 8 * kTwo31) == kSaturated);
static_assert(saturating_multiply(-2 * kTwo31, 2 * kTwo31) == -kSaturated);

}  // namespace
}  // namespace vramplan
