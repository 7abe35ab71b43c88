// Rings as NCCL builds them (nccl-tests, doc/PERFORMANCE.md): every rank hands (n-1)/n of the bytes on; a ring leaves a
// node through as many network cards as the group has members there.
#include "vramplan/links.hpp"

#include <algorithm>

namespace vramplan {
namespace {

// Messages of a few megabytes do not fill a link. From all-reduce tables of 8 A100, H100 and B200
// (azure-benchmarking-guide, stas00-network): 16 MB take 60 to 140 microseconds longer than their bytes at the
// bandwidth of large messages, 64 MB 80 to 190, 1 MB 30 to 50; an all-reduce is two passes.
constexpr double kRampSeconds = 60e-6;
constexpr double kRampBytes = 8e6;

double real(std::int64_t n) { return static_cast<double>(n); }

// Cards without a link between them share PCIe; the network starts where the node ends.
bool leaves_node(const Links& links, RankGroup group) { return group.stride * group.ranks > links.per_node; }

}  // namespace

Reach reach(const Links& links, RankGroup group) {
  const std::int64_t members = std::min(group.ranks, std::max<std::int64_t>(1, links.domain / group.stride));
  Reach r;
  r.domains = real(group.ranks) / real(members);
  r.latency = links.hop_in * real(members - 1) + links.hop_out * (r.domains - 1);
  r.bandwidth = links.scale_up;
  if (r.domains > 1) {
    r.bandwidth = std::min(r.bandwidth, leaves_node(links, group) ? real(members) * links.network : links.peer);
  }
  return r;
}

double gather_seconds(const Links& links, RankGroup group, double bytes) {
  if (group.ranks <= 1 || bytes <= 0) return 0;
  const Reach r = reach(links, group);
  const double ranks = real(group.ranks);
  return bytes * (ranks - 1) / (ranks * r.bandwidth) + r.latency + kRampSeconds * bytes / (bytes + kRampBytes);
}

double point_seconds(const Links& links, std::int64_t stride, double bytes) {
  const bool leaves_domain = stride >= links.domain;
  const double bandwidth = !leaves_domain ? links.scale_up : stride < links.per_node ? links.peer : links.network;
  return bytes / bandwidth + (leaves_domain ? links.hop_out : links.hop_in);
}

}  // namespace vramplan
