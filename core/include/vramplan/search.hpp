// The fastest parallel layouts of a number of GPUs in which a run fits: all layouts that suit the model and the
// framework, without walking those that cannot be among the best.
//
// Design section 7. Every candidate that is kept was evaluated whole; what is left out is slower than what is kept, or
// needs more than something that did not fit.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "vramplan/catalogue.hpp"
#include "vramplan/estimate.hpp"
#include "vramplan/fit.hpp"
#include "vramplan/memory.hpp"
#include "vramplan/request.hpp"

namespace vramplan {

struct SearchSpace {
  std::int64_t gpus = 1;
  std::int64_t domain = 8;     // GPUs that tensor parallelism may join
  bool micro_batches = false;  // other micro-batches too: powers of two
  bool recomputation = false;  // and other recomputation
  std::size_t kept = 5;        // layouts asked for
  bool least = true;           // where none fits, the one that needs the least is asked for
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

// What a rank holds at the least when the optimizer runs: weights, gradients and states of its mean share, of which no
// layout makes less.
class LeastStates {
 public:
  explicit LeastStates(const Step& alone);  // on one rank
  [[nodiscard]] Bytes at(const TrainingChoice& training, const LayoutChoice& layout) const;

 private:
  // Bytes of the whole model. Doubles: a bound need not be exact, and is taken a thousandth low.
  double weights_ = 0, gradients_ = 0, states_ = 0;
  double experts_ = 0;  // their share of the parameters
};

// Device memory of a run, for whatever layouts, batches and recomputation; each is worked out once. What is expected to
// need more than `enough` may need more still: not all stages of its pipeline are looked at.
class KnownNeeds {
 public:
  // `training` with its defaults resolved. The model must outlive it.
  KnownNeeds(const ModelArchitecture& model, const TrainingChoice& training);
  [[nodiscard]] Estimate operator()(const LayoutChoice& layout, std::int64_t micro_batch, Recompute recompute,
                                    const Gpu& gpu, Bytes enough);
  // One rank that holds everything. Valid until the next call.
  [[nodiscard]] const Step& alone();

 private:
  using Key = std::array<std::int64_t, 16>;
  std::vector<Evaluator> evaluators_;                // one for each kind of recomputation
  std::size_t own_ = 0;                              // that of the training
  std::map<Key, std::pair<Estimate, Bytes>> known_;  // and the `enough` they were looked for with
};

// The layouts of one run, on whatever GPUs: what a search has built serves the next.
class LayoutSearch {
 public:
  // `training` with its defaults resolved. The model must outlive the search.
  LayoutSearch(const ModelArchitecture& model, const TrainingChoice& training);

  // Where nobody published how much of `gpu` is usable, no layout has a verdict, and the fastest come first.
  [[nodiscard]] SearchResult operator()(const Gpu& gpu, const SearchSpace& space, const TokensPerSecond& speed);

 private:
  const ModelArchitecture* model_;
  PlanRequest request_;
  KnownNeeds needs_;
  std::optional<LeastStates> least_;  // once several GPUs were asked for
};

// How many kinds of parallelism a layout has: of equal ones the simplest is first.
[[nodiscard]] std::int64_t kinds_of(const LayoutChoice& layout);

}  // namespace vramplan
