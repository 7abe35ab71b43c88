#include "vramplan/search.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <tuple>

#include "vramplan/device.hpp"
#include "vramplan/layout.hpp"

namespace vramplan {
namespace {

// Fewer tokens of a sequence on a rank leave its kernels idle; experts use 4096 to 8192 (docs of Megatron-Bridge).
constexpr std::int64_t kLeastTokensOfARank = 1024;
constexpr std::int64_t kMostMicroBatch = 64;  // where no global batch limits it

bool divides(std::int64_t n, std::int64_t of) { return n > 0 && of % n == 0; }

constexpr std::array kRecomputes{Recompute::none, Recompute::selective, Recompute::full};

// A micro-batch and recomputation of a layout. Larger micro-batches need more, as long as gradients of earlier passes
// are there in both cases or in neither: these are a chain, named after its first.
struct Candidate {
  FoundLayout found;
  Bytes least;  // LeastStates
  std::size_t chain = 0;
  bool evaluated = false;
};

// PyTorch's ZeroRedundancyOptimizer can be asked for, but no trainer offers it.
bool offers_stage_1(FrameworkId f) {
  return f == FrameworkId::deepspeed || f == FrameworkId::megatron || f == FrameworkId::scaling;
}

TrainingChoice with(TrainingChoice training, Recompute recompute) {
  set_recompute(training, recompute);
  PlanRequest request;
  request.training = std::move(training);
  return resolve_defaults(std::move(request)).training;
}

class Search {
 public:
  Search(const ModelArchitecture& model, PlanRequest& request, KnownNeeds& needs,
         const std::optional<LeastStates>& least, const Gpu& gpu, const SearchSpace& space,
         const TokensPerSecond& speed)
      : model_(model),
        request_(request),
        training_(request.training),
        needs_(needs),
        least_states_(least),
        gpu_(gpu),
        usable_(usable_bytes(gpu)),
        space_(space),
        speed_(speed),
        has_(parallelism_of(request.training.framework)) {}

  SearchResult run() {
    each_divisor(space_.gpus, [&](std::int64_t tp) {
      if (tp > 1 && (!has_.tensor || tp > space_.domain)) return;
      LayoutChoice layout;
      layout.tp = tp;
      layout.sp = tp > 1;
      if (!check_layout(model_, layout).empty()) return;
      each_stage(layout);
    });
    choose();
    if (result_.best.empty() && space_.least) keep_least();
    return std::move(result_);
  }

 private:
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
      each_divisor(has_.interleaved ? layers / pp : 1, [&](std::int64_t vpp) {
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
      if (stage == 1 && !offers_stage_1(training_.framework)) continue;
      const bool divided = stage > 0;
      if ((has_.stages >> static_cast<unsigned>(stage) & 1U) == 0 || (divided && ranks == 1 && !offloads())) continue;
      layout.zero = stage;
      if (flattens_integers(training_, layout)) continue;
      layout.shard.reset();
      each_batch(layout);
      if (stage != 3 || ranks <= space_.domain || !divides(space_.domain, ranks)) continue;
      layout.shard = space_.domain;
      each_batch(layout);
    }
  }

  // DeepSpeed's engine offloads what it has divided, be it over one rank.
  bool offloads() const {
    const OffloadChoice& o = training_.offload;
    return training_.framework == FrameworkId::deepspeed && (o.optimizer || o.parameters);
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

  void each_batch(const LayoutChoice& layout) {
    const std::int64_t first = space_.micro_batches ? 1 : training_.micro_batch;
    const std::int64_t last = space_.micro_batches ? training_.global_batch.value_or(kMostMicroBatch) : first;
    const Bytes least = least_states_ ? least_states_->at(training_, layout) : Bytes{};
    std::array<std::size_t, kRecomputes.size()> chains{};
    bool accumulated = false;
    for (std::int64_t b = first; b <= last && takes_batch(layout, b); b *= 2) {
      if (!fills_rounds(layout, b)) continue;
      const bool accumulates = training_.global_batch && *training_.global_batch > b * layout.dp;
      const bool starts = accumulates != accumulated || b == first;
      accumulated = accumulates;
      for (std::size_t i = 0; i < kRecomputes.size(); ++i) {
        if (!allowed(kRecomputes[i])) continue;
        const bool first_of_chain = starts || chains[i] == 0;
        if (first_of_chain) chains[i] = candidates_.size() + 1;
        ++result_.layouts;
        Candidate c{{layout, b, kRecomputes[i], {}, Verdict::comfortable, 0}, least, chains[i] - 1};
        if (!hopeless(c)) {
          c.found.tokens_per_second = speed_ ? speed_(layout, b, kRecomputes[i]) : 0;
        } else if (!first_of_chain || !space_.least) {
          continue;
        }
        candidates_.push_back(c);
      }
    }
  }

  bool hopeless(const Candidate& c) const { return space_.cuts && usable_.value > 0 && c.least > usable_; }

  bool allowed(Recompute recompute) const {
    if (!space_.recomputation) return recompute == training_.recompute;
    return recompute != Recompute::selective || recomputes_selectively(training_.framework);
  }

  // In the order of speed, which costs less to know than memory, until enough are comfortable: the rest is slower.
  void choose() {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      if (!hopeless(candidates_[i])) order.push_back(i);
    }
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return better(candidates_[a].found, candidates_[b].found); });
    std::size_t comfortable = 0;
    for (const std::size_t i : order) {
      if (space_.cuts && comfortable == space_.kept) break;
      if (!suits(candidates_[i].found) || cannot_fit(candidates_[i])) continue;
      const FoundLayout& found = evaluated(i);
      if (found.verdict == Verdict::does_not_fit) continue;
      if (found.verdict == Verdict::comfortable) ++comfortable;
      keep(found);
    }
  }

  // Whether model, framework and training go together with the layout.
  bool suits(const FoundLayout& f) {
    request_.layout = f.layout;
    request_.training.micro_batch = f.micro_batch;
    request_.training.recompute_modules = training_.recompute_modules;
    set_recompute(request_.training, f.recompute);
    return check_request(request_).empty() && check_layout(model_, f.layout).empty();
  }

  bool cannot_fit(const Candidate& c) {
    if (!space_.cuts || usable_.value == 0) return false;
    const FoundLayout lean = leanest(c);
    const Estimate device = needs_(lean.layout, lean.micro_batch, lean.recompute, gpu_, usable_);
    return judge(device, usable_).verdict == Verdict::does_not_fit ||
           evaluated(c.chain).verdict == Verdict::does_not_fit;
  }

  // With the same part of the model on a rank: all that can be divided is, layers are recomputed, and no chunks wait
  // for others. One evaluation for all that differ in this alone.
  FoundLayout leanest(const Candidate& c) const {
    FoundLayout lean = c.found;
    lean.micro_batch = candidates_[c.chain].found.micro_batch;
    if (space_.recomputation) lean.recompute = Recompute::full;
    if (!has_.pipeline) return lean;
    lean.layout.vpp = 1;
    lean.layout.shard.reset();
    lean.layout.zero = data_ranks(lean.layout) > 1 ? static_cast<std::int64_t>(std::bit_width(has_.stages)) - 1 : 0;
    return lean;
  }

  // Where none fits: the first of a chain needs the least of it. What cannot need less than the least so far is left.
  void keep_least() {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      if (candidates_[i].chain == i) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return candidates_[a].least < candidates_[b].least; });
    std::optional<FoundLayout> least;
    for (const std::size_t i : order) {
      if (space_.cuts && least && candidates_[i].least > least->device.expected) break;
      if (!suits(candidates_[i].found)) continue;
      FoundLayout& found = candidates_[i].found;
      if (!candidates_[i].evaluated) ++result_.evaluated;
      const Bytes enough = least ? least->device.expected : Bytes(kSaturated);
      found.device = needs_(found.layout, found.micro_batch, found.recompute, gpu_, enough);
      if (!least || needs_less(found, *least)) least = found;
    }
    if (!least) return;
    least->verdict = judge(least->device, usable_).verdict;
    if (speed_) least->tokens_per_second = speed_(least->layout, least->micro_batch, least->recompute);
    result_.best.push_back(*least);
  }

  const FoundLayout& evaluated(std::size_t i) {
    Candidate& c = candidates_[i];
    if (c.evaluated) return c.found;
    c.evaluated = true;
    ++result_.evaluated;
    FoundLayout& f = c.found;
    f.device = needs_(f.layout, f.micro_batch, f.recompute, gpu_, enough());
    f.verdict = judge(f.device, usable_).verdict;
    return f;
  }

  // All stages count where no verdict is known.
  Bytes enough() const { return usable_.value > 0 ? usable_ : Bytes(kSaturated); }

  void keep(const FoundLayout& found) {
    const auto at = std::upper_bound(result_.best.begin(), result_.best.end(), found, better);
    result_.best.insert(at, found);
    if (result_.best.size() > space_.kept) result_.best.pop_back();
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
  PlanRequest& request_;  // its layout, micro-batch and recomputation come and go
  const TrainingChoice training_;
  KnownNeeds& needs_;
  const std::optional<LeastStates>& least_states_;
  const Gpu& gpu_;
  Bytes usable_;
  const SearchSpace& space_;
  const TokensPerSecond& speed_;
  Parallelism has_;
  std::vector<Candidate> candidates_;
  SearchResult result_;
};

}  // namespace

LeastStates::LeastStates(const Step& alone) {
  for (const Contribution& c : alone.contributions({EventKind::optimizer_step})) {
    const auto bytes = static_cast<double>(c.bytes().value);
    switch (c.component) {
      case Component::weights:
      case Component::frozen_weights: weights_ += bytes; break;
      case Component::gradients: gradients_ += bytes; break;
      case Component::master_weights:
      case Component::optimizer_states: states_ += bytes; break;
      default: break;
    }
  }
  const Inventory& n = alone.run().inventory;
  experts_ = n.total.value > 0 ? static_cast<double>(n.experts.value) / static_cast<double>(n.total.value) : 0;
}

Bytes LeastStates::at(const TrainingChoice& training, const LayoutChoice& layout) const {
  const Sharding s = sharding_of(training, layout);
  const double weights = s.host_weights ? 0 : weights_;
  const double gradients = s.host_gradients ? 0 : gradients_;
  const double states = s.host_states ? 0 : states_;
  const auto share = [&](const auto& ranks) {
    return weights / static_cast<double>(ranks.weights) + gradients / static_cast<double>(ranks.gradients) +
           states / static_cast<double>(ranks.optimizer);
  };
  const double dense = share(s) / static_cast<double>(layout.tp);
  const double experts = share(s.experts) / static_cast<double>(layout.ep * expert_tensor_ranks(layout));
  constexpr double kSlack = 0.999;
  return Bytes(static_cast<std::int64_t>(kSlack * ((1 - experts_) * dense + experts_ * experts) /
                                         static_cast<double>(layout.pp)));
}

KnownNeeds::KnownNeeds(const ModelArchitecture& model, const TrainingChoice& training)
    : own_(static_cast<std::size_t>(training.recompute)) {
  for (const Recompute recompute : kRecomputes) evaluators_.emplace_back(model, with(training, recompute));
}

Estimate KnownNeeds::operator()(const LayoutChoice& l, std::int64_t micro_batch, Recompute recompute, const Gpu& gpu,
                                Bytes enough) {
  const auto i = static_cast<std::size_t>(recompute);
  const TrainingChoice& t = evaluators_[i].training();
  const Estimate context = cuda_context_range(&gpu);
  // Of a card, all that its memory beside `usable` depends on.
  const Key key{l.dp,
                l.zero,
                l.tp,
                l.pp,
                l.vpp,
                l.cp,
                l.ep,
                l.etp.value_or(0),
                l.sp ? 1 : 0,
                l.shard.value_or(0),
                micro_batch,
                static_cast<std::int64_t>(i),
                cublas_workspace(&gpu).value,
                engine_bytes(t, &gpu).value,
                context.expected.value,
                context.high.value};
  const auto [at, is_new] = known_.try_emplace(key);
  auto& [device, looked_for] = at->second;
  if (is_new || (device.expected > looked_for && device.expected <= enough)) {
    looked_for = enough;
    device = evaluators_[i](l, {micro_batch, t.sequence_length}, &gpu, enough).device;
  }
  return device;
}

const Step& KnownNeeds::alone() {
  Evaluator& evaluate = evaluators_[own_];
  const TrainingChoice& t = evaluate.training();
  return evaluate.step({}, {t.micro_batch, t.sequence_length}, Bytes{});
}

LayoutSearch::LayoutSearch(const ModelArchitecture& model, const TrainingChoice& training)
    : model_(&model), needs_(model, training) {
  request_.training = training;
}

SearchResult LayoutSearch::operator()(const Gpu& gpu, const SearchSpace& space, const TokensPerSecond& speed) {
  PlanRequest request = request_;
  if (space.gpus > 1 && !least_) least_.emplace(needs_.alone());
  return Search(*model_, request, needs_, least_, gpu, space, speed).run();
}

std::int64_t kinds_of(const LayoutChoice& l) {
  return (l.tp > 1) + (l.pp > 1) + (l.vpp > 1) + (l.cp > 1) + (l.ep > 1) + (l.zero > 0 && data_ranks(l) > 1) +
         l.shard.has_value();
}

}  // namespace vramplan
