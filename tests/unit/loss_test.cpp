// Which copies of the logits are alive together: by release of Transformers, and by who computes the loss.
#include <doctest/doctest.h>

#include "support/steps.hpp"
#include "vramplan/step.hpp"

using namespace vramplan;

namespace {

constexpr std::int64_t kTokens = 4 * 2048;

// LoRA on Llama 2 7B (a vocabulary of 32,000) in pure BF16: the head is frozen and nothing is cast beside it.
TrainingChoice training() {
  PlanRequest request;
  request.training.method = Method::lora;
  request.training.precision = Precision::bf16;
  request.training.micro_batch = 4;
  request.training.sequence_length = 2048;
  return resolve_defaults(request).training;
}

// The most that is alive while an event of the head runs, less what is alive there whatever the loss does, in bytes a
// logit.
std::int64_t bytes_a_logit(const TrainingChoice& t, EventKind event) {
  Bytes logits;
  const Step step(prepare(support::model_of("meta-llama/Llama-2-7b-hf"), t, LayoutChoice{}, Bytes(0)));
  const std::int64_t each = kTokens * support::model_of("meta-llama/Llama-2-7b-hf").vocab_size;
  Bytes sum;
  for (const Contribution& c : step.contributions({event})) {
    for (std::size_t i = 0; i < c.factor_count; ++i) {
      if (c.factors[i].name == "V") sum += c.bytes();
    }
  }
  CHECK(sum.value % each == 0);
  return sum.value / each;
}

TrainingChoice with_version(Version version) {
  TrainingChoice t = training();
  t.framework_version = version;
  return t;
}

}  // namespace

TEST_CASE("today's Transformers: 16-bit logits, their FP32 copy and its log-softmax; in backward two gradients") {
  CHECK(bytes_a_logit(training(), EventKind::forward_head) == 2 + 4 + 4);
  CHECK(bytes_a_logit(training(), EventKind::backward_head) == 4 + 4 + 4);
  CHECK(bytes_a_logit(with_version({4, 49}), EventKind::forward_head) == 2 + 4 + 4);
}

TEST_CASE("Transformers 4.46 to 4.48: the logits without the last position are one more FP32 copy") {
  CHECK(bytes_a_logit(with_version({4, 48}), EventKind::forward_head) == 2 + 4 + 4 + 4);
  CHECK(bytes_a_logit(with_version({4, 46}), EventKind::forward_head) == 2 + 4 + 4 + 4);
}

TEST_CASE("Transformers up to 4.45: the model gave the 16-bit logits up") {
  CHECK(bytes_a_logit(with_version({4, 45}), EventKind::forward_head) == 4 + 4 + 4);
}

TEST_CASE("a loss in 16 bits has no FP32 logits") {
  TrainingChoice t = with_version({4, 49});
  t.logits_upcast = false;
  CHECK(bytes_a_logit(t, EventKind::forward_head) == 2 + 2);
  CHECK(bytes_a_logit(t, EventKind::backward_head) == 2 + 2 + 2);
}

TEST_CASE("a loss kernel that works in place keeps no log-softmax") {
  TrainingChoice t = with_version({4, 48});
  t.kernels = Kernels::fused;
  CHECK(bytes_a_logit(t, EventKind::forward_head) == 2 + 4 + 4);
  t.framework_version = Version{4, 45};
  CHECK(bytes_a_logit(t, EventKind::forward_head) == 4 + 4);
  t.framework_version.reset();  // fms-acceleration's own release
  CHECK(bytes_a_logit(t, EventKind::forward_head) == 4 + 4);
}

TEST_CASE("under autocast the 16-bit logits that stand beside a loss kernel's are raised too") {
  TrainingChoice t = training();
  t.framework = FrameworkId::liger;
  t.cross_entropy = CrossEntropy::full_logits;
  CHECK(bytes_a_logit(t, EventKind::forward_head) == 2 + 4);
  t.precision = Precision::bf16_amp;
  CHECK(bytes_a_logit(t, EventKind::forward_head) == 2 + 4 + 4);
  CHECK(bytes_a_logit(t, EventKind::backward_head) == 4 + 2);
}

TEST_CASE("the Trainer's default optimizer has multi-tensor kernels up to 4.53 and the fused one since") {
  TrainingChoice t = training();
  CHECK_FALSE(switches_for(t, {}).foreach_optimizer);
  t.framework_version = Version{4, 53};
  CHECK(switches_for(t, {}).foreach_optimizer);
  t.framework_version = Version{4, 54};
  CHECK_FALSE(switches_for(t, {}).foreach_optimizer);
  t.optimizer.foreach = true;
  CHECK(switches_for(t, {}).foreach_optimizer);
}
