// Room to grow: the largest model of the catalogue that each method trains on these GPUs with the same settings, and
// what the next size needs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "vramplan/catalogue.hpp"
#include "vramplan/estimate.hpp"
#include "vramplan/fit.hpp"
#include "vramplan/request.hpp"
#include "vramplan/suggestion.hpp"
#include "vramplan/units.hpp"

namespace vramplan {

// The need of a model over `gpus` of the request's cards; nothing when it cannot be spread over that many.
// `training` with its defaults resolved.
using NeedOfModel =
    std::function<std::optional<RunNeed>(const ModelCard& model, const TrainingChoice& training, std::int64_t gpus)>;

struct GrowthModel {
  std::string id;
  Params parameters;
  std::int64_t gpus = 0;  // the request's own number, or the smallest on which it fits
  Estimate device;
  Verdict verdict = Verdict::unknown;
};

struct Growth {
  Method method = Method::full;
  std::optional<GrowthModel> largest;  // that fits
  std::optional<GrowthModel> next;     // a quarter larger or more, on as many of these GPUs as it takes
};

// One row for each of full fine-tuning, LoRA and QLoRA that the framework of the request has. `usable`: of one GPU,
// above 0. Models are tried in the order of their size: memory grows with it but for the shape of models, so that the
// neighbours of the bound are tried too, and what is returned was evaluated and fits.
[[nodiscard]] std::vector<Growth> suggest_growth(const PlanRequest& request, const Catalogue& catalogue, Bytes usable,
                                                 const NeedOfModel& need);

}  // namespace vramplan
