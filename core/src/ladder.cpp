#include "vramplan/ladder.hpp"

#include <algorithm>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

namespace vramplan {
namespace {

using Machines = std::vector<HardwareSuggestion>;

auto size_of(const HardwareSuggestion& m) {
  return std::tuple(m.group, m.usable * m.count, m.count, std::string_view(m.gpu));
}
bool is_smaller(const HardwareSuggestion& a, const HardwareSuggestion& b) { return size_of(a) < size_of(b); }
bool is_slower(const HardwareSuggestion& a, const HardwareSuggestion& b) {
  if (a.tokens_per_second != b.tokens_per_second) return a.tokens_per_second < b.tokens_per_second;
  return is_smaller(b, a);
}

// Numbers of a card that one machine for sale holds.
std::set<std::pair<std::string, std::int64_t>> fittings(const Catalogue& catalogue) {
  std::set<std::pair<std::string, std::int64_t>> all;
  for (const System& system : catalogue.systems) {
    if (system.status != Status::shipping) continue;
    for (const std::string& gpu : system.gpus) {
      for (const std::int64_t count : system.gpu_counts) all.emplace(gpu, count);
    }
  }
  return all;
}

Machines single_machines(const Catalogue& catalogue, const SuggestionQuery& query, const NeedPerGpu& need) {
  Machines machines;
  for (const auto& [id, count] : fittings(catalogue)) {
    const Gpu* gpu = find_gpu(catalogue, id);
    if (gpu == nullptr || gpu->status != Status::shipping || refusal(*gpu, query) || usable_bytes(*gpu).value == 0) {
      continue;
    }
    const std::optional<RunNeed> found = need(*gpu, count);
    if (!found) continue;
    HardwareSuggestion machine =
        suggestion_of(catalogue, *gpu, {count, *found, judge(found->device, usable_bytes(*gpu))});
    if (machine.verdict <= query.worst) machines.push_back(std::move(machine));
  }
  return machines;
}

// Without those that fit but leave no headroom, where others do.
void want_headroom(Machines& machines) {
  const auto is_comfortable = [](const HardwareSuggestion& m) { return m.verdict == Verdict::comfortable; };
  if (std::none_of(machines.begin(), machines.end(), is_comfortable)) return;
  std::erase_if(machines, [&](const HardwareSuggestion& m) { return !is_comfortable(m); });
}

bool is_same(const HardwareSuggestion& a, const HardwareSuggestion& b) { return a.gpu == b.gpu && a.count == b.count; }

}  // namespace

std::vector<LadderStep> ladder_of(const Catalogue& catalogue, const SuggestionQuery& query,
                                  const HardwareSuggestions& suggestions, const NeedPerGpu& need) {
  Machines machines = single_machines(catalogue, query, need);
  if (machines.empty()) machines = suggestions.fitting;
  if (machines.empty()) return {};
  want_headroom(machines);
  const HardwareSuggestion smallest = *std::min_element(machines.begin(), machines.end(), is_smaller);
  std::vector<LadderStep> ladder{{Rung::smallest, smallest, smallest.tokens_per_second > 0 ? 1.0 : 0.0}};
  if (smallest.tokens_per_second <= 0) return ladder;
  const auto add = [&](Rung rung, const HardwareSuggestion& machine) {
    ladder.push_back({rung, machine, machine.tokens_per_second / smallest.tokens_per_second});
  };
  const HardwareSuggestion fastest = *std::max_element(machines.begin(), machines.end(), is_slower);
  std::erase_if(machines, [&](const HardwareSuggestion& m) {
    return m.tokens_per_second < kStepUp * smallest.tokens_per_second;
  });
  if (machines.empty()) return ladder;
  const HardwareSuggestion next = *std::min_element(machines.begin(), machines.end(), is_smaller);
  if (!is_same(next, fastest)) add(Rung::next_step, next);
  add(Rung::fastest, fastest);
  return ladder;
}

}  // namespace vramplan
