// Nearness of runs: a table of points, so that anybody can check why a run is shown.
#include "vramplan/evidence.hpp"

#include <algorithm>
#include <utility>

namespace vramplan {
namespace {

// What a difference costs. The order is that in which settings decide what a run holds.
constexpr std::int64_t kFramework = 32;
constexpr std::int64_t kObjective = 16;
constexpr std::int64_t kMethod = 16;
constexpr std::int64_t kBaseWeights = 4;
constexpr std::int64_t kPrecision = 4;
constexpr std::int64_t kRecompute = 4;
constexpr std::int64_t kCrossEntropy = 2;
constexpr std::int64_t kOptimizer = 2;
constexpr std::int64_t kKbitUpcast = 2;
constexpr std::int64_t kAttention = 1;
constexpr std::int64_t kKernels = 1;
constexpr std::int64_t kLength = 1;    // the same tokens in sequences of another length
constexpr std::int64_t kModel = 2;     // another number of parameters, so another shape
constexpr std::int64_t kDoubling = 2;  // of parameters, of tokens in a pass, of GPUs

// Whole doublings from the smaller of two sizes to the larger.
std::int64_t doublings(std::int64_t a, std::int64_t b) {
  auto [small, large] = std::minmax({std::max<std::int64_t>(a, 1), std::max<std::int64_t>(b, 1)});
  std::int64_t count = 0;
  for (; small <= large / 2; small *= 2) ++count;
  return count;
}

// Pretraining and supervised fine-tuning hold the same; the other objectives run more than one pass or model.
Objective kind_of(Objective objective) { return objective == Objective::pretrain ? Objective::sft : objective; }

std::int64_t tokens_in_a_pass(const TrainingChoice& t) { return saturating_multiply(t.sequence_length, t.micro_batch); }

std::int64_t gpus(const PlanRequest& request) { return request.hardware ? request.hardware->count : 1; }

bool same_optimizer(const OptimizerChoice& a, const OptimizerChoice& b) {
  return a.name == b.name && a.states == b.states && a.paged == b.paged;
}

std::int64_t training_distance(const TrainingChoice& a, const TrainingChoice& b) {
  return (a.framework != b.framework ? kFramework : 0) +
         (kind_of(a.objective) != kind_of(b.objective) ? kObjective : 0) + (a.method != b.method ? kMethod : 0) +
         (a.base_weights != b.base_weights ? kBaseWeights : 0) + (a.precision != b.precision ? kPrecision : 0) +
         (a.recompute != b.recompute ? kRecompute : 0) + (a.cross_entropy != b.cross_entropy ? kCrossEntropy : 0) +
         (a.attention != b.attention ? kAttention : 0) + (a.kernels != b.kernels ? kKernels : 0) +
         (same_optimizer(a.optimizer, b.optimizer) ? 0 : kOptimizer) +
         (a.kbit_upcast != b.kbit_upcast ? kKbitUpcast : 0) + (a.sequence_length != b.sequence_length ? kLength : 0);
}

// Repeated measurements tell a visitor nothing new; the figures of the group count them all.
bool has_twin(const std::vector<MeasuredRun>& runs, const MeasuredRun& run) {
  return std::any_of(runs.begin(), runs.end(), [&](const MeasuredRun& other) {
    return other.metric == run.metric && distance(run.request, run.parameters, other) == 0;
  });
}

}  // namespace

const AccuracyGroup* accuracy_group(const Evidence& evidence, const TrainingChoice& training) {
  const AccuracyGroup* best = nullptr;
  for (const AccuracyGroup& group : evidence.groups) {
    if (group.framework != training.framework || group.method != training.method) continue;
    if (best == nullptr || group.runs > best->runs) best = &group;
  }
  return best;
}

std::int64_t distance(const PlanRequest& request, Params parameters, const MeasuredRun& run) {
  const std::int64_t doubled = doublings(parameters.value, run.parameters.value) +
                               doublings(tokens_in_a_pass(request.training), tokens_in_a_pass(run.request.training)) +
                               doublings(gpus(request), gpus(run.request));
  return training_distance(request.training, run.request.training) + (parameters != run.parameters ? kModel : 0) +
         kDoubling * doubled;
}

std::vector<MeasuredRun> nearest_runs(const Evidence& evidence, const PlanRequest& request, Params parameters,
                                      std::size_t count) {
  std::vector<std::pair<std::int64_t, std::size_t>> order;
  for (std::size_t i = 0; i < evidence.runs.size(); ++i) {
    order.emplace_back(distance(request, parameters, evidence.runs[i]), i);
  }
  std::sort(order.begin(), order.end());
  std::vector<MeasuredRun> nearest;
  for (std::size_t i = 0; i < order.size() && nearest.size() < count; ++i) {
    const MeasuredRun& run = evidence.runs[order[i].second];
    if (!has_twin(nearest, run)) nearest.push_back(run);
  }
  return nearest;
}

std::int64_t difference_permille(const MeasuredRun& run) {
  if (run.measured.value <= 0) return 0;
  const std::int64_t scaled = saturating_multiply(run.planned.value - run.measured.value, 1000);
  const std::int64_t half = run.measured.value / 2;
  return (scaled + (scaled < 0 ? -half : half)) / run.measured.value;
}

}  // namespace vramplan
