// Three machines for a run, from workstation to rack: the smallest on which it fits with headroom, the next step up,
// and the fastest; and what each buys.
#pragma once

#include <cstdint>
#include <vector>

#include "vramplan/enum_names.hpp"
#include "vramplan/suggestion.hpp"

namespace vramplan {

enum class Rung : std::uint8_t { smallest, next_step, fastest };
template <>
struct EnumNames<Rung> {
  static constexpr Names<3> values = {"smallest", "next_step", "fastest"};
};

struct LadderStep {
  Rung rung = Rung::smallest;
  HardwareSuggestion machine;
  double times_faster = 0;  // than the smallest; 0: no estimate
};

// A step up is worth its name from half as fast again.
inline constexpr double kStepUp = 1.5;

// Single machines that are for sale, fully or partly fitted; where the run fits in none, the smallest numbers of each
// card (`suggestions`). Fewer than three where the next step or the fastest is none of its own. The smallest is by kind
// of machine, then memory in all, then GPUs; so is the next step up, of those kStepUp times as fast.
[[nodiscard]] std::vector<LadderStep> ladder_of(const Catalogue& catalogue, const SuggestionQuery& query,
                                                const HardwareSuggestions& suggestions, const NeedPerGpu& need);

}  // namespace vramplan
