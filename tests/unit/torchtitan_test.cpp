// What torchtitan keeps. Llama 3.1 8B: h = 4096, 32 heads and 8 of keys and values of 128 each, f = 14336, 32 layers,
// V = 128256; a layer has 2 h^2 + 2 h x 1024 + 3 h f + 2 h parameters.
#include <doctest/doctest.h>

#include "support/steps.hpp"
#include "vramplan/memory.hpp"
#include "vramplan/step.hpp"

using namespace vramplan;

namespace {

constexpr std::int64_t kTokens = 2 * 1024;
constexpr std::int64_t kH = 4096, kQ = 4096, kKeys = 1024, kF = 14336, kHeads = 32, kV = 128256, kLayers = 32;
constexpr std::int64_t kLayer = 2 * kH * kH + 2 * kH * kKeys + 3 * kH * kF + 2 * kH;
constexpr std::int64_t kOutside = 2 * kV * kH + kH;  // embedding, head, final norm
constexpr std::int64_t kTotal = kLayers * kLayer + kOutside;
constexpr std::int64_t kRanks = 8;

struct Choices {
  Recompute recompute = Recompute::selective;
  bool compile = false;
  std::optional<CrossEntropy> cross_entropy = {};
  std::optional<Version> version = {};
};

TrainingChoice training(const Choices& choices) {
  PlanRequest request;
  TrainingChoice& t = request.training;
  t.objective = Objective::pretrain;
  t.method = Method::full;
  t.framework = FrameworkId::torchtitan;
  t.framework_version = choices.version;
  t.recompute = choices.recompute;
  t.cross_entropy = choices.cross_entropy;
  t.compile = choices.compile;
  t.micro_batch = 2;
  t.sequence_length = 1024;
  return resolve_defaults(request).training;
}

LayoutChoice sharded(std::int64_t tp = 1) {
  LayoutChoice layout;
  layout.dp = kRanks;
  layout.zero = 3;
  layout.tp = tp;
  layout.sp = tp > 1;
  return layout;
}

Step step_of(const Choices& choices, const LayoutChoice& layout = sharded()) {
  return Step(prepare(support::model_of("meta-llama/Llama-3.1-8B"), training(choices), layout, Bytes(0)));
}

Bytes kept(const Step& step) { return step.kept_per_layer(step.stacks().back()); }

Bytes of(const Step& step, Event event, Component component) { return Bytes(support::held(step, component, event)); }

Bytes with_vocabulary(const Step& step, Event event) {
  Bytes logits;
  for (const Contribution& c : step.contributions(event)) {
    for (std::size_t i = 0; i < c.factor_count; ++i) {
      if (c.factors[i].name == "V") logits += c.bytes();
    }
  }
  return logits;
}

constexpr Version kFirst{0, 0}, kOlder{0, 1};

}  // namespace

TEST_CASE("torchtitan: of every two products with a weight selective checkpoints keep the first, and attention") {
  // The input; of q, k, v, o, gate, up, down the first, third, fifth and seventh; attention's output and row.
  CHECK(kept(step_of({})) == Bytes(kTokens * (2 * (kH + kQ + kKeys + kF + kH + kQ) + 4 * kHeads)));
}

TEST_CASE("torchtitan compiled: what no backward asks for is not kept: the seventh product") {
  CHECK(kept(step_of({.compile = true})) == Bytes(kTokens * (2 * (kH + kQ + kKeys + kF + kQ) + 4 * kHeads)));
}

TEST_CASE("torchtitan: tensor parallel checkpoints keep what the ranks have reduced and scattered, twice a layer") {
  constexpr std::int64_t kPart = kTokens * (2 * (kQ + kKeys + kF + kQ) + 4 * kHeads) / 2;
  constexpr std::int64_t kStream = kTokens * 2 * kH / 2;
  // The down projection's part of the sum is as wide as the whole stream.
  CHECK(kept(step_of({}, sharded(2))) == Bytes(kPart + kTokens * 2 * kH + 3 * kStream));
  // Compiled, backward asks for the first of them alone: the second norm's input is made of it.
  CHECK(kept(step_of({.compile = true}, sharded(2))) == Bytes(kPart + 2 * kStream));
}

TEST_CASE("torchtitan: kept results are there when the block runs again, and go with its backward") {
  const Step step = step_of({});
  const auto of_attention = [&](Event event) { return of(step, event, Component::activations_attention).value; };
  const std::int64_t each = kTokens * (2 * (kQ + kKeys + kQ) + 4 * kHeads);
  CHECK(of_attention({EventKind::backward_head}) == kLayers * each);
  CHECK(of_attention({EventKind::forward_embedding}) == 0);
  // The block that runs again makes keys, the rotated queries and keys, and shows what it has kept.
  CHECK(of_attention({EventKind::recompute_block, 3}) >= 4 * each);
  CHECK(of_attention({EventKind::recompute_block, 3}) <= 4 * each + kTokens * 2 * (kQ + kKeys));
}

TEST_CASE("torchtitan: full checkpoints keep the input") {
  CHECK(kept(step_of({.recompute = Recompute::full})) == Bytes(kTokens * 2 * kH));
}

TEST_CASE("torchtitan compiled: what matrix products and attention read or make") {
  const std::int64_t norm = 2 * kH + 4 + 2 * kH;
  CHECK(kept(step_of({.recompute = Recompute::none, .compile = true})) ==
        Bytes(kTokens * (2 * norm + 2 * (kQ + 2 * kKeys + kQ) + 4 * kHeads + 3 * 2 * kF)));
}

TEST_CASE("torchtitan: PyTorch's loss has three FP32 copies of the logits in backward, a compiled one two of 16 bits") {
  const Event event{EventKind::backward_head};
  CHECK(with_vocabulary(step_of({}), event) == Bytes(3 * 4 * kTokens * kV));
  // Of more tokens than the hidden size, so that they outweigh the gradient of the head's weight.
  TrainingChoice longer = training({.compile = true});
  longer.sequence_length = 4 * 1024;
  const Step compiled(prepare(support::model_of("meta-llama/Llama-3.1-8B"), longer, sharded(), Bytes(0)));
  CHECK(with_vocabulary(compiled, event) == Bytes(2 * 2 * 4 * kTokens * kV));
  // torchtrain's loop kept a name for them.
  CHECK(with_vocabulary(step_of({.version = kFirst}), event) == Bytes(4 * 4 * kTokens * kV));
}

TEST_CASE("torchtitan: a chunked loss holds an eighth of the logits, in forward") {
  const Step eager = step_of({.cross_entropy = CrossEntropy::chunked});
  const Step compiled = step_of({.compile = true, .cross_entropy = CrossEntropy::chunked});
  const Event event{EventKind::forward_head};
  const Bytes weight_gradient(2 * kV * kH);
  CHECK(with_vocabulary(eager, event) - weight_gradient == Bytes(3 * 4 * kTokens / 8 * kV));
  CHECK(with_vocabulary(compiled, event) - weight_gradient == Bytes(2 * 2 * kTokens / 8 * kV));
}

TEST_CASE("torchtitan: before 0.2 SDPA got keys and values of all heads") {
  const auto kept_by = [](Version version) {
    return kept(step_of({.recompute = Recompute::none, .version = version}));
  };
  CHECK(kept_by(kOlder) - kept_by({0, 2}) == Bytes(kTokens * 2 * 2 * (kQ - kKeys)));
}

TEST_CASE("torchtitan: the last block stays whole where releases before 0.2 were not told to reshard it") {
  const auto gathered = [](const Choices& choices, const LayoutChoice& layout) {
    const Step step = step_of(choices, layout);
    return of(step, {EventKind::forward_head}, Component::gathered_parameters).value;
  };
  LayoutChoice always = sharded();
  always.reshard = true;
  // One unit of all ends, and a buffer of the last block beside it.
  CHECK(gathered({.version = kOlder}, sharded()) == 2 * (kOutside + 2 * kLayer));
  CHECK(gathered({.version = kOlder}, always) == 2 * (kOutside + kLayer));
  // Later the head is a unit of its own, with the final norm.
  CHECK(gathered({}, sharded()) == 2 * (kV * kH + kH + kLayer));
}

TEST_CASE("torchtitan: gradients of the layer above are reduced in FP32, those of the head as a unit of its own") {
  const Step step = step_of({});
  const auto buffers = [&](std::int32_t layer) {
    return of(step, {EventKind::backward_block, layer}, Component::communication_buffers).value;
  };
  CHECK(buffers(5) >= 4 * kLayer);
  CHECK(buffers(5) < 4 * kLayer + 2 * kLayer);  // and those of the layer itself, as far as they are made
  CHECK(buffers(kLayers - 1) >= 4 * (kV * kH + kH));
  CHECK(of(step, {EventKind::backward_block, kLayers - 1}, Component::gradients).value == 4 * (kV * kH + kH) / kRanks);
}

TEST_CASE("torchtitan: streams have pools of their own: two units' buffers, and all shards of gradients") {
  const Step::SidePools older = step_of({.version = kOlder}).side_pools();
  CHECK(older.gathered == Bytes(2 * (kOutside + kLayer)));
  CHECK(older.reduced == Bytes(4 * kTotal / kRanks));
  const Step step = step_of({});
  CHECK(step.side_pools().gathered == Bytes(2 * (kV * kH + kH + kLayer)));
  // On the main stream the peak is the loss: without the buffer of the last block and the shards, but with the hole
  // that the 16-bit logits leave.
  const Bytes live = step.live({EventKind::backward_head});
  CHECK(step.highest_on_main_stream() == live + Bytes(2 * kTokens * kV));
  const MemoryEstimate memory = estimate_memory(step, nullptr);
  const Bytes pools = step.highest_on_main_stream() + step.side_pools().gathered + step.side_pools().reduced;
  CHECK(memory.reserved.expected == Bytes(pools.value * 1038 / 1000));
}

TEST_CASE("a run that shards nothing has one pool") {
  LayoutChoice alone;
  const Step step = step_of({.compile = true}, alone);
  CHECK(step.side_pools().gathered == Bytes(0));
  const MemoryEstimate memory = estimate_memory(step, nullptr);
  CHECK(memory.reserved.expected == Bytes(memory.allocated.expected.value * 1038 / 1000));
}

TEST_CASE("torchtitan: tensor parallelism shares the tokens too, and compiling takes the loss along") {
  PlanRequest request;
  request.training = training({.compile = true});
  request.layout = LayoutChoice{};
  request.layout->tp = 2;
  const PlanRequest resolved = resolve_defaults(request);
  CHECK(resolved.layout->sp);
  CHECK(resolved.training.cross_entropy == CrossEntropy::fused);
  CHECK(training({}).cross_entropy == CrossEntropy::full_logits);
}
