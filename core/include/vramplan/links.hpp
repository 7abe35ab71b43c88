// How long messages take between the ranks of a group.
#pragma once

#include <cstdint>

namespace vramplan {

struct Links {
  double scale_up = 0, peer = 0, network = 0;  // bytes/s of one GPU in one direction, achieved
  double hop_in = 0, hop_out = 0;              // seconds
  std::int64_t domain = 1, per_node = 1;
};

// Ranks of one kind of parallelism: `stride` ranks lie between two neighbours.
struct RankGroup {
  std::int64_t ranks = 1;
  std::int64_t stride = 1;
};

struct Reach {
  double domains = 1;    // that the group lies in
  double bandwidth = 0;  // bytes/s of each rank
  double latency = 0;    // seconds of one way round
};

[[nodiscard]] Reach reach(const Links& links, RankGroup group);
// An all-gather to, or a reduce-scatter of, `bytes` on every rank. An all-reduce is one of each.
[[nodiscard]] double gather_seconds(const Links& links, RankGroup group, double bytes);
// From one rank to the one `stride` further.
[[nodiscard]] double point_seconds(const Links& links, std::int64_t stride, double bytes);

}  // namespace vramplan
