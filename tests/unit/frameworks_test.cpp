// What single switches of frameworks change in bytes, where no test of kernels, losses or objectives looks at them.
#include <doctest/doctest.h>

#include <optional>

#include "support/steps.hpp"

using namespace vramplan;
using support::held;

namespace {

TrainingChoice training(FrameworkId framework, Method method, Precision precision) {
  TrainingChoice t;
  t.framework = framework;
  t.method = method;
  t.precision = precision;
  t.sequence_length = 1024;
  return t;
}

Step step_of(const TrainingChoice& t) { return support::step_of("meta-llama/Llama-3.1-8B", t, {}); }

std::int64_t adapter_bytes_each(FrameworkId framework, Precision precision) {
  const Step step = step_of(training(framework, Method::lora, precision));
  return held(step, Component::adapters, EventKind::steady) / step.run().inventory.adapters.value;
}

}  // namespace

// torch.nn.functional.layer_norm is on autocast's list for FP32: under it each norm's input becomes an FP32 copy.
TEST_CASE("DeepSpeed's engine leaves autocast out: a block keeps what it keeps in 16 bits") {
  const auto kept = [](FrameworkId framework, Precision precision) {
    TrainingChoice t = training(framework, Method::full, precision);
    t.recompute = Recompute::none;
    return support::kept(support::step_of("openai-community/gpt2", t, {}));
  };
  const std::int64_t in_type = kept(FrameworkId::transformers, Precision::bf16);
  CHECK(kept(FrameworkId::transformers, Precision::bf16_amp) > in_type);
  CHECK(kept(FrameworkId::deepspeed, Precision::bf16_amp) == in_type);
}

TEST_CASE("DeepSpeed's engine lowers what a k-bit preparation has raised") {
  const auto frozen = [](bool kbit_upcast) {
    TrainingChoice t = training(FrameworkId::deepspeed, Method::qlora, Precision::bf16_amp);
    t.kbit_upcast = kbit_upcast;
    return held(step_of(t), Component::frozen_weights, EventKind::steady);
  };
  CHECK(frozen(true) == frozen(false));
}

TEST_CASE("Unsloth's adapters are FP32; litgpt's are so under mixed precision only") {
  CHECK(adapter_bytes_each(FrameworkId::unsloth, Precision::bf16) == 4);
  CHECK(adapter_bytes_each(FrameworkId::litgpt, Precision::bf16_amp) == 4);
  CHECK(adapter_bytes_each(FrameworkId::litgpt, Precision::bf16) == 2);
}

TEST_CASE("by default litgpt's AdamW makes multi-tensor temporaries, Unsloth's does not; a request decides for both") {
  const auto temporaries = [](FrameworkId framework, std::optional<bool> foreach) {
    TrainingChoice t = training(framework, Method::lora, Precision::bf16);
    t.optimizer.foreach = foreach;
    return held(step_of(t), Component::optimizer_temporaries, EventKind::optimizer_step);
  };
  CHECK(temporaries(FrameworkId::unsloth, std::nullopt) < temporaries(FrameworkId::unsloth, true));
  CHECK(temporaries(FrameworkId::litgpt, false) < temporaries(FrameworkId::litgpt, std::nullopt));
}

TEST_CASE("litgpt's mixed precision casts weights for each use, its true precision none") {
  const auto copied = [](Precision precision) {
    return held(step_of(training(FrameworkId::litgpt, Method::full, precision)), Component::autocast_weights,
                EventKind::forward_head);
  };
  CHECK(copied(Precision::bf16_amp) > 0);
  CHECK(copied(Precision::bf16) == 0);
}
