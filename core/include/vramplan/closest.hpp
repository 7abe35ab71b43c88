// The known name that a misspelled one probably meant.
#pragma once

#include <span>
#include <string_view>

namespace vramplan {

// Least edit distance (insert, delete, replace, swap of neighbours; letter case ignored), ties by order. "" when
// nothing is near: more than a third of the shorter name would have to change. Costs |name| x the sum of the
// candidates' lengths, and candidates whose length alone rules them out cost nothing, so that a hostile name of any
// length is cheap.
[[nodiscard]] std::string_view closest(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace vramplan
