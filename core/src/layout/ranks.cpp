#include <algorithm>
#include <iterator>
#include <utility>

#include "vramplan/layout.hpp"

namespace vramplan {
namespace {

PlacedRank place(const LayoutChoice& layout, std::int64_t rank) {
  PlacedRank p{.rank = rank};
  const std::int64_t stage_ranks = layout.tp * data_ranks(layout);
  const std::int64_t within = rank % stage_ranks;
  p.tp = within % layout.tp;
  p.cp = within / layout.tp % layout.cp;
  p.dp = within / (layout.tp * layout.cp);
  p.pp = rank / stage_ranks;
  p.ep = within / expert_tensor_ranks(layout) % layout.ep;
  return p;
}

std::vector<PlacedRank> ranks_of_node(const LayoutChoice& layout, std::int64_t first, std::int64_t end) {
  std::vector<PlacedRank> ranks;
  for (std::int64_t rank = first; rank < end; ++rank) ranks.push_back(place(layout, rank));
  return ranks;
}

bool same_part(const PlacedRank& a, const PlacedRank& b) { return a.pp == b.pp && a.tp == b.tp; }

bool same_parts(const std::vector<PlacedRank>& a, const std::vector<PlacedRank>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_part);
}

}  // namespace

RankMap map_ranks(const LayoutChoice& layout, std::int64_t per_node) {
  const std::int64_t all = ranks_of(layout);
  RankMap map{.nodes = divide_up(all, per_node), .per_node = std::min(per_node, all), .kinds = {}};
  for (std::int64_t node = 0; node < map.nodes; ++node) {
    auto ranks = ranks_of_node(layout, node * per_node, std::min(all, (node + 1) * per_node));
    const auto known = std::find_if(map.kinds.begin(), map.kinds.end(),
                                    [&](const NodeKind& kind) { return same_parts(kind.ranks, ranks); });
    if (known != map.kinds.end()) {
      ++known->nodes;
    } else {
      map.kinds.push_back({1, std::move(ranks)});
    }
  }
  return map;
}

}  // namespace vramplan
