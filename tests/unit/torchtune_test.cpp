// What torchtune keeps. Llama 3.2 3B: h = 3072, 24 heads and 8 of keys and values of 128 each, f = 8192, V = 128256.
#include <doctest/doctest.h>

#include "support/steps.hpp"
#include "vramplan/step.hpp"

using namespace vramplan;

namespace {

constexpr std::int64_t kTokens = 2 * 1024;
constexpr std::int64_t kH = 3072, kQ = 24 * 128, kF = 8192, kHeads = 24, kV = 128256;

TrainingChoice training(Method method, Recompute recompute, bool compile) {
  PlanRequest request;
  TrainingChoice& t = request.training;
  t.method = method;
  t.framework = FrameworkId::torchtune;
  t.precision = Precision::bf16;
  t.recompute = recompute;
  t.cross_entropy = CrossEntropy::chunked;
  t.compile = compile;
  t.micro_batch = 2;
  t.sequence_length = 1024;
  return resolve_defaults(request).training;
}

Step step_of(const TrainingChoice& t) {
  return Step(prepare(support::model_of("meta-llama/Llama-3.2-3B"), t, LayoutChoice{}, Bytes(0)));
}

Bytes of(const Step& step, Event event, Component component) { return Bytes(support::held(step, component, event)); }

}  // namespace

TEST_CASE("torchtune: FP32 norms, keys and values of all heads, four tensors of the MLP's width") {
  const Step step = step_of(training(Method::full, Recompute::none, false));
  const std::int64_t norm = 4 * kH + 4 + 2 * kH + 2 * kH;  // FP32 input, row, before and after the weight
  CHECK(step.kept_per_layer(step.stacks().back()) ==
        Bytes(kTokens * (2 * norm + (3 + 1) * 2 * kQ + 4 * kHeads + 4 * 2 * kF)));
}

TEST_CASE("torchtune compiled: what matrix products and attention read or make") {
  const Step step = step_of(training(Method::full, Recompute::none, true));
  const std::int64_t norm = 2 * kH + 4 + 2 * kH;  // the stream, row, what the projections read
  CHECK(step.kept_per_layer(step.stacks().back()) ==
        Bytes(kTokens * (2 * norm + (3 + 1) * 2 * kQ + 4 * kHeads + 3 * 2 * kF)));
}

TEST_CASE("torchtune compiled: the chunked loss keeps logits in 16 bits; a chunk's gradient comes beside them") {
  const Step step = step_of(training(Method::lora, Recompute::full, true));
  Bytes logits;
  for (const Contribution& c : step.contributions({EventKind::backward_head})) {
    for (std::size_t i = 0; i < c.factor_count; ++i) {
      if (c.factors[i].name == "V") logits += c.bytes();
    }
  }
  CHECK(logits == Bytes(2 * kTokens * kV + 2 * kTokens / 8 * kV));
}

namespace {

// What lies in gradients of the head's weight while its backward is highest, in copies of the table.
std::int64_t tables_in_gradients(const TrainingChoice& t) {
  const std::int64_t bytes = of(step_of(t), {EventKind::backward_head}, Component::gradients).value;
  return bytes / (2 * kV * kH);
}

}  // namespace

TEST_CASE("torchtune: the chunks' gradients of the head's weight are added to one") {
  TrainingChoice t = training(Method::full, Recompute::full, true);
  CHECK(of(step_of(t), {EventKind::backward_block, 27}, Component::gradients) >= Bytes(2 * kV * kH));
  CHECK(of(step_of(t), {EventKind::backward_block, 27}, Component::gradients) < Bytes(2 * 2 * kV * kH));
  // The first two and their sum; six of eight chunks of logits wait as gradients then.
  CHECK(tables_in_gradients(t) == 3);
  const std::int64_t chunk = 2 * kTokens / 8;
  const std::int64_t gradients = of(step_of(t), {EventKind::backward_head}, Component::activation_gradients).value;
  CHECK(gradients >= 6 * chunk * kV);
  CHECK(gradients < 7 * chunk * kV);
}

TEST_CASE("torchtune: in later micro-batches the chunks' sum comes beside the gradient that is there") {
  TrainingChoice t = training(Method::full, Recompute::full, true);
  t.global_batch = 4;
  const Step step = step_of(t);
  const std::int64_t all = step.run().inventory.total.value;
  const std::int64_t table = 2 * kV * kH;
  CHECK(of(step, {EventKind::backward_head}, Component::gradients) == Bytes(2 * all + 3 * table));
  // The table is embedding and head at once: its gradient waits for the embedding's.
  for (const std::int32_t layer : {27, 0}) {
    const std::int64_t gradients = of(step, {EventKind::backward_block, layer}, Component::gradients).value;
    CHECK(gradients == 2 * all + table);
  }
  // The sum of the chunks is a tensor of its own, to which the embedding's is added in place.
  CHECK(of(step, {EventKind::backward_embedding}, Component::gradients) == Bytes(2 * all + 2 * table));
}

TEST_CASE("torchtune: offloaded checkpoints wait in a stash of five, and come back two at a time") {
  TrainingChoice t = training(Method::lora, Recompute::full, true);
  const Bytes stream(kTokens * kH * 2);
  CHECK(of(step_of(t), {EventKind::forward_block, 20}, Component::checkpoints) == stream * 21);
  t.offload.activations = true;
  const Step step = step_of(t);
  CHECK(of(step, {EventKind::forward_block, 20}, Component::checkpoints) == stream * 5);
  CHECK(of(step, {EventKind::backward_head}, Component::checkpoints) == Bytes(0));
  CHECK(of(step, {EventKind::backward_block, 20}, Component::checkpoints) == stream * 2);
}

TEST_CASE("torchtune: NF4 has quantized constants, whatever it is asked for") {
  CHECK(step_of(training(Method::qlora, Recompute::full, true)).run().types.base == WeightFormat::nf4_dq);
}

TEST_CASE("torchtune: its configurations ask for the fused AdamW, which makes no temporaries") {
  TrainingChoice t = training(Method::full, Recompute::full, true);
  CHECK(of(step_of(t), {EventKind::optimizer_step}, Component::optimizer_temporaries) == Bytes(0));
  t.optimizer.foreach = true;
  CHECK(of(step_of(t), {EventKind::optimizer_step}, Component::optimizer_temporaries) > Bytes(0));
}
