// What single switches of frameworks change in bytes, where no test of kernels, losses or objectives looks at them.
#include <doctest/doctest.h>

#include <algorithm>

#include "support/layouts.hpp"
#include "support/steps.hpp"

using namespace vramplan;
using support::held;
using support::step_of;

namespace {

constexpr const char* kLlama8B = "meta-llama/Llama-3.1-8B";
// Rank 16 on every linear of Llama-3.1-8B: 32 layers x 16 x (4096+4096 + 2 (4096+1024) + 4096+4096 + 3 (4096+14336)).
constexpr std::int64_t kAdapters = 32 * 16 * (2 * 8192 + 2 * 5120 + 3 * 18432);
static_assert(kAdapters == 41943040);

TrainingChoice training(FrameworkId framework, Method method, Precision precision) {
  TrainingChoice t;
  t.framework = framework;
  t.method = method;
  t.precision = precision;
  t.sequence_length = 1024;
  return t;
}

std::int64_t most(const Step& step, Component component) {
  std::int64_t bytes = 0;
  for (const Event event : step.events()) bytes = std::max(bytes, held(step, component, event));
  return bytes;
}

}  // namespace

TEST_CASE("DeepSpeed's engine lowers the module: autocast copies no weight, as it does under FSDP") {
  const auto copied = [](FrameworkId framework) {
    return most(step_of(kLlama8B, training(framework, Method::full, Precision::bf16_amp), support::sharded(2)),
                Component::autocast_weights);
  };
  TrainingChoice alone = training(FrameworkId::transformers, Method::full, Precision::bf16_amp);
  CHECK(most(step_of(kLlama8B, alone, {}), Component::autocast_weights) > 0);
  CHECK(copied(FrameworkId::deepspeed) == 0);
}

TEST_CASE("DeepSpeed's engine lowers what a k-bit preparation has raised") {
  const auto frozen = [](bool kbit_upcast) {
    TrainingChoice t = training(FrameworkId::deepspeed, Method::qlora, Precision::bf16_amp);
    t.kbit_upcast = kbit_upcast;
    return held(step_of(kLlama8B, t, {}), Component::frozen_weights, EventKind::steady);
  };
  CHECK(frozen(true) == frozen(false));
}

TEST_CASE("Unsloth and litgpt's mixed precision hold adapters in FP32, litgpt's true 16 bits in those") {
  const auto adapters = [](FrameworkId framework, Precision precision) {
    return held(step_of(kLlama8B, training(framework, Method::lora, precision), {}), Component::adapters,
                EventKind::steady);
  };
  CHECK(adapters(FrameworkId::unsloth, Precision::bf16) == 4 * kAdapters);
  CHECK(adapters(FrameworkId::litgpt, Precision::bf16_amp) == 2 * adapters(FrameworkId::litgpt, Precision::bf16));
}

TEST_CASE("the optimizer makes temporaries by groups of tensors only where it is asked to, or does so by default") {
  const auto temporaries = [](FrameworkId framework, std::optional<bool> foreach) {
    TrainingChoice t = training(framework, Method::lora, Precision::bf16);
    t.optimizer.name = OptimizerName::adamw;
    t.optimizer.foreach = foreach;
    return held(step_of(kLlama8B, t, {}), Component::optimizer_temporaries, EventKind::optimizer_step);
  };
  CHECK(temporaries(FrameworkId::unsloth, std::nullopt) < temporaries(FrameworkId::unsloth, true));
  CHECK(temporaries(FrameworkId::litgpt, false) < temporaries(FrameworkId::litgpt, std::nullopt));
}

TEST_CASE("litgpt's mixed precision casts weights for each use, its true precision none") {
  const auto copied = [](Precision precision) {
    return most(step_of(kLlama8B, training(FrameworkId::litgpt, Method::full, precision), {}),
                Component::autocast_weights);
  };
  CHECK(copied(Precision::bf16_amp) > 0);
  CHECK(copied(Precision::bf16) == 0);
}

// GRPO divides the logits by the temperature of sampling; of those it asks for the completion and the token before.
TEST_CASE("GRPO's logits are scaled, DPO's are not") {
  const auto switches = [](Objective objective) {
    PlanRequest request;
    request.training = training(FrameworkId::transformers, Method::lora, Precision::bf16);
    request.training.objective = objective;
    if (objective == Objective::grpo) request.training.generation.emplace().completion_length = 511;
    return switches_for(resolve_defaults(request).training, {});
  };
  CHECK(switches(Objective::grpo).scales_logits);
  CHECK(switches(Objective::grpo).kept_logits == 512);
  CHECK_FALSE(switches(Objective::dpo).scales_logits);
  CHECK(switches(Objective::dpo).kept_logits == 0);
}
