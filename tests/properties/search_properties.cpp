// The layout search loses nothing by its cuts: over small cases it finds what trying every layout finds.
#include <doctest/doctest.h>

#include <random>

#include "support/steps.hpp"
#include "vramplan/planner.hpp"
#include "vramplan/search.hpp"

using namespace vramplan;

namespace {

struct Case {
  const char* model;
  const char* gpu;
  TrainingChoice training;
  SearchSpace space;
};

class Cases {
 public:
  Case next() {
    static constexpr const char* kModels[] = {"meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.1-8B",
                                              "mistralai/Mixtral-8x7B-v0.1", "google/gemma-2-9b"};
    static constexpr const char* kGpus[] = {"rtx-4090", "h100-sxm-80gb", "l40s"};
    static constexpr FrameworkId kFrameworks[] = {FrameworkId::transformers, FrameworkId::torchtune,
                                                  FrameworkId::deepspeed, FrameworkId::torchtitan,
                                                  FrameworkId::megatron};
    PlanRequest request;
    TrainingChoice& t = request.training;
    t.framework = kFrameworks[pick(5)];
    const bool whole = t.framework == FrameworkId::megatron || t.framework == FrameworkId::torchtitan;
    t.method = whole || pick(2) == 0 ? Method::full : Method::lora;
    t.precision = whole || pick(2) == 0 ? Precision::bf16_amp : Precision::bf16;
    t.sequence_length = std::int64_t{512} << pick(5);
    t.global_batch = std::int64_t{1} << (2 + pick(4));
    const SearchSpace space{std::int64_t{1} << pick(4), 8, true, true, 1 + static_cast<std::size_t>(pick(4)), true};
    return {kModels[pick(4)], kGpus[pick(3)], resolve_defaults(request).training, space};
  }
  std::int64_t pick(std::int64_t n) { return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random_); }

 private:
  std::mt19937_64 random_{20261130};
};

// As a real one: recomputation costs a third, parallelism costs something, larger micro-batches gain a little.
double speed_of(const LayoutChoice& l, std::int64_t micro_batch, Recompute recompute) {
  const double recomputed = recompute == Recompute::full ? 4 : recompute == Recompute::selective ? 3.25 : 3;
  const double apart = static_cast<double>(l.tp) * 3 + static_cast<double>(l.pp) * 2 / static_cast<double>(l.vpp) +
                       static_cast<double>(l.cp + l.ep + l.zero);
  return 1e6 / recomputed / (20 + apart) * (2 - 1.0 / static_cast<double>(micro_batch));
}

}  // namespace

TEST_CASE("the search finds what trying every layout finds") {
  Cases cases;
  std::int64_t cut = 0;
  for (int i = 0; i < 60; ++i) {
    Case c = cases.next();
    CAPTURE(i);
    CAPTURE(c.model);
    CAPTURE(c.space.gpus);
    CAPTURE(name_of(c.training.framework));
    const ModelArchitecture& model = support::model_of(c.model);
    const Gpu& gpu = *find_gpu(shipped_catalogue(), c.gpu);
    const SearchResult quick = LayoutSearch(model, c.training)(gpu, c.space, speed_of);
    c.space.cuts = false;
    const SearchResult all = LayoutSearch(model, c.training)(gpu, c.space, speed_of);
    CHECK(quick.layouts == all.layouts);
    CHECK(all.evaluated == all.layouts);
    CHECK(quick.evaluated <= all.evaluated);
    cut += all.evaluated - quick.evaluated;
    REQUIRE(quick.best.size() == all.best.size());
    for (std::size_t k = 0; k < quick.best.size(); ++k) {
      CHECK(quick.best[k].device.expected == all.best[k].device.expected);
      CHECK(quick.best[k].verdict == all.best[k].verdict);
      CHECK(quick.best[k].tokens_per_second == all.best[k].tokens_per_second);
    }
  }
  CHECK(cut > 500);  // and saves work
}

TEST_CASE("what the search finds is what evaluating it gives, and suits model and GPUs") {
  Cases cases;
  for (int i = 0; i < 20; ++i) {
    const Case c = cases.next();
    const ModelArchitecture& model = support::model_of(c.model);
    const Gpu& gpu = *find_gpu(shipped_catalogue(), c.gpu);
    for (const FoundLayout& found : LayoutSearch(model, c.training)(gpu, c.space, speed_of).best) {
      TrainingChoice t = c.training;
      t.micro_batch = found.micro_batch;
      t.recompute = found.recompute;
      CHECK(evaluate(model, t, found.layout, &gpu).device.expected == found.device.expected);
      CHECK(ranks_of(found.layout) == c.space.gpus);
      CHECK(*t.global_batch % (found.micro_batch * found.layout.dp) == 0);
    }
  }
}
