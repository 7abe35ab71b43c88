// What litgpt keeps: one linear for q, k and v with adapters inside, logits that the loop holds, every linear in 4
// bits, whole gradients under FSDP. Llama 2 7B: h = 4096, f = 11008, 32 heads, V = 32000.
#include <doctest/doctest.h>

#include "support/steps.hpp"
#include "vramplan/step.hpp"

using namespace vramplan;

namespace {

constexpr std::int64_t kTokens = 1024;
constexpr std::int64_t kH = 4096, kF = 11008, kHeads = 32, kV = 32000, kRank = 8;
constexpr std::int64_t kLayer = 4 * kH * kH + 3 * kH * kF + 2 * kH;  // parameters
constexpr std::int64_t kLayers = 32;
constexpr std::int64_t kAdapters = 2 * 2 * kRank * kH * kLayers;  // of q and v

TrainingChoice training(Method method, Recompute recompute = Recompute::none) {
  PlanRequest request;
  TrainingChoice& t = request.training;
  t.method = method;
  t.framework = FrameworkId::litgpt;
  t.precision = Precision::bf16;
  t.recompute = recompute;
  t.cross_entropy = CrossEntropy::chunked;
  t.micro_batch = 1;
  t.sequence_length = kTokens;
  t.lora.rank = kRank;
  t.lora.targets = {"q", "v"};
  return resolve_defaults(request).training;
}

Step step_of(const TrainingChoice& t, const LayoutChoice& layout = {}) {
  return Step(prepare(support::model_of("meta-llama/Llama-2-7b-hf"), t, layout, Bytes(0)));
}

Bytes of(const Step& step, Event event, Component component) { return Bytes(support::held(step, component, event)); }

Bytes logits_at(const Step& step, EventKind kind) {
  Bytes sum;
  for (const Contribution& c : step.contributions({kind})) {
    for (std::size_t i = 0; i < c.factor_count; ++i) {
      if (c.factors[i].name == "V") sum += c.bytes();
    }
  }
  return sum;
}

// Of a layer through which gradients flow, in bytes: two norms in FP32; the dropped-out input and its mask; what the
// adapters make of it; q, k and v as one, q and k again after rotation; attention's output and row sums; gate, its
// activation, up. Besides, the column numbers of q and v.
constexpr std::int64_t kKept = kTokens * (2 * (4 * kH + 4) + (2 + 1) * kH + 2 * (2 * kRank) + 2 * (2 * kH) +
                                          (6 + 4 + 2) * kH + 4 * kHeads + 3 * (2 * kF)) +
                               2 * 8 * kH;

}  // namespace

TEST_CASE("litgpt: adapters on q and v inside one projection") {
  const Step step = step_of(training(Method::lora));
  CHECK(step.kept_per_layer(step.stacks().back()) == Bytes(kKept));
}

TEST_CASE("litgpt: a 4-bit linear keeps its input") {
  const Step step = step_of(training(Method::qlora));
  // Both norms' outputs, attention's output in the order of the tokens, the product in front of `down`.
  CHECK(step.kept_per_layer(step.stacks().back()) == Bytes(kKept + kTokens * (3 * 2 * kH + 2 * kF)));
}

TEST_CASE("litgpt: the output head is in 4 bits too, and dequantized by way of FP16") {
  const Step step = step_of(training(Method::qlora));
  CHECK(step.run().inventory.block_linear == Params(kLayers * (kLayer - 2 * kH) + kV * kH));
  CHECK(of(step, {EventKind::backward_head}, Component::dequantized_weights) == Bytes((2 + 2) * kV * kH));
}

TEST_CASE("litgpt: the loop holds FP32 logits to the end of backward; cross-entropy works on 128 tokens") {
  const Step step = step_of(training(Method::lora));
  CHECK(logits_at(step, EventKind::forward_head) == Bytes((4 + 4) * kTokens * kV));
  CHECK(logits_at(step, EventKind::backward_head) == Bytes((4 + 4) * kTokens * kV + 2 * 4 * 128 * kV));
  CHECK(of(step, {EventKind::backward_block, 0}, Component::logits) == Bytes(4 * kTokens * kV));
}

TEST_CASE(
    "litgpt under FSDP: every weight of a block with adapters makes a gradient, whole until the last micro-batch") {
  LayoutChoice two;
  two.dp = 2;
  two.zero = 3;
  const Step step = step_of(training(Method::lora, Recompute::full), two);
  CHECK(step.run().accumulation_steps == 128);
  CHECK(of(step, {EventKind::backward_block, 0}, Component::gradients) == Bytes(2 * (kLayers * kLayer + kAdapters)));
  // The end of a unit: its gradients and the flat one; the root and two units gathered.
  CHECK(of(step, {EventKind::gradient_reduction}, Component::communication_buffers) == Bytes(2 * 2 * kLayer));
  CHECK(of(step, {EventKind::gradient_reduction}, Component::gathered_parameters) ==
        Bytes(2 * (2 * kV * kH + kH) + 2 * 2 * kLayer));
  CHECK(of(step, {EventKind::backward_block, 0}, Component::gathered_parameters) ==
        Bytes(2 * (2 * kV * kH + kH) + 2 * kLayer));
}
