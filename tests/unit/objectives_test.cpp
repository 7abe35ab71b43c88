// Objectives beside plain fine-tuning: what a preference pair, a reference, a score and written answers add to a step.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "support/steps.hpp"
#include "vramplan/device.hpp"
#include "vramplan/memory.hpp"
#include "vramplan/step.hpp"

using namespace vramplan;
using support::held;
using support::model_of;

namespace {

constexpr std::string_view kLlama = "meta-llama/Llama-3.1-8B";
constexpr std::string_view kQwen = "Qwen/Qwen2.5-0.5B";
constexpr std::int64_t kQwenVocabulary = 151936;
constexpr std::int64_t kQwenParameters = 494'032'768;

TrainingChoice training(Objective objective, Method method, Precision precision) {
  PlanRequest request;
  request.training.objective = objective;
  request.training.method = method;
  request.training.precision = precision;
  request.training.sequence_length = 1024;
  return resolve_defaults(request).training;
}

Step step_of(std::string_view model, const TrainingChoice& t) {
  return Step(prepare(model_of(model), t, LayoutChoice{}, Bytes(0)));
}

bool has_event(const Step& step, EventKind kind) {
  for (const Event event : step.events()) {
    if (event.kind == kind) return true;
  }
  return false;
}

}  // namespace

// ---- preference pairs

TEST_CASE("DPO in FP32: both answers' logits, their gradient, and two tensors the size of one sequence's") {
  const Step step = step_of(kQwen, training(Objective::dpo, Method::full, Precision::fp32));
  const std::int64_t logits = 2LL * 1024 * kQwenVocabulary * 4;  // one pair
  CHECK(held(step, Component::logits, EventKind::backward_head) == logits);
  // exp(x - sum) of one of the two sequences, and the difference in it; the log-probabilities have a gradient too.
  CHECK(held(step, Component::working_memory, EventKind::backward_head) == logits);
  CHECK(held(step, Component::activation_gradients, EventKind::backward_head) == logits + 2 * 1024 * 4);
}

TEST_CASE("DPO in 16 bits without autocast keeps the log-softmax, in 16 bits") {
  const Step step = step_of(kQwen, training(Objective::dpo, Method::full, Precision::bf16));
  const std::int64_t logits = 2LL * 1024 * kQwenVocabulary * 2;
  CHECK(held(step, Component::logits, EventKind::backward_head) == logits);
  CHECK(held(step, Component::working_memory, EventKind::backward_head) == logits / 2);
}

TEST_CASE("autocast's logits are raised to FP32 before the log-probabilities are taken") {
  const Step step = step_of(kQwen, training(Objective::dpo, Method::lora, Precision::bf16_amp));
  CHECK(held(step, Component::logits, EventKind::backward_head) == 2LL * 1024 * kQwenVocabulary * 4);
}

TEST_CASE("a pair is two sequences in everything that a step keeps") {
  const Step pair = step_of(kLlama, training(Objective::dpo, Method::lora, Precision::bf16_amp));
  const Step one = step_of(kLlama, training(Objective::sft, Method::lora, Precision::bf16_amp));
  for (const Component c : {Component::checkpoints, Component::buffers}) {
    CHECK(held(pair, c, EventKind::backward_head) == 2 * held(one, c, EventKind::backward_head));
  }
}

TEST_CASE("a reference model is a second set of frozen weights") {
  TrainingChoice t = training(Objective::dpo, Method::full, Precision::fp32);
  CHECK(t.reference == Reference::model);
  CHECK(held(step_of(kQwen, t), Component::frozen_weights, EventKind::steady) == 4 * kQwenParameters);
  t.reference = Reference::precomputed;
  CHECK(held(step_of(kQwen, t), Component::frozen_weights, EventKind::steady) == 0);
  CHECK_FALSE(has_event(step_of(kQwen, t), EventKind::reference_forward));
}

TEST_CASE("adapters are switched off for the reference: no second model, but its pass all the same") {
  TrainingChoice t = training(Objective::dpo, Method::lora, Precision::bf16_amp);
  CHECK(t.reference == Reference::adapters_off);
  const Step off = step_of(kLlama, t);
  CHECK(held(off, Component::frozen_weights, EventKind::steady) == 2 * 8'030'261'248);
  CHECK(has_event(off, EventKind::reference_forward));
  t.reference = Reference::model;
  CHECK(held(step_of(kLlama, t), Component::frozen_weights, EventKind::steady) == 4 * 8'030'261'248);
}

TEST_CASE("a quantized model has a quantized reference") {
  TrainingChoice t = training(Objective::dpo, Method::qlora, Precision::bf16_amp);
  const auto bytes = [&](Component c) { return held(step_of(kLlama, t), c, EventKind::steady); };
  const std::int64_t frozen = bytes(Component::frozen_weights);
  const std::int64_t constants = bytes(Component::quantization_constants);
  t.reference = Reference::model;
  CHECK(bytes(Component::frozen_weights) == 2 * frozen);
  CHECK(bytes(Component::quantization_constants) == 2 * constants);
}

TEST_CASE("the reference answers while all that the policy saved is there") {
  const Step step = step_of(kQwen, training(Objective::dpo, Method::full, Precision::fp32));
  const std::int64_t sequence = 1024 * kQwenVocabulary * 4;
  // The policy's logits; the reference's own, and exp(x - max) of one of its two sequences.
  CHECK(held(step, Component::logits, EventKind::reference_forward) == 2 * sequence);
  CHECK(held(step, Component::working_memory, EventKind::reference_forward) >= 3 * sequence);
  CHECK(held(step, Component::working_memory, EventKind::reference_forward) < 4 * sequence);
  // The policy's 24 block inputs: 2 x 1024 x 896 values of FP32.
  CHECK(held(step, Component::checkpoints, EventKind::reference_forward) == 24LL * 2 * 1024 * 896 * 4);
}

TEST_CASE("the order of events: DPO asks the reference last, GRPO first") {
  const auto order = [](Objective objective) {
    TrainingChoice t = training(objective, Method::full, Precision::bf16);
    t.reference = Reference::model;
    std::vector<EventKind> kinds;
    for (const Event event : step_of(kQwen, t).events()) kinds.push_back(event.kind);
    return kinds;
  };
  const std::vector<EventKind> dpo = order(Objective::dpo);
  const auto head = std::find(dpo.begin(), dpo.end(), EventKind::forward_head);
  REQUIRE(head != dpo.end());
  CHECK(*(head + 1) == EventKind::reference_forward);
  const std::vector<EventKind> grpo = order(Objective::grpo);
  CHECK(grpo[1] == EventKind::generation);
  CHECK(grpo[2] == EventKind::reference_forward);
  CHECK(grpo[3] == EventKind::forward_embedding);
}

TEST_CASE("an event that a step does not have holds what stays between steps") {
  const Step step = step_of(kQwen, training(Objective::sft, Method::full, Precision::bf16));
  const Bytes steady = step.live({EventKind::steady});
  CHECK(step.live({EventKind::generation}) == steady);
  CHECK(step.live({EventKind::reference_forward}) == steady);
}

// ---- scores

TEST_CASE("a reward model has one output in the place of its vocabulary") {
  const Step step = step_of(kLlama, training(Objective::reward, Method::full, Precision::bf16));
  const std::int64_t parameters = 8'030'261'248 - 128256LL * 4096 + 4096;
  CHECK(step.run().inventory.total == Params(parameters));
  CHECK(step.run().inventory.trained() == Params(parameters));
  CHECK(held(step, Component::weights, EventKind::steady) == 2 * parameters);
  CHECK(held(step, Component::logits, EventKind::backward_head) == 0);
}

TEST_CASE("a tied model's reward head is a tensor of its own") {
  CHECK(step_of(kQwen, training(Objective::reward, Method::full, Precision::bf16)).run().inventory.total ==
        Params(kQwenParameters + 896));
}

TEST_CASE("adapters train a copy of the new head beside it") {
  const Step step = step_of(kLlama, training(Objective::reward, Method::lora, Precision::bf16_amp));
  CHECK(step.run().inventory.trained() == Params(41'943'040 + 4096));
  CHECK(held(step, Component::weights, EventKind::steady) == 2 * 4096);
}

// ---- answers that the policy writes

TEST_CASE("GRPO takes logits of the completion and of the token before it only") {
  TrainingChoice t = training(Objective::grpo, Method::full, Precision::fp32);
  t.micro_batch = 4;
  t.generation->completion_length = 255;
  const std::int64_t logits = 4LL * 256 * kQwenVocabulary * 4;
  CHECK(held(step_of(kQwen, t), Component::logits, EventKind::backward_head) == logits);
  t.generation->completion_length = 1024;  // no more than the sequence has
  CHECK(held(step_of(kQwen, t), Component::logits, EventKind::backward_head) == 4 * logits);
}

TEST_CASE("GRPO divides its logits by the temperature of sampling: both are there while that runs") {
  TrainingChoice t = training(Objective::grpo, Method::full, Precision::fp32);
  t.micro_batch = 4;
  t.generation->completion_length = 255;
  const std::int64_t logits = 4LL * 256 * kQwenVocabulary * 4;
  const Step step = step_of(kQwen, t);
  CHECK(held(step, Component::logits, EventKind::forward_head) == logits);
  CHECK(held(step, Component::working_memory, EventKind::forward_head) == logits);
}

TEST_CASE("the cache of keys and values holds the answers to all micro-batches of the step") {
  TrainingChoice t = training(Objective::grpo, Method::full, Precision::bf16);
  t.micro_batch = 4;
  t.global_batch = 32;
  // 24 layers, two key-value heads of 64: 32 sequences of 1024 tokens, in 16 bits.
  CHECK(held(step_of(kQwen, t), Component::kv_cache, EventKind::generation) == 24LL * 2 * 2 * 64 * 32 * 1024 * 2);
  t.generation->engine_share = 0.3;
  CHECK(held(step_of(kQwen, t), Component::kv_cache, EventKind::generation) == 0);
}

TEST_CASE("without a KL term GRPO has no reference") {
  const TrainingChoice t = training(Objective::grpo, Method::full, Precision::bf16);
  CHECK_FALSE(t.reference.has_value());
  CHECK(t.generation->completion_length == 256);
  CHECK(held(step_of(kQwen, t), Component::frozen_weights, EventKind::steady) == 0);
}

TEST_CASE("an engine on the same card takes its share beyond what training allocates") {
  TrainingChoice t = training(Objective::grpo, Method::lora, Precision::bf16_amp);
  const Gpu* gpu = find_gpu(shipped_catalogue(), "a100-sxm4-80gb");
  REQUIRE(gpu != nullptr);
  const MemoryEstimate alone = estimate_memory(step_of(kLlama, t), gpu);
  t.generation->engine_share = 0.25;
  const MemoryEstimate shared = estimate_memory(step_of(kLlama, t), gpu);
  CHECK(shared.inference_engine == Bytes(usable_bytes(*gpu).value / 4));
  CHECK(shared.allocated.expected == alone.allocated.expected);
  CHECK(shared.device.expected == alone.device.expected + shared.inference_engine);
  Bytes beyond;
  for (const ComponentRow& row : beyond_allocated(shared)) beyond += row.bytes;
  CHECK(beyond == shared.device.expected - shared.allocated.expected);
}

// ---- reports of people who ran out of memory

namespace {

MemoryEstimate on_a100(std::string_view model, const TrainingChoice& t) {
  return estimate_memory(step_of(model, t), find_gpu(shipped_catalogue(), "a100-sxm4-80gb"));
}

bool fits_a100(const MemoryEstimate& m) {
  return m.device.expected < usable_bytes(*find_gpu(shipped_catalogue(), "a100-sxm4-80gb"));
}

}  // namespace

TEST_CASE(
    "trl#3168: DPO of a 0.5B model in FP32 takes most of 80 GB, where fine-tuning on as many samples takes half") {
  TrainingChoice t = training(Objective::dpo, Method::full, Precision::fp32);
  t.micro_batch = 8;  // the Trainer's default
  t.recompute = Recompute::none;
  const MemoryEstimate dpo = on_a100(kQwen, t);
  CHECK(dpo.allocated.expected.value > 70'000'000'000);
  t.objective = Objective::sft;
  t.reference.reset();
  const MemoryEstimate sft = on_a100(kQwen, t);
  CHECK(sft.allocated.expected.value < 43'000'000'000);
  // Beside its second sequence a sample has a reference: 2 GB of weights, counted once.
  CHECK((dpo.allocated.expected - sft.allocated.expected).value > 4 * kQwenParameters);
}

TEST_CASE("trl#3456: GRPO with 1024 tokens of completion, where logits outweigh the model") {
  TrainingChoice t = training(Objective::grpo, Method::full, Precision::bf16_amp);
  t.micro_batch = 4;
  t.sequence_length = 1024 + 512;
  t.generation->completion_length = 1024;
  t.recompute = Recompute::none;
  const MemoryEstimate small = on_a100("Qwen/Qwen3-0.6B", t);
  const MemoryEstimate medium = on_a100("Qwen/Qwen3-1.7B", t);
  const MemoryEstimate large = on_a100("Qwen/Qwen3-4B", t);
  CHECK(fits_a100(small));
  CHECK_FALSE(fits_a100(large));
  CHECK(small.device.expected < medium.device.expected);
  // FP32 logits of the completions at the sampling temperature: 2.5 GB, as much as the FP32 weights.
  CHECK(held(step_of("Qwen/Qwen3-0.6B", t), Component::logits, EventKind::backward_head) ==
        4LL * 1025 * (kQwenVocabulary * 4 + 1024 * 2));  // and the head's input in 16 bits
}

TEST_CASE("trl#3163: with an engine on the card, shorter answers change what training allocates only") {
  TrainingChoice t = training(Objective::grpo, Method::full, Precision::bf16);
  t.generation->engine_share = 0.3;
  t.generation->completion_length = 512;
  const MemoryEstimate longer = on_a100(kQwen, t);
  t.generation->completion_length = 256;
  const MemoryEstimate shorter = on_a100(kQwen, t);
  CHECK(shorter.inference_engine == longer.inference_engine);
  CHECK(shorter.inference_engine > shorter.allocated.expected);
}
