#include "vramplan/placement.hpp"

#include <algorithm>

namespace vramplan {
namespace {

// Tensor parallelism stays within what a scale-up link joins; cards without one share a machine's PCIe.
std::int64_t domain_of(const NodeShape& node) { return node.domain > 1 ? node.domain : node.per_node; }

}  // namespace

Gpus usual_nodes(const Gpu& gpu, std::int64_t count) {
  const std::int64_t most = gpu.max_per_server > 0 ? std::min(gpu.max_per_server, kUsualNode) : kUsualNode;
  return {&gpu, count, std::min(count, most)};
}

Placement::Placement(const ModelArchitecture& model, const TrainingChoice& training)
    : model_(&model), training_(training), search_(model, training) {}

const SpeedModel* Placement::speed_on(const Gpus& gpus) {
  const std::pair of{gpus.gpu, gpus.per_node};
  if (of_speed_ != of) {
    of_speed_ = of;
    speed_.reset();
    if (!speed_refusal(*gpus.gpu, training_)) {
      speed_.emplace(*model_, training_, *gpus.gpu, node_shape(*gpus.gpu, gpus.per_node, std::nullopt));
    }
  }
  return speed_ ? &*speed_ : nullptr;
}

SearchResult Placement::search(const Gpus& gpus, SearchSpace space) {
  space.gpus = gpus.count;
  space.domain = domain_of(node_shape(*gpus.gpu, gpus.per_node, std::nullopt));
  const SpeedModel* model = speed_on(gpus);
  if (model == nullptr) return search_(*gpus.gpu, space, {});
  return search_(*gpus.gpu, space, [&](const LayoutChoice& layout, std::int64_t micro_batch, Recompute recompute) {
    return (*model)(layout, {micro_batch, training_.sequence_length}, recompute).tokens_per_second.expected;
  });
}

std::optional<FoundLayout> Placement::best(const Gpus& gpus, bool wants_least) {
  SearchSpace space;
  space.kept = 1;
  space.least = wants_least;
  SearchResult found = search(gpus, space);
  if (found.best.empty()) return std::nullopt;
  return std::move(found.best.front());
}

SearchResult Placement::all(const Gpus& gpus, std::size_t kept) {
  SearchSpace space;
  space.micro_batches = space.recomputation = true;
  space.kept = kept;
  return search(gpus, space);
}

}  // namespace vramplan
