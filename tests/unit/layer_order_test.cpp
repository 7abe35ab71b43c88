// Models whose kinds of layers take turns: which of them lie below the first that is trained.
#include <doctest/doctest.h>

#include "support/steps.hpp"
#include "vramplan/model.hpp"
#include "vramplan/step.hpp"

using namespace vramplan;
using support::held;
using support::model_of;

namespace {

constexpr std::string_view kHybrid = "Qwen/Qwen3.5-0.8B";  // 24 layers: three of Gated DeltaNet, one of attention

TrainingChoice training(Method method, Recompute recompute) {
  PlanRequest request;
  request.training.method = method;
  request.training.recompute = recompute;
  request.training.trainable_layers = 5;
  request.training.lora.targets = {"q", "v"};
  return resolve_defaults(request).training;
}

Step step_of(const TrainingChoice& t, std::string_view model = kHybrid) {
  return Step(prepare(model_of(model), t, LayoutChoice{}, Bytes(0)));
}

using Counts = std::vector<Dim>;

}  // namespace

TEST_CASE("the first layers of a pattern, and of groups that follow one another") {
  CHECK(first_layers({36, 12}, {0, 0, 0, 1}, 0) == Counts{0, 0});
  CHECK(first_layers({36, 12}, {0, 0, 0, 1}, 3) == Counts{3, 0});
  CHECK(first_layers({36, 12}, {0, 0, 0, 1}, 5) == Counts{4, 1});
  CHECK(first_layers({36, 12}, {0, 0, 0, 1}, 48) == Counts{36, 12});
  CHECK(first_layers({3, 58}, {}, 2) == Counts{2, 0});
  CHECK(first_layers({3, 58}, {}, 5) == Counts{3, 2});
  CHECK(first_of(model_of(kHybrid), 0) == 0);
  CHECK(first_of(model_of(kHybrid), 1) == 3);
  CHECK(first_of(model_of("deepseek-ai/DeepSeek-V3"), 1) == 3);
}

TEST_CASE("layers below the first adapter keep nothing: three of Gated DeltaNet before attention") {
  const Step step = step_of(training(Method::lora, Recompute::none));
  REQUIRE(step.stacks().size() == 4);
  CHECK(step.stacks()[0].count == 3);
  CHECK_FALSE(step.stacks()[0].trained);
  CHECK(step.kept_per_layer(step.stacks()[0]) == Bytes(0));
  CHECK(step.stacks()[1].count == 1);  // attention, whose input needs no gradient
  CHECK(step.stacks()[2].count == 15);
  CHECK(step.stacks()[3].count == 5);
}

TEST_CASE("checkpoints ask for a gradient from the embedding on: no layer is below") {
  const Step step = step_of(training(Method::lora, Recompute::full));
  CHECK(step.stacks().size() == 2);
  for (const LayerStack& stack : step.stacks()) CHECK(stack.trained);
}

TEST_CASE("the last five layers of a pattern are three of one kind and two of the other") {
  const Step step = step_of(training(Method::freeze, Recompute::none));
  Dim trained = 0;
  for (const LayerStack& stack : step.stacks()) trained += stack.trained ? stack.count : 0;
  CHECK(trained == 5);
  CHECK(step.run().inventory.trained_base == step.run().inventory.layers[0] * 3 + step.run().inventory.layers[1] * 2);
}
