#include "vramplan/suggestion.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace vramplan {
namespace {

using NeedOfCount = std::function<std::optional<RunNeed>(std::int64_t)>;

std::optional<EvaluatedCount> evaluate(std::int64_t count, Bytes usable, const NeedOfCount& need) {
  const std::optional<RunNeed> found = need(count);
  if (!found) return std::nullopt;
  return EvaluatedCount{count, *found, judge(found->device, usable)};
}

bool is_good(const std::optional<EvaluatedCount>& evaluated, Verdict worst) {
  return evaluated && evaluated->fit.verdict <= worst && evaluated->fit.verdict != Verdict::unknown;
}

// The largest count over which the run can be spread at all, without those that cannot; nothing when there is none.
std::optional<EvaluatedCount> largest_possible(std::span<const std::int64_t>& counts, Bytes usable,
                                               const NeedOfCount& need) {
  for (; !counts.empty(); counts = counts.first(counts.size() - 1)) {
    if (auto evaluated = evaluate(counts.back(), usable, need)) return evaluated;
  }
  return std::nullopt;
}

std::vector<std::int64_t> counts_up_to(std::int64_t maximum) {
  std::vector<std::int64_t> counts;
  for (const std::int64_t count : kTriedCounts) {
    if (count <= maximum) counts.push_back(count);
  }
  return counts;
}

// A box of its own for one visitor is not a cluster: workstations lack the network that several boxes need.
bool can_be_combined(const System& system) { return group_of(system) != SystemGroup::workstation; }

std::optional<SystemOffer> offer_of(const System& system, std::int64_t count) {
  if (system.gpu_counts.empty()) return std::nullopt;
  const std::int64_t largest = std::max<std::int64_t>(system.gpu_counts.back(), 1);
  const std::int64_t needed = divide_up(count, largest);
  if (needed > 1 && !can_be_combined(system)) return std::nullopt;
  const auto enough = std::find_if(system.gpu_counts.begin(), system.gpu_counts.end(),
                                   [&](std::int64_t n) { return saturating_multiply(n, needed) >= count; });
  return SystemOffer{system.id, group_of(system), system.status, enough == system.gpu_counts.end() ? largest : *enough,
                     needed};
}

bool offers(const System& system, std::string_view gpu) {
  return std::find(system.gpus.begin(), system.gpus.end(), gpu) != system.gpus.end();
}

auto order_of(const SystemOffer& offer) {
  return std::tuple(offer.systems_needed, offer.status != Status::shipping, offer.group, offer.gpus_in_system,
                    std::string_view(offer.id));
}

auto order_of(const HardwareSuggestion& suggestion) {
  return std::tuple(suggestion.verdict, suggestion.count, suggestion.usable * suggestion.count,
                    std::string_view(suggestion.gpu));
}

template <class Rows>
void sort_rows(Rows& rows) {
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return order_of(a) < order_of(b); });
}

}  // namespace

std::optional<EvaluatedCount> smallest_fitting(std::span<const std::int64_t> counts, Bytes usable, Verdict worst,
                                               const NeedOfCount& need) {
  if (counts.empty()) return std::nullopt;
  if (auto first = evaluate(counts.front(), usable, need); is_good(first, worst)) return first;
  std::span<const std::int64_t> rest = counts.subspan(1);
  auto last = largest_possible(rest, usable, need);
  if (!is_good(last, worst)) return std::nullopt;
  for (const std::int64_t count : rest.first(rest.size() - 1)) {
    if (auto evaluated = evaluate(count, usable, need); is_good(evaluated, worst)) return evaluated;
  }
  return last;
}

std::vector<SystemOffer> offers_for(const Catalogue& catalogue, std::string_view gpu, std::int64_t count) {
  std::vector<SystemOffer> found;
  for (const System& system : catalogue.systems) {
    if (!offers(system, gpu)) continue;
    if (auto offer = offer_of(system, count)) found.push_back(*std::move(offer));
  }
  sort_rows(found);
  return found;
}

std::optional<std::string_view> refusal(const Gpu& gpu, const SuggestionQuery& query) {
  if (const auto reason = precision_refusal(gpu, query.precision)) return reason;
  if (query.optimizer_states) return state_format_refusal(gpu, *query.optimizer_states);
  return std::nullopt;
}

HardwareSuggestion suggestion_of(const Catalogue& catalogue, const Gpu& gpu, const EvaluatedCount& evaluated) {
  const auto& [count, need, fit] = evaluated;
  HardwareSuggestion suggestion;
  suggestion.gpu = gpu.id;
  suggestion.count = count;
  suggestion.verdict = fit.verdict;
  suggestion.device = need.device;
  suggestion.usable = fit.usable;
  suggestion.headroom = fit.headroom;
  suggestion.tokens_per_second = need.tokens_per_second;
  suggestion.status = gpu.status;
  suggestion.confidence = gpu.confidence;
  suggestion.systems = offers_for(catalogue, gpu.id, count);
  suggestion.group = suggestion.systems.empty() ? group_of(gpu) : suggestion.systems.front().group;
  return suggestion;
}

HardwareSuggestions suggest_hardware(const Catalogue& catalogue, const SuggestionQuery& query,
                                     const NeedPerGpu& need_per_gpu) {
  HardwareSuggestions result;
  const std::vector<std::int64_t> counts = counts_up_to(query.maximum_count);
  for (const Gpu& gpu : catalogue.gpus) {
    const Bytes usable = usable_bytes(gpu);
    const auto need = [&](std::int64_t count) { return need_per_gpu(gpu, count); };
    if (const auto reason = refusal(gpu, query)) {
      result.refused.push_back({gpu.id, *reason});
    } else if (usable.value == 0) {
      result.unknown.push_back(gpu.id);
    } else if (const auto found = smallest_fitting(counts, usable, query.worst, need)) {
      result.fitting.push_back(suggestion_of(catalogue, gpu, *found));
    } else {
      result.too_small.push_back(gpu.id);
    }
  }
  sort_rows(result.fitting);
  return result;
}

}  // namespace vramplan
