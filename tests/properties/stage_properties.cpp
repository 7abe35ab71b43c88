// Of a pipeline only some stages are weighed when layouts are searched: none of the others may hold more.
#include <doctest/doctest.h>

#include <algorithm>

#include "support/steps.hpp"
#include "vramplan/layout.hpp"
#include "vramplan/memory.hpp"

using namespace vramplan;

namespace {

struct Piped {
  const ModelArchitecture& model;
  LayoutChoice layout;
  TrainingChoice training;

  Piped(std::string_view id, std::int64_t pp, std::int64_t vpp, Recompute recompute) : model(support::model_of(id)) {
    PlanRequest request;
    request.training.framework = FrameworkId::megatron;
    request.training.method = Method::full;
    request.training.sequence_length = 4096;
    request.training.global_batch = 512;
    request.training.recompute = recompute;
    request.layout = LayoutChoice{};
    request.layout->zero = 1, request.layout->dp = 8, request.layout->pp = pp, request.layout->vpp = vpp;
    layout = *request.layout;
    training = resolve_defaults(request).training;
  }
  [[nodiscard]] Bytes of_stage(std::int64_t stage) const {
    return estimate_memory(Step(prepare(model, training, layout, Bytes(0), stage)), nullptr).device.expected;
  }
  [[nodiscard]] Bytes of_all() const {
    Bytes most;
    for (std::int64_t stage = 0; stage < layout.pp; ++stage) most = std::max(most, of_stage(stage));
    return most;
  }
  [[nodiscard]] Bytes of_binding() const {
    Bytes most;
    for (const std::int64_t stage : binding_stages(model, layout)) most = std::max(most, of_stage(stage));
    return most;
  }
};

}  // namespace

TEST_CASE("a stage that binds holds the most of all") {
  const std::string_view models[] = {"meta-llama/Llama-3.1-8B", "deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V2",
                                     "zai-org/GLM-4.5", "Qwen/Qwen3-235B-A22B"};
  for (const std::string_view id : models) {
    for (const std::int64_t pp : {4, 8, 16, 24}) {
      for (const std::int64_t vpp : {1, 2}) {
        for (const Recompute recompute : {Recompute::none, Recompute::full}) {
          if (pp * vpp > layers_of(support::model_of(id))) continue;
          const Piped piped(id, pp, vpp, recompute);
          CAPTURE(id);
          CAPTURE(pp);
          CAPTURE(vpp);
          CHECK(piped.of_binding() == piped.of_all());
        }
      }
    }
  }
}
