#include "vramplan/growth.hpp"

#include <algorithm>

#include "vramplan/parameters.hpp"
#include "vramplan/suggestion.hpp"

namespace vramplan {
namespace {

struct Sized {
  const ModelCard* card = nullptr;
  Params parameters;
};

// Above the bound, models of a leaner shape are sought up to half as large again: what a shape decides, activations and
// logits, is the smaller part of what a model near the bound needs.
constexpr std::int64_t kReachParts = 2;
// The next size up is larger by a quarter or more: less is another model of the same size.
constexpr std::int64_t kStepParts = 4;

std::vector<Sized> by_size(const Catalogue& catalogue) {
  std::vector<Sized> out;
  for (const ModelCard& card : catalogue.models) {
    out.push_back({&card, total_parameters(parameter_groups(card.architecture))});
  }
  std::sort(out.begin(), out.end(), [](const Sized& a, const Sized& b) {
    return a.parameters != b.parameters ? a.parameters < b.parameters : a.card->id < b.card->id;
  });
  return out;
}

// The same settings with another method; what follows from a method is left to the defaults.
TrainingChoice with_method(const PlanRequest& request, Method method) {
  PlanRequest changed = request;
  TrainingChoice& t = changed.training;
  if (t.method != method) {
    t.method = method;
    t.base_weights.reset();
    t.optimizer = {};
    t.trainable_layers.reset();
    if (has_adapters(method)) t.mtp_layers = 0;
    t.lora = {};
    t.lora.rank = request.training.lora.rank;
    t.kbit_upcast.reset();
    t.reference.reset();
  }
  return resolve_defaults(std::move(changed)).training;
}

bool can_train(const PlanRequest& request, const TrainingChoice& training) {
  PlanRequest changed = request;
  changed.training = training;
  return check_request(changed).empty();
}

class Trial {
 public:
  Trial(const TrainingChoice& training, std::int64_t gpus, Bytes usable, const NeedOfModel& need)
      : training_(&training), gpus_(gpus), usable_(usable), need_(&need) {}

  [[nodiscard]] std::optional<GrowthModel> operator()(const Sized& model) const {
    const std::optional<RunNeed> need = (*need_)(*model.card, *training_, gpus_);
    if (!need) return std::nullopt;
    const Verdict verdict = judge(need->device, usable_).verdict;
    if (!fits(verdict)) return std::nullopt;
    return GrowthModel{model.card->id, model.parameters, gpus_, need->device, verdict};
  }
  // On the smallest number of GPUs on which it fits.
  [[nodiscard]] std::optional<GrowthModel> on_more(const Sized& model) const {
    const auto found = smallest_fitting(kTriedCounts, usable_, Verdict::tight,
                                        [&](std::int64_t gpus) { return (*need_)(*model.card, *training_, gpus); });
    if (!found) return std::nullopt;
    return GrowthModel{model.card->id, model.parameters, found->count, found->need.device, found->fit.verdict};
  }

 private:
  const TrainingChoice* training_;
  std::int64_t gpus_;
  Bytes usable_;
  const NeedOfModel* need_;
};

// Halves the list, then looks at what is just above the bound.
std::optional<GrowthModel> largest_fitting(const std::vector<Sized>& models, const Trial& trial) {
  std::optional<GrowthModel> best;
  auto low = models.begin();
  auto high = models.end();
  while (low != high) {
    const auto middle = low + (high - low) / 2;
    if (std::optional<GrowthModel> found = trial(*middle)) {
      best = std::move(found);
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == models.end()) return best;
  const Params reach = low->parameters + Params(low->parameters.value / kReachParts);
  for (auto model = low; model != models.end() && model->parameters <= reach; ++model) {
    if (std::optional<GrowthModel> found = trial(*model)) best = std::move(found);
  }
  return best;
}

std::optional<GrowthModel> next_size(const std::vector<Sized>& models, const GrowthModel& largest, const Trial& trial) {
  const Params wanted = largest.parameters + Params(largest.parameters.value / kStepParts);
  const auto next = std::find_if(models.begin(), models.end(), [&](const Sized& m) { return m.parameters >= wanted; });
  return next == models.end() ? std::nullopt : trial.on_more(*next);
}

}  // namespace

std::vector<Growth> suggest_growth(const PlanRequest& request, const Catalogue& catalogue, Bytes usable,
                                   const NeedOfModel& need) {
  const std::vector<Sized> models = by_size(catalogue);
  std::vector<Growth> out;
  for (const Method method : {Method::full, Method::lora, Method::qlora}) {
    const TrainingChoice training = with_method(request, method);
    if (!can_train(request, training)) continue;
    const Trial trial(training, request.hardware ? request.hardware->count : 1, usable, need);
    Growth growth{method, largest_fitting(models, trial), std::nullopt};
    if (growth.largest) growth.next = next_size(models, *growth.largest, trial);
    out.push_back(std::move(growth));
  }
  return out;
}

}  // namespace vramplan
