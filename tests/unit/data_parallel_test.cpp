// What DDP, FSDP and DeepSpeed's ZeRO keep, against bytes made by hand from the shapes of Llama 3.1 8B.
#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <optional>

#include "support/steps.hpp"
#include "vramplan/step.hpp"

using namespace vramplan;
using support::held;

namespace {

// Embedding and head are 128256 x 4096; a layer has q and o of 4096 x 4096, k and v of 1024 x 4096, gate, up and down
// of 14336 x 4096 and two norms of 4096; one more norm before the head.
constexpr std::int64_t kTable = 128256LL * 4096;
constexpr std::int64_t kHead = kTable + 4096;
constexpr std::int64_t kRoot = kTable + kHead;
constexpr std::int64_t kMlpMatrix = 14336LL * 4096;
constexpr std::int64_t kLayer = 2LL * 4096 * 4096 + 2LL * 1024 * 4096 + 3 * kMlpMatrix + 2 * 4096;
constexpr std::int64_t kAll = 32 * kLayer + kRoot;
static_assert(kAll == 8'030'261'248);
// Rank 16 on all seven matrices of a layer.
constexpr std::int64_t kAdapters = 32LL * 16 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336));
static_assert(kAdapters == 41'943'040);

using Adjust = std::function<void(TrainingChoice&, LayoutChoice&)>;

Step step_of(FrameworkId framework, Method method, std::int64_t dp, std::int64_t zero, const Adjust& change = {}) {
  PlanRequest request;
  request.training.framework = framework;
  request.training.method = method;
  request.layout = LayoutChoice{};
  request.layout->dp = dp;
  request.layout->zero = zero;
  if (change) change(request.training, *request.layout);
  const TrainingChoice training = resolve_defaults(request).training;
  return Step(prepare(support::model_of("meta-llama/Llama-3.1-8B"), training, *request.layout, Bytes(0)));
}

std::int64_t on_host(const Step& step, Component component) {
  Bytes sum;
  const Contributions all = step.host_memory();
  for (const Contribution& c : all) {
    if (c.component == component) sum += c.bytes();
  }
  return sum.value;
}

constexpr auto kGathered = Component::gathered_parameters;
constexpr auto kBuffers = Component::communication_buffers;
constexpr auto kTorchtune = FrameworkId::torchtune;
constexpr auto kTransformers = FrameworkId::transformers;
constexpr auto kDeepspeed = FrameworkId::deepspeed;
constexpr Event kForwardHead{EventKind::forward_head};
constexpr Event kBackwardHead{EventKind::backward_head};
constexpr Event kReduction{EventKind::gradient_reduction};
constexpr Event kUpdate{EventKind::optimizer_step};
constexpr Event kSteady{EventKind::steady};
Event forward(std::int32_t layer) { return {EventKind::forward_block, layer}; }
Event backward(std::int32_t layer) { return {EventKind::backward_block, layer}; }

const Adjust accumulate = [](TrainingChoice& t, LayoutChoice& l) { t.global_batch = 4 * t.micro_batch * l.dp; };

}  // namespace

// ---- which engine

TEST_CASE("frameworks run data parallelism with their own engine") {
  const auto of = [](FrameworkId framework, std::int64_t zero, std::optional<std::int64_t> version = {}) {
    TrainingChoice t;
    t.framework = framework;
    LayoutChoice l;
    l.dp = 8;
    l.zero = zero;
    l.fsdp = version;
    return sharding_of(t, l);
  };
  CHECK(of(kTransformers, 0).engine == Engine::ddp);
  CHECK(of(kTransformers, 1).engine == Engine::ddp);
  CHECK(of(kTransformers, 3).engine == Engine::fsdp1);
  CHECK(of(kTransformers, 3, 2).engine == Engine::fsdp2);
  CHECK(of(kTorchtune, 3).engine == Engine::fsdp2);
  CHECK(of(kTorchtune, 3, 1).engine == Engine::fsdp1);
  CHECK(of(kDeepspeed, 0).engine == Engine::deepspeed);
  CHECK((of(kTransformers, 2).gathers && !of(kTransformers, 2).reshards));
  CHECK((of(kTransformers, 3).gathers && of(kTransformers, 3).reshards));
  CHECK((of(kTransformers, 3).defers_reduction && !of(kTorchtune, 3).defers_reduction));
  CHECK((!of(kDeepspeed, 2).gathers && of(kDeepspeed, 3).gathers));
}

// ---- FSDP

TEST_CASE("FSDP1 gathers the layer that runs beside the root unit") {
  const Step step = step_of(kTransformers, Method::full, 4, 3);  // BF16 mixed precision: gathered in 2 bytes
  CHECK(held(step, kGathered, forward(5)) == 2 * (kRoot + kLayer));
  CHECK(held(step, kGathered, kForwardHead) == 2 * kRoot);
  CHECK(held(step, kGathered, kBackwardHead) == 2 * kRoot);
  CHECK(held(step, kGathered, backward(31)) == 2 * (kRoot + kLayer));
  CHECK(held(step, kGathered, kUpdate) == 0);
}

TEST_CASE("FSDP1 under Fabric also gathers the layer before, and the last one for the head") {
  const Step step = step_of(FrameworkId::litgpt, Method::full, 4, 3);
  const std::int64_t running = held(step, kGathered, forward(5));
  const std::int64_t root = held(step, kGathered, kForwardHead);
  CHECK(running - root == 2 * kLayer);
  CHECK(held(step, kGathered, kBackwardHead) - root == 2 * kLayer);
  CHECK(held(step, kGathered, backward(5)) - root == 2 * 2 * kLayer);
  CHECK(held(step, kGathered, backward(0)) - root == 2 * kLayer);
}

TEST_CASE("FSDP2 gathers into a buffer and copies it out") {
  const Adjust pure = [](TrainingChoice& t, LayoutChoice&) { t.precision = Precision::bf16; };
  const Step step = step_of(kTorchtune, Method::full, 4, 3, pure);
  CHECK(held(step, kGathered, forward(5)) == 2 * (kRoot + 2 * kLayer));
  CHECK(held(step, kGathered, kForwardHead) == 2 * (kRoot + kLayer));
  CHECK(held(step, kGathered, kBackwardHead) == 2 * (kRoot + kLayer));
  CHECK(held(step, kGathered, backward(5)) == 2 * (kRoot + 2 * kLayer));
  CHECK(held(step, kGathered, backward(0)) == 2 * (kRoot + kLayer));
  // The last reduction's input is there until the next one starts.
  const std::int64_t running = held(step, kBuffers, backward(31));
  CHECK(held(step, kBuffers, backward(30)) == running + 2 * kLayer);
}

TEST_CASE("SHARD_GRAD_OP keeps gathered layers from forward to backward") {
  const Step second_stage = step_of(kTransformers, Method::full, 4, 2);
  const Step kept =
      step_of(kTransformers, Method::full, 4, 3, [](TrainingChoice&, LayoutChoice& l) { l.reshard = false; });
  for (const Step* step : {&second_stage, &kept}) {
    CHECK(held(*step, kGathered, forward(5)) == 2 * (kRoot + 6 * kLayer));
    CHECK(held(*step, kGathered, kForwardHead) == 2 * kAll);
    CHECK(held(*step, kGathered, backward(5)) == 2 * (kRoot + 6 * kLayer));
    CHECK(held(*step, Component::weights, kUpdate) == 4 * kAll / 4);
  }
}

TEST_CASE("the root unit's gradients stay whole to the end; shards are in FP32 where the weights are") {
  const Step step = step_of(kTransformers, Method::full, 4, 3);
  CHECK(held(step, Component::gradients, backward(31)) == 2 * kHead);
  CHECK(held(step, Component::gradients, backward(29)) == 2 * kHead + 2 * 4 * (kLayer / 4));
  CHECK(held(step, Component::gradients, kReduction) == 4 * kAll / 4);
}

TEST_CASE("without synchronisation the gradients of an accumulation are whole") {
  const Step deferred = step_of(kTransformers, Method::full, 4, 3, accumulate);
  CHECK(held(deferred, Component::gradients, forward(5)) == 2 * kAll);
  CHECK(held(deferred, Component::gradients, kUpdate) == 4 * kAll / 4);
  const Step synced = step_of(kTransformers, Method::full, 4, 3, [](TrainingChoice& t, LayoutChoice& l) {
    accumulate(t, l);
    l.no_sync = false;
  });
  CHECK(held(synced, Component::gradients, forward(5)) == 4 * kAll / 4);
}

TEST_CASE("4-bit constants are not sharded: they are no parameters") {
  const auto constants = [](std::int64_t dp) {
    return held(step_of(kTransformers, Method::qlora, dp, 3), Component::quantization_constants, kSteady);
  };
  CHECK(constants(1) == 4 * 32 * (kLayer - 2 * 4096) / 64);
  CHECK(constants(8) == constants(1));
}

// ---- DeepSpeed

TEST_CASE("DeepSpeed keeps 16-bit weights and gradients, and 12 bytes a parameter for the optimizer") {
  const Step step = step_of(kDeepspeed, Method::full, 1, 1);
  CHECK(held(step, Component::weights, kSteady) == 2 * kAll);
  CHECK(held(step, Component::master_weights, kSteady) == 4 * kAll);
  CHECK(held(step, Component::optimizer_states, kSteady) == 8 * kAll);
  CHECK(held(step, Component::gradients, kUpdate) == 2 * kAll);
}

TEST_CASE("each stage of DeepSpeed divides one thing more") {
  const auto row = [](std::int64_t stage) {
    const Step step = step_of(kDeepspeed, Method::full, 4, stage);
    return std::array<std::int64_t, 5>{
        held(step, Component::optimizer_states, kSteady), held(step, Component::master_weights, kSteady),
        held(step, Component::gradients, kReduction), held(step, Component::gradients, kUpdate),
        held(step, Component::weights, kSteady)};
  };
  constexpr std::int64_t kShard = kAll / 4;
  CHECK(row(0) == std::array<std::int64_t, 5>{8 * kAll, 4 * kAll, 2 * kAll, 2 * kAll, 2 * kAll});
  CHECK(row(1) == std::array<std::int64_t, 5>{8 * kShard, 4 * kShard, 2 * kAll, 2 * kShard, 2 * kAll});
  CHECK(row(2) == std::array<std::int64_t, 5>{8 * kShard, 4 * kShard, 2 * kShard, 2 * kShard, 2 * kAll});
  CHECK(row(3) == std::array<std::int64_t, 5>{8 * kShard, 4 * kShard, 2 * kShard, 2 * kShard, 2 * kShard});
}

TEST_CASE("DeepSpeed makes one FP32 gradient of a shard before it updates") {
  const auto temporaries = [](std::int64_t stage, std::int64_t dp) {
    return held(step_of(kDeepspeed, Method::full, dp, stage), Component::optimizer_temporaries, kUpdate);
  };
  CHECK(temporaries(0, 4) == (4 + 4) * kAll);  // cast one by one, then joined
  CHECK(temporaries(1, 4) == (2 + 4) * kAll / 4);
  CHECK(temporaries(2, 4) == (2 + 4) * kAll / 4);
  CHECK(temporaries(3, 4) == (2 + 4) * 1'000'000'000LL);  // sub_group_size
  CHECK(temporaries(3, 16) == (2 + 4) * divide_up(kAll, 16));
}

TEST_CASE("DeepSpeed's reduce bucket is there in backward at stages 1 and 2, and always at stage 3") {
  const Step second = step_of(kDeepspeed, Method::full, 4, 2);
  CHECK(held(second, kBuffers, forward(3)) == 0);
  CHECK(held(second, kBuffers, backward(3)) == 2 * 500'000'000LL);
  CHECK(held(second, kBuffers, kUpdate) == 0);
  const Step third = step_of(kDeepspeed, Method::full, 4, 3);
  CHECK(held(third, kBuffers, kUpdate) == 2 * 4096LL * 4096);  // "auto": hidden size squared
  CHECK(held(third, kBuffers, backward(3)) == 2 * 2 * 4096LL * 4096);
  // Stage 1 copies its part out of a bucket of 500 million gradients.
  const Step first = step_of(kDeepspeed, Method::full, 4, 1);
  CHECK(held(first, kBuffers, kReduction) == 2 * (500'000'000LL + kAll / 4 - 500'000'000LL));
}

TEST_CASE("stage 2 adds the gradients of a pass to those of earlier ones; stage 3 has one place for them") {
  const Step second = step_of(kDeepspeed, Method::full, 4, 2, accumulate);
  CHECK(held(second, Component::gradients, forward(3)) == 2 * kAll / 4);
  CHECK(held(second, Component::gradients, backward(3)) == 2 * 2 * kAll / 4);
  const Step third = step_of(kDeepspeed, Method::full, 4, 3, accumulate);
  CHECK(held(third, Component::gradients, backward(3)) == 2 * kAll / 4);
}

TEST_CASE("stage 3 fetches modules, keeps the last layers from forward to backward and small tensors always") {
  const Step step = step_of(kDeepspeed, Method::full, 4, 3);
  constexpr std::int64_t kNorms = (32 * 2 + 1) * 4096;
  // The table lies between the last layer's forward and backward, twice: more than 10^9 elements, so no layer stays.
  static_assert(2 * kTable >= 1'000'000'000);
  CHECK(held(step, kGathered, kUpdate) == 2 * kNorms);
  CHECK(held(step, kGathered, forward(3)) == 2 * (kNorms + kMlpMatrix + kMlpMatrix));
  CHECK(held(step, kGathered, backward(3)) == 2 * (kNorms + kMlpMatrix + kLayer));
  CHECK(held(step, kGathered, kForwardHead) == 2 * (kNorms + kMlpMatrix + kTable));
}

TEST_CASE("DeepSpeed trains adapters in 16 bits, with an FP32 copy of them alone") {
  const Step step = step_of(kDeepspeed, Method::lora, 2, 2);
  CHECK(held(step, Component::adapters, kSteady) == 2 * kAdapters);
  CHECK(held(step, Component::master_weights, kSteady) == 4 * kAdapters / 2);
  CHECK(held(step, Component::optimizer_states, kSteady) == 8 * kAdapters / 2);
  CHECK(held(step, Component::frozen_weights, kSteady) == 2 * kAll);
}

// ---- offload

TEST_CASE("DeepSpeed's optimizer offload leaves weights and a bucket on the GPU") {
  const Step step =
      step_of(kDeepspeed, Method::full, 4, 2, [](TrainingChoice& t, LayoutChoice&) { t.offload.optimizer = true; });
  CHECK(held(step, Component::optimizer_states, kUpdate) == 0);
  CHECK(held(step, Component::master_weights, kUpdate) == 0);
  CHECK(held(step, Component::gradients, backward(3)) == 0);
  CHECK(held(step, Component::optimizer_temporaries, kUpdate) == 0);
  CHECK(held(step, kBuffers, kUpdate) == 2 * kTable);  // the largest gradient on its way
  CHECK(held(step, Component::weights, kUpdate) == 2 * kAll);
  CHECK(on_host(step, Component::master_weights) == 4 * kAll / 4);
  CHECK(on_host(step, Component::optimizer_states) == 8 * kAll / 4);
  CHECK(on_host(step, Component::gradients) == 4 * kAll / 4);
  CHECK(on_host(step, kBuffers) == 2 * kAll / 4 + 2 * kTable);
}

TEST_CASE("offloaded parameters are on the GPU only while they are gathered") {
  const Adjust offload = [](TrainingChoice& t, LayoutChoice&) { t.offload.parameters = true; };
  const Step fsdp = step_of(kTransformers, Method::full, 4, 3, offload);
  for (const Component c : {Component::weights, Component::gradients, Component::optimizer_states}) {
    CHECK(held(fsdp, c, kUpdate) == 0);
  }
  CHECK(held(fsdp, kGathered, forward(5)) == 2 * (kRoot + kLayer));
  CHECK(held(fsdp, Component::gradients, backward(3)) == 2 * kHead);
  CHECK(on_host(fsdp, Component::weights) == 4 * kAll / 4);
  CHECK(on_host(fsdp, Component::gradients) == 4 * kAll / 4);
  CHECK(on_host(fsdp, Component::optimizer_states) == 8 * kAll / 4);
  const Step zero = step_of(kDeepspeed, Method::full, 1, 3, offload);
  CHECK(held(zero, Component::weights, kUpdate) == 0);
  CHECK(held(zero, Component::optimizer_states, kUpdate) == 8 * kAll);
  CHECK(on_host(zero, Component::weights) == 2 * kAll);
}

TEST_CASE("offloaded activations: five inputs wait for their copy in forward, and backward brings one back early") {
  const Adjust offload = [](TrainingChoice& t, LayoutChoice&) { t.offload.activations = true; };
  constexpr std::int64_t kStream = 2LL * 2048 * 4096;  // one sequence of 2048 tokens in BF16
  const Step step = step_of(kTransformers, Method::lora, 1, 0, offload);
  CHECK(held(step, Component::checkpoints, forward(3)) == (3 + 1) * kStream);
  CHECK(held(step, Component::checkpoints, forward(20)) == (4 + 1) * kStream);
  CHECK(held(step, Component::checkpoints, kForwardHead) == 0);  // the final norm's tensors have pushed them out
  CHECK(held(step, Component::checkpoints, backward(30)) == (1 + 1) * kStream);
  CHECK(held(step, Component::checkpoints, backward(0)) == kStream);
  CHECK(on_host(step, Component::checkpoints) == 32 * kStream);
}

TEST_CASE("paged states count in host memory, once a rank") {
  const Step step =
      step_of(kTransformers, Method::full, 1, 0, [](TrainingChoice& t, LayoutChoice&) { t.optimizer.paged = true; });
  // Tensors under 100,000 elements are not paged: the 65 norms.
  constexpr std::int64_t kNorms = 65 * 4096;
  CHECK(held(step, Component::optimizer_states, kSteady) == 8 * kNorms);
  CHECK(on_host(step, Component::optimizer_states) == 8 * (kAll - kNorms));
}

// ---- adapters under FSDP1

namespace {

constexpr std::int64_t kStream = 2048LL * 4096 * 2;  // one sequence of hidden states

std::int64_t kept_streams(Event event) {
  const Step step = step_of(FrameworkId::transformers, Method::lora, 2, 3);
  return held(step, Component::checkpoints, event) / kStream;
}

}  // namespace

TEST_CASE("FSDP1 keeps the inputs of frozen units, and the gradients that have entered blocks but the running one's") {
  const Step step = step_of(FrameworkId::transformers, Method::lora, 2, 3);
  CHECK(kept_streams({EventKind::backward_block, 31}) == 32);
  CHECK(kept_streams({EventKind::backward_block, 0}) == 32);
  const auto gradients = [&](std::int32_t layer) {
    return held(step, Component::activation_gradients, EventKind::backward_block, layer);
  };
  // Layer 31 got its gradient from the head, layer 0 from layer 1: with it 31 are there, one of which each block has.
  CHECK(gradients(0) - gradients(31) == 30 * kStream);
}

TEST_CASE("fused adapters of a 4-bit base are whole on every rank") {
  const auto fused = [](TrainingChoice& t, LayoutChoice&) { t.kernels = Kernels::fused; };
  const Step whole = step_of(FrameworkId::transformers, Method::qlora, 4, 3, fused);
  const Step shared = step_of(FrameworkId::transformers, Method::qlora, 4, 3);
  for (const Component component : {Component::adapters, Component::gradients}) {
    CHECK(held(whole, component, EventKind::optimizer_step) == 4 * kAdapters);
    CHECK(held(shared, component, EventKind::optimizer_step) == kAdapters);
  }
  CHECK(held(whole, Component::optimizer_states, EventKind::steady) == 8 * kAdapters);
}
