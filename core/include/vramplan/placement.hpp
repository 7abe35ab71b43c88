// Where a run goes: the layout that suits it best on given GPUs, with its memory and speed.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "vramplan/catalogue.hpp"
#include "vramplan/search.hpp"
#include "vramplan/speed.hpp"

namespace vramplan {

// So many of a card, so many of them in one machine.
struct Gpus {
  const Gpu* gpu = nullptr;
  std::int64_t count = 1;
  std::int64_t per_node = 1;
};
// NVIDIA's HGX boards and most servers for cards.
inline constexpr std::int64_t kUsualNode = 8;
// In machines as they are usual: eight to a node, or as many as the card allows.
[[nodiscard]] Gpus usual_nodes(const Gpu& gpu, std::int64_t count);

// One run on one set of GPUs after another.
class Placement {
 public:
  // `training` with its defaults resolved. The model must outlive the placement.
  Placement(const ModelArchitecture& model, const TrainingChoice& training);

  // The best layout for the run's own micro-batch and recomputation: best verdict first, then fastest, then simplest.
  // Nothing when no layout takes the global batch. `wants_least`: where none fits, the one that needs the least;
  // without it then nothing either.
  [[nodiscard]] std::optional<FoundLayout> best(const Gpus& gpus, bool wants_least);
  // The best of all, with other micro-batches and recomputation too.
  [[nodiscard]] SearchResult all(const Gpus& gpus, std::size_t kept);

 private:
  [[nodiscard]] const SpeedModel* speed_on(const Gpus& gpus);
  [[nodiscard]] SearchResult search(const Gpus& gpus, SearchSpace space);

  const ModelArchitecture* model_;
  TrainingChoice training_;
  LayoutSearch search_;
  // Of the card asked for last, and how many share a machine.
  std::pair<const Gpu*, std::int64_t> of_speed_{nullptr, 0};
  std::optional<SpeedModel> speed_;
};

}  // namespace vramplan
