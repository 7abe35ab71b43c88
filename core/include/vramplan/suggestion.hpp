// On which hardware a run fits: the smallest number of each card of the catalogue, and the systems that hold it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vramplan/catalogue.hpp"
#include "vramplan/device.hpp"
#include "vramplan/estimate.hpp"
#include "vramplan/fit.hpp"
#include "vramplan/request.hpp"
#include "vramplan/units.hpp"

namespace vramplan {

// What a run needs of each GPU (what nvidia-smi would show), and how fast it is there; 0: no estimate.
struct RunNeed {
  Estimate device;
  double tokens_per_second = 0;
};

// When the run is spread over `count` of these GPUs; nothing when it cannot be spread over that many (more ranks than
// sequences in the global batch, for example), or does not fit.
using NeedPerGpu = std::function<std::optional<RunNeed>(const Gpu& gpu, std::int64_t count)>;

// Numbers of GPUs that systems, or whole numbers of systems, have.
inline constexpr std::int64_t kTriedCounts[] = {1, 2, 3, 4, 6, 8, 10, 16, 24, 32, 48, 64, 72, 96, 128, 256, 512, 1024};

struct SuggestionQuery {
  Precision precision = Precision::bf16_amp;
  std::optional<StateFormat> optimizer_states;
  std::int64_t maximum_count = 1024;
  Verdict worst = Verdict::tight;  // the worst verdict that still counts as fitting
};

// `count` GPUs, out of `systems_needed` systems with `gpus_in_system` GPUs each.
struct SystemOffer {
  std::string id;
  SystemGroup group = SystemGroup::workstation;
  Status status = Status::shipping;
  std::int64_t gpus_in_system = 0;
  std::int64_t systems_needed = 0;
};

struct HardwareSuggestion {
  std::string gpu;
  std::int64_t count = 0;
  SystemGroup group = SystemGroup::workstation;  // of the first offer, or of the card when no system offers it
  Verdict verdict = Verdict::unknown;
  Estimate device;  // per GPU
  Bytes usable;
  Bytes headroom;                // Fit::headroom
  double tokens_per_second = 0;  // of all GPUs; 0: no estimate
  Status status = Status::shipping;
  Confidence confidence = Confidence::high;
  std::vector<SystemOffer> systems;
};

struct RefusedGpu {
  std::string gpu;
  std::string_view reason;  // precision_refusal, state_format_refusal
};

struct HardwareSuggestions {
  // Best verdict first, then fewest GPUs, least memory in all, id.
  std::vector<HardwareSuggestion> fitting;
  // The rest of the catalogue, in its order: no tried count fits; a format is lacking; usable memory is not published.
  std::vector<std::string> too_small;
  std::vector<RefusedGpu> refused;
  std::vector<std::string> unknown;
};

// Why the card cannot run it: precision_refusal, state_format_refusal.
[[nodiscard]] std::optional<std::string_view> refusal(const Gpu& gpu, const SuggestionQuery& query);

[[nodiscard]] HardwareSuggestions suggest_hardware(const Catalogue& catalogue, const SuggestionQuery& query,
                                                   const NeedPerGpu& need_per_gpu);

// One number of GPUs that was evaluated.
struct EvaluatedCount {
  std::int64_t count = 0;
  RunNeed need;
  Fit fit;
};

// The smallest of `counts` (ascending) whose verdict is `worst` or better. What it returns was evaluated and fits,
// whatever the need looks like. It is the smallest as long as more ranks never need more, the first count aside: with
// one rank there is no communication. Then a run that does not fit on the largest count fits on none before it, and the
// counts between are not tried.
[[nodiscard]] std::optional<EvaluatedCount> smallest_fitting(
    std::span<const std::int64_t> counts, Bytes usable, Verdict worst,
    const std::function<std::optional<RunNeed>(std::int64_t)>& need);

// That number of GPUs as a suggestion.
[[nodiscard]] HardwareSuggestion suggestion_of(const Catalogue& catalogue, const Gpu& gpu,
                                               const EvaluatedCount& evaluated);

// Systems that hold `count` of this GPU. One box where one is large enough, else the fewest boxes of a kind;
// workstations are not combined. Fewest systems first, then those for sale, smallest group, fewest GPUs, id.
[[nodiscard]] std::vector<SystemOffer> offers_for(const Catalogue& catalogue, std::string_view gpu, std::int64_t count);

}  // namespace vramplan
