// Layouts that experts published: the search finds them feasible where the planner says they fit, and its own first
// choice is at least as fast by the same model.
#include <doctest/doctest.h>

#include <cstdint>

#include "support/layout_rows.hpp"
#include "vramplan/layout.hpp"
#include "vramplan/placement.hpp"
#include "vramplan/planner.hpp"

using namespace vramplan;
using support::LayoutRow;

namespace {

bool searched(FrameworkId f) { return f == FrameworkId::megatron || f == FrameworkId::torchtitan; }

// What the search looks at: tensor parallelism within the link, no settings beyond it.
bool can_be_found(const LayoutRow& row) {
  const LayoutChoice& l = *row.request.layout;
  const NodeShape node = node_shape(row.gpu, *row.request.hardware->per_node, std::nullopt);
  return searched(row.request.training.framework) && l.tp <= std::max(node.domain, std::int64_t{1}) && !l.shard &&
         check_request(row.request).empty() && check_layout(row.model, l).empty();
}

}  // namespace

TEST_CASE("the search's own first choice is at least as fast as what experts chose, wherever that fits") {
  int compared = 0;
  int turn = 0;
  for (const LayoutRow& row : support::layout_rows()) {
    if (!can_be_found(row) || turn++ % 3 != 0) continue;
    CAPTURE(row.id);
    const TrainingChoice& t = row.request.training;
    const Gpu& gpu = *find_gpu(shipped_catalogue(), row.gpu.id);
    const Gpus gpus{&gpu, row.request.hardware->count, *row.request.hardware->per_node};
    const Fit fit = judge(evaluate(row.model, t, *row.request.layout, &gpu).device, usable_bytes(gpu));
    if (!fits(fit.verdict)) continue;
    const NodeShape node = node_shape(gpu, gpus.per_node, std::nullopt);
    const Speed published =
        SpeedModel(row.model, t, gpu, node)(*row.request.layout, {t.micro_batch, t.sequence_length});
    const SearchResult found = Placement(row.model, t).all(gpus, 1);
    REQUIRE_FALSE(found.best.empty());
    const FoundLayout& first = found.best.front();
    CHECK(first.verdict <= fit.verdict);
    if (first.verdict == fit.verdict) CHECK(first.tokens_per_second >= published.tokens_per_second.expected * 0.999);
    ++compared;
  }
  MESSAGE("compared with " << compared << " published layouts");
  CHECK(compared > 30);
}
