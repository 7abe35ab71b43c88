// The fastest parallel layouts of a number of GPUs in which a run fits: all layouts that suit the model and the
// framework, without walking those that cannot be among the best.
//
// Design section 7. Every candidate that is kept was evaluated whole; what is left out is slower than what is kept, or
// needs more than something that did not fit.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "vramplan/catalogue.hpp"
#include "vramplan/estimate.hpp"
#include "vramplan/fit.hpp"
#include "vramplan/memory.hpp"
#include "vramplan/request.hpp"

namespace vramplan {

struct SearchSpace {
  std::int64_t gpus = 1;
  std::int64_t domain = 8;     // GPUs that a scale-up link joins: tensor parallelism stays within
  bool micro_batches = false;  // other micro-batches too: powers of two
  bool recomputation = false;  // and other recomputation
  std::size_t kept = 5;        // layouts asked for
  bool cuts = true;            // false: every layout is evaluated (tests compare)
};

struct FoundLayout {
  LayoutChoice layout;
  std::int64_t micro_batch = 1;
  Recompute recompute = Recompute::full;
  Estimate device;
  Verdict verdict = Verdict::unknown;
  double tokens_per_second = 0;  // of all GPUs; 0: no estimate
};

struct SearchResult {
  // Best verdict first, then fastest, then simplest; where none fits, the one that needs the least. Empty: no layout
  // takes the global batch.
  std::vector<FoundLayout> best;
  std::int64_t layouts = 0;    // with their micro-batches and recomputation
  std::int64_t evaluated = 0;  // of them, memory; the others were cut
};

// Tokens per second of the whole run; absent or 0 where there is no estimate.
using TokensPerSecond = std::function<double(const LayoutChoice&, std::int64_t micro_batch, Recompute)>;

// `training` with its defaults resolved. `usable`: of `gpu`, 0 where nobody published it: then no layout has a verdict,
// and the fastest come first.
[[nodiscard]] SearchResult search_layouts(const ModelArchitecture& model, const TrainingChoice& training,
                                          const Gpu& gpu, const SearchSpace& space, const TokensPerSecond& speed);

// How many kinds of parallelism a layout has: of equal ones the simplest is first.
[[nodiscard]] std::int64_t kinds_of(const LayoutChoice& layout);

}  // namespace vramplan
