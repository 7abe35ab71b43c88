#include "vramplan/search.hpp"

#include <algorithm>
#include <array>
#include <tuple>

#include "vramplan/device.hpp"
#include "vramplan/layout.hpp"

namespace vramplan {
namespace {

// Fewer tokens of a sequence on a rank leave its kernels idle; experts use 4096 to 8192 (docs of Megatron-Bridge).
constexpr std::int64_t kLeastTokensOfARank = 1024;
constexpr std::int64_t kMostMicroBatch = 64;  // where no global batch limits it

bool divides(std::int64_t n, std::int64_t of) { return n > 0 && of % n == 0; }

// The fastest first: what is slower than enough good ones is not walked.
constexpr std::array kRecomputes{Recompute::none, Recompute::selective, Recompute::full};

class Search {
 public:
  Search(const ModelArchitecture& model, const TrainingChoice& training, const Gpu& gpu, const SearchSpace& space,
         const TokensPerSecond& speed)
      : model_(model),
        training_(training),
        gpu_(gpu),
        usable_(usable_bytes(gpu)),
        space_(space),
        speed_(speed),
        has_(parallelism_of(training.framework)) {
    for (const Recompute recompute : kRecomputes) evaluators_.emplace_back(model, with(training, recompute));
  }

  SearchResult run() {
    each_divisor(space_.gpus, [&](std::int64_t tp) {
      if (tp > 1 && (!has_.tensor || tp > space_.domain)) return;
      LayoutChoice layout;
      layout.tp = tp;
      layout.sp = tp > 1;
      if (!check_layout(model_, layout).empty()) return;
      each_stage(layout);
    });
    if (result_.best.empty() && least_) result_.best.push_back(*least_);
    return std::move(result_);
  }

 private:
  static TrainingChoice with(TrainingChoice training, Recompute recompute) {
    training.recompute = recompute;
    return training;
  }

  template <class Visit>
  static void each_divisor(std::int64_t n, Visit visit) {
    for (std::int64_t d = 1; d <= n; ++d) {
      if (divides(d, n)) visit(d);
    }
  }

  void each_stage(LayoutChoice layout) {
    const Dim layers = layers_of(model_);
    each_divisor(space_.gpus / layout.tp, [&](std::int64_t pp) {
      if (pp > layers || (pp > 1 && !has_.pipeline)) return;
      layout.pp = pp;
      layout.vpp = 1;
      each_context(layout);
      if (pp == 1 || !divides(pp, layers)) return;
      each_divisor(layers / pp, [&](std::int64_t vpp) {
        layout.vpp = vpp;
        if (vpp > 1) each_context(layout);
      });
    });
  }

  void each_context(LayoutChoice layout) {
    const std::int64_t ranks = space_.gpus / layout.tp / layout.pp;
    const std::int64_t most = has_.context ? training_.sequence_length / kLeastTokensOfARank : 1;
    for (std::int64_t cp = 1; cp == 1 || (cp <= most && divides(2 * cp, training_.sequence_length)); cp *= 2) {
      if (!divides(cp, ranks)) continue;
      layout.cp = cp;
      layout.dp = ranks / cp;
      if (!takes_batch(layout, 1)) continue;
      each_expert(layout);
    }
  }

  void each_expert(LayoutChoice layout) {
    each_divisor(has_.expert ? most_experts() : 1, [&](std::int64_t ep) {
      layout.ep = ep;
      if (ep > 1 && !divides(ep, layout.dp * layout.cp * layout.tp)) return;
      each_shard(layout);
    });
  }

  std::int64_t most_experts() const {
    Dim most = 1;
    for (const LayerGroup& group : model_.groups) {
      for (const Mlp& mlp : group.mlps) {
        if (const auto* moe = std::get_if<MoeMlp>(&mlp)) most = std::max(most, moe->experts);
      }
    }
    return most;
  }

  void each_shard(LayoutChoice layout) {
    const std::int64_t ranks = data_ranks(layout);
    for (std::int64_t stage = 0; stage <= 3; ++stage) {
      const bool divided = stage > 0;
      if ((has_.stages >> static_cast<unsigned>(stage) & 1U) == 0 || (divided && ranks == 1)) continue;
      layout.zero = stage;
      layout.shard.reset();
      each_batch(layout);
      if (stage != 3 || ranks <= space_.domain || !divides(space_.domain, ranks)) continue;
      layout.shard = space_.domain;
      each_batch(layout);
    }
  }

  bool takes_batch(const LayoutChoice& layout, std::int64_t micro_batch) const {
    if (!training_.global_batch) return true;
    return divides(saturating_multiply(micro_batch, layout.dp), *training_.global_batch);
  }

  // An interleaved schedule deals micro-batches out in rounds of one a stage.
  bool fills_rounds(const LayoutChoice& layout, std::int64_t micro_batch) const {
    if (layout.vpp == 1) return true;
    const std::int64_t passes = training_.global_batch.value_or(0) / (micro_batch * layout.dp);
    return divides(layout.pp, passes) && passes > 0;
  }

  // Larger micro-batches need more, as long as gradients of earlier passes are there in both cases or in neither.
  void each_batch(const LayoutChoice& layout) {
    std::array<bool, kRecomputes.size()> failed{};
    const std::int64_t first = space_.micro_batches ? 1 : training_.micro_batch;
    const std::int64_t last = space_.micro_batches ? training_.global_batch.value_or(kMostMicroBatch) : first;
    for (std::int64_t b = first; b <= last; b *= 2) {
      if (!takes_batch(layout, b)) break;
      if (!fills_rounds(layout, b)) continue;
      const bool accumulates = training_.global_batch && *training_.global_batch > b * layout.dp;
      if (!accumulates) failed.fill(false);
      each_recompute(layout, b, failed);
    }
  }

  // Each kind for itself: where gradients or logits are the peak, computing again can need more.
  void each_recompute(const LayoutChoice& layout, std::int64_t micro_batch, std::array<bool, 3>& failed) {
    for (std::size_t i = 0; i < kRecomputes.size(); ++i) {
      if (!allowed(kRecomputes[i])) continue;
      ++result_.layouts;
      if (space_.cuts && failed[i]) continue;
      failed[i] = consider(layout, micro_batch, i) == Verdict::does_not_fit;
    }
  }

  bool allowed(Recompute recompute) const {
    if (!space_.recomputation) return recompute == training_.recompute;
    const bool selective =
        training_.framework == FrameworkId::megatron || training_.framework == FrameworkId::torchtitan;
    return recompute != Recompute::selective || selective;
  }

  // Speed costs less than memory: what is slower than enough comfortable ones is not walked.
  Verdict consider(const LayoutChoice& layout, std::int64_t micro_batch, std::size_t recompute) {
    FoundLayout found{layout, micro_batch, kRecomputes[recompute], {}, Verdict::comfortable, 0};
    found.tokens_per_second = speed_ ? speed_(layout, micro_batch, found.recompute) : 0;
    const bool full = result_.best.size() == space_.kept;
    if (space_.cuts && full && better(result_.best.back(), found)) return Verdict::unknown;
    ++result_.evaluated;
    found.device = evaluators_[recompute](layout, {micro_batch, training_.sequence_length}, &gpu_).device;
    found.verdict = judge(found.device, usable_).verdict;
    if (found.verdict == Verdict::does_not_fit) {
      if (!least_ || needs_less(found, *least_)) least_ = found;
    } else if (!full || better(found, result_.best.back())) {
      insert(found, full);
    }
    return found.verdict;
  }

  void insert(const FoundLayout& found, bool full) {
    if (full) result_.best.pop_back();
    const auto at = std::upper_bound(result_.best.begin(), result_.best.end(), found, better);
    result_.best.insert(at, found);
  }

  static auto simplicity(const FoundLayout& f) {
    const LayoutChoice& l = f.layout;
    return std::tuple(kinds_of(l), l.tp, l.pp, l.cp, l.ep, l.vpp, l.zero, l.shard.value_or(0), -f.micro_batch,
                      f.recompute);
  }
  static bool better(const FoundLayout& a, const FoundLayout& b) {
    if (a.verdict != b.verdict) return a.verdict < b.verdict;
    if (a.tokens_per_second != b.tokens_per_second) return a.tokens_per_second > b.tokens_per_second;
    return simplicity(a) < simplicity(b);
  }
  static bool needs_less(const FoundLayout& a, const FoundLayout& b) {
    const auto order = [](const FoundLayout& f) {
      return std::tuple(f.device.expected.value, f.micro_batch, simplicity(f));
    };
    return order(a) < order(b);
  }

  const ModelArchitecture& model_;
  const TrainingChoice& training_;
  const Gpu& gpu_;
  Bytes usable_;
  const SearchSpace& space_;
  const TokensPerSecond& speed_;
  Parallelism has_;
  std::vector<Evaluator> evaluators_;  // one for each kind of recomputation
  std::optional<FoundLayout> least_;   // of what does not fit
  SearchResult result_;
};

}  // namespace

std::int64_t kinds_of(const LayoutChoice& l) {
  return (l.tp > 1) + (l.pp > 1) + (l.vpp > 1) + (l.cp > 1) + (l.ep > 1) + (l.zero > 0 && data_ranks(l) > 1) +
         l.shard.has_value();
}

SearchResult search_layouts(const ModelArchitecture& model, const TrainingChoice& training, const Gpu& gpu,
                            const SearchSpace& space, const TokensPerSecond& speed) {
  return Search(model, training, gpu, space, speed).run();
}

}  // namespace vramplan
