#include "vramplan/ladder.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "catalogue.hpp"
#include "vramplan/device.hpp"

using namespace vramplan;

namespace {

// A run of so many GB over the GPUs, 100 tokens a second for each TFLOPS of all of them.
NeedPerGpu run_of(std::int64_t gigabytes) {
  return [gigabytes](const Gpu& gpu, std::int64_t count) -> std::optional<RunNeed> {
    const Bytes share(gigabytes * 1'000'000'000 / count);
    return RunNeed{{share, share, share}, 100 * gpu.bf16_tflops * static_cast<double>(count)};
  };
}

std::vector<LadderStep> ladder(const NeedPerGpu& need) {
  const Catalogue& catalogue = shipped_catalogue();
  return ladder_of(catalogue, {}, suggest_hardware(catalogue, {}, need), need);
}

bool is_in_one_machine(const HardwareSuggestion& machine) {
  return !machine.systems.empty() && machine.systems.front().systems_needed == 1;
}

}  // namespace

TEST_CASE("the ladder climbs from the smallest machine to the fastest, and says what each step buys") {
  const std::vector<LadderStep> steps = ladder(run_of(20));
  REQUIRE(steps.size() == 3);
  CHECK(steps[0].rung == Rung::smallest);
  CHECK(steps[0].machine.group == SystemGroup::workstation);
  CHECK(steps[0].times_faster == 1.0);
  CHECK(steps[1].times_faster >= kStepUp);
  CHECK(steps[2].times_faster >= steps[1].times_faster);
  CHECK(steps[2].machine.group == SystemGroup::rack);
  for (const LadderStep& step : steps) {
    CAPTURE(step.machine.gpu);
    CHECK(step.machine.verdict == Verdict::comfortable);
    CHECK(is_in_one_machine(step.machine));
    CHECK(step.times_faster == step.machine.tokens_per_second / steps[0].machine.tokens_per_second);
  }
}

TEST_CASE("nothing that is smaller by kind, memory and number is comfortable than the smallest machine") {
  const NeedPerGpu need = run_of(150);
  const HardwareSuggestion smallest = ladder(need).front().machine;
  for (const System& system : shipped_catalogue().systems) {
    if (system.status != Status::shipping || group_of(system) >= smallest.group) continue;
    for (const std::string& id : system.gpus) {
      const Gpu* gpu = find_gpu(shipped_catalogue(), id);
      if (gpu == nullptr || gpu->status != Status::shipping || usable_bytes(*gpu).value == 0 || refusal(*gpu, {}))
        continue;
      for (const std::int64_t count : system.gpu_counts) {
        CHECK(judge(need(*gpu, count)->device, usable_bytes(*gpu)).verdict != Verdict::comfortable);
      }
    }
  }
}

TEST_CASE("a run that no single machine holds has its ladder of several; without speeds there is one rung") {
  const std::vector<LadderStep> steps = ladder(run_of(100'000));
  REQUIRE_FALSE(steps.empty());
  CHECK_FALSE(is_in_one_machine(steps[0].machine));
  const NeedPerGpu slow = [](const Gpu& gpu, std::int64_t count) -> std::optional<RunNeed> {
    RunNeed need = *run_of(20)(gpu, count);
    need.tokens_per_second = 0;
    return need;
  };
  CHECK(ladder(slow).size() == 1);
  CHECK(ladder([](const Gpu&, std::int64_t) { return std::optional<RunNeed>(); }).empty());
}
