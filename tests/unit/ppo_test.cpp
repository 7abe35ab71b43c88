// PPO as TRL's PPOTrainer plays it: four models, of which two are trained. Bytes by hand, of Qwen2.5-0.5B (24 layers of
// width 896, a tied table of 151936 x 896) unless said otherwise.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "support/steps.hpp"
#include "vramplan/planner.hpp"
#include "vramplan/step.hpp"

using namespace vramplan;
using support::held;
using support::model_of;

namespace {

constexpr std::string_view kQwen = "Qwen/Qwen2.5-0.5B";
constexpr std::int64_t kVocabulary = 151936;
constexpr std::int64_t kParameters = 494'032'768;
constexpr std::int64_t kScoring = kParameters + 896;  // a tied head goes, a row that scores comes
constexpr std::int64_t kStream = 1024LL * 896;        // of one sequence

TrainingChoice ppo(Method method, Precision precision) {
  PlanRequest request;
  request.training.objective = Objective::ppo;
  request.training.method = method;
  request.training.precision = precision;
  request.training.sequence_length = 1024;
  return resolve_defaults(request).training;
}

Step step_of(const TrainingChoice& t, std::string_view model = kQwen) {
  return Step(prepare(model_of(model), t, LayoutChoice{}, Bytes(0)));
}

}  // namespace

TEST_CASE("what an absent choice stands for") {
  const TrainingChoice full = ppo(Method::full, Precision::bf16);
  CHECK(full.reference == Reference::model);
  CHECK(full.value_model == ValueModel::full);
  CHECK(full.reward_model == RewardModel::model);
  REQUIRE(full.generation.has_value());
  CHECK(full.generation->completion_length == 53);
  CHECK(ppo(Method::lora, Precision::bf16_amp).reference == Reference::adapters_off);
  CHECK(ppo(Method::lora, Precision::bf16_amp).value_model == ValueModel::full);
  CHECK(ppo(Method::qlora, Precision::bf16_amp).value_model == ValueModel::adapters);
}

TEST_CASE("two models are trained, two are frozen") {
  TrainingChoice t = ppo(Method::full, Precision::bf16);
  CHECK(held(step_of(t), Component::weights, EventKind::steady) == 2 * (kParameters + kScoring));
  CHECK(held(step_of(t), Component::frozen_weights, EventKind::steady) == 2 * (kParameters + kScoring));
  CHECK(held(step_of(t), Component::optimizer_states, EventKind::steady) == 4 * (kParameters + kScoring));
  CHECK(held(step_of(t), Component::gradients, EventKind::optimizer_step) == 2 * (kParameters + kScoring));
  t.reward_model = RewardModel::external;
  CHECK(held(step_of(t), Component::frozen_weights, EventKind::steady) == 2 * kParameters);
}

TEST_CASE("beside adapters the value model is trained whole, with states in the type of its weights") {
  constexpr std::string_view kLlama = "meta-llama/Llama-3.1-8B";
  constexpr std::int64_t kAdapters = 41'943'040;
  constexpr std::int64_t kLlamaScoring = 8'030'261'248 - 128256LL * 4096 + 4096;
  TrainingChoice t = ppo(Method::lora, Precision::bf16_amp);
  const Step full = step_of(t, kLlama);
  CHECK(held(full, Component::weights, EventKind::steady) == 2 * kLlamaScoring);
  CHECK(held(full, Component::optimizer_states, EventKind::steady) == 8 * kAdapters + 4 * kLlamaScoring);
  t.value_model = ValueModel::adapters;
  const Step adapters = step_of(t, kLlama);
  CHECK(held(adapters, Component::adapters, EventKind::steady) == 2 * 4 * kAdapters);
  CHECK(held(adapters, Component::weights, EventKind::steady) == 2 * 4096);  // the copy of its score
}

TEST_CASE("the value model runs before the policy, and backward after it") {
  std::vector<EventKind> kinds;
  for (const Event event : step_of(ppo(Method::full, Precision::bf16)).events()) kinds.push_back(event.kind);
  CHECK(kinds[1] == EventKind::generation);
  CHECK(kinds[2] == EventKind::reference_forward);
  CHECK(kinds[3] == EventKind::value_forward);
  CHECK(kinds[4] == EventKind::forward_embedding);
  const auto end = std::find(kinds.begin(), kinds.end(), EventKind::backward_embedding);
  REQUIRE(end != kinds.end());
  CHECK(*(end + 1) == EventKind::value_backward);
}

TEST_CASE("while the policy runs, the value model keeps its checkpoints") {
  TrainingChoice t = ppo(Method::full, Precision::bf16);
  const std::int64_t own = 24 * kStream * 2;
  CHECK(held(step_of(t), Component::checkpoints, EventKind::backward_head) == 2 * own);
  t.recompute = Recompute::none;
  const Step step = step_of(t);
  const auto saved = [&](EventKind kind) { return held(step, Component::activations_mlp, kind); };
  CHECK(saved(EventKind::backward_head) == 2 * saved(EventKind::forward_embedding));
}

TEST_CASE("backward through logits that were divided in place: a whole gradient twice, and two of the answer's part") {
  TrainingChoice t = ppo(Method::full, Precision::fp32);
  t.generation->completion_length = 255;
  const Step step = step_of(t);
  const std::int64_t all = 1024 * kVocabulary * 4;
  const std::int64_t answer = 255 * kVocabulary * 4;
  CHECK(held(step, Component::logits, EventKind::backward_head) == all);
  CHECK(held(step, Component::activation_gradients, EventKind::backward_head) == 2 * all);
  CHECK(held(step, Component::working_memory, EventKind::backward_head) == 2 * answer);
}

TEST_CASE("what the policy answered stays until the optimizer has run") {
  const TrainingChoice t = ppo(Method::full, Precision::bf16);
  const Step step = step_of(t);
  const std::int64_t logits = 1024 * kVocabulary * 2;
  for (const EventKind kind : {EventKind::value_backward, EventKind::optimizer_step}) {
    CHECK(held(step, Component::logits, kind) == logits);
  }
  // The inputs of 24 layers and the last norm's output.
  CHECK(held(step, Component::activations_residual, EventKind::optimizer_step) == 25 * kStream * 2);
  CHECK(held(step, Component::logits, EventKind::steady) == 0);
  // Half way through backward 12 inputs are checkpoints still, that of the running layer among them.
  CHECK(held(step, Component::activations_residual, EventKind::recompute_block, 11) >= 13 * kStream * 2);
  CHECK(held(step, Component::checkpoints, EventKind::recompute_block, 11) == (12 + 24) * kStream * 2);
}

TEST_CASE("autocast's outputs are raised: FP32 copies of all 16-bit hidden states") {
  const Step step = step_of(ppo(Method::lora, Precision::bf16_amp));
  CHECK(held(step, Component::activations_residual, EventKind::optimizer_step) == 25 * kStream * 4);
  CHECK(held(step, Component::logits, EventKind::optimizer_step) == 1024 * kVocabulary * 4);
}

TEST_CASE("the policy keeps the FP32 scores of all that it writes, and stacks them beside the cache") {
  TrainingChoice t = ppo(Method::full, Precision::bf16);
  t.generation->completion_length = 256;
  t.micro_batch = 4;
  t.global_batch = 32;
  const Step step = step_of(t);
  const std::int64_t scores = 32LL * 256 * kVocabulary * 4;
  CHECK(held(step, Component::logits, EventKind::generation) == 2 * scores);
  // 24 layers, two key-value heads of 64: 32 sequences of 1024 tokens, in 16 bits.
  CHECK(held(step, Component::kv_cache, EventKind::generation) == 24LL * 2 * 2 * 64 * 32 * 1024 * 2);
  // Then the reference: those scores, its own logits and hidden states.
  CHECK(held(step, Component::logits, EventKind::reference_forward) == scores);
  CHECK(held(step, Component::working_memory, EventKind::reference_forward) >
        32 * (25 * kStream * 2 + 1024 * kVocabulary * 2));
}

TEST_CASE("64 sequences are written and judged at a time") {
  TrainingChoice t = ppo(Method::full, Precision::bf16);
  t.global_batch = 128;
  t.generation->completion_length = 16;
  const Step step = step_of(t);
  const std::int64_t score = 16LL * kVocabulary * 4;
  CHECK(held(step, Component::kv_cache, EventKind::generation) == 24LL * 2 * 2 * 64 * 64 * 1024 * 2);
  CHECK(held(step, Component::logits, EventKind::generation) == (128 + 64) * score);
  // Scores of 64 longer answers outweigh the cache: joining both groups holds more.
  t.generation->completion_length = 53;
  CHECK(held(step_of(t), Component::logits, EventKind::generation) == 2LL * 128 * 53 * kVocabulary * 4);
  CHECK(held(step_of(t), Component::kv_cache, EventKind::generation) == 0);
}

TEST_CASE("under mixed precision the policy writes without autocast: an FP32 cache of FP32 weights") {
  const TrainingChoice t = ppo(Method::full, Precision::bf16_amp);
  CHECK(held(step_of(t), Component::kv_cache, EventKind::generation) == 24LL * 2 * 2 * 64 * 1024 * 4);
}

TEST_CASE("gradients of earlier passes are there from the value model's forward on") {
  TrainingChoice t = ppo(Method::full, Precision::bf16);
  t.global_batch = 2;
  const Step step = step_of(t);
  for (const EventKind kind : {EventKind::value_forward, EventKind::forward_head}) {
    CHECK(held(step, Component::gradients, kind) == 2 * (kParameters + kScoring));
  }
  // It is highest where the gradient of its embedding is added.
  CHECK(held(step, Component::gradients, EventKind::value_backward) ==
        2 * (kParameters + kScoring + kVocabulary * 896));
  CHECK(held(step, Component::gradients, EventKind::generation) == 0);
}

TEST_CASE("preferences, scores and PPO switch dropout off") {
  for (const Objective objective : {Objective::dpo, Objective::reward, Objective::ppo}) {
    TrainingChoice t = ppo(Method::lora, Precision::bf16_amp);
    t.objective = objective;
    t.recompute = Recompute::none;
    if (objective != Objective::ppo) t.value_model.reset(), t.generation.reset(), t.reward_model.reset();
    t.lora.dropout = 0.05;
    const Bytes with = step_of(t).live({EventKind::backward_head});
    t.lora.dropout = 0.0;
    CHECK(step_of(t).live({EventKind::backward_head}) == with);
  }
}

TEST_CASE("PPO's trainer divides no model over ranks, however many there are") {
  PlanRequest request;
  request.model = ModelById{"Qwen/Qwen2.5-0.5B", {}};
  request.training = ppo(Method::lora, Precision::bf16_amp);
  request.hardware = HardwareChoice{"h100-sxm-80gb", 8, {}};
  const Result<Report> report = answer(request, shipped_catalogue());
  REQUIRE(report.ok());
  CHECK(report.value().request.layout->dp == 8);
  CHECK(report.value().request.layout->zero == 0);
}

TEST_CASE("a size asked for later is the size asked for at once") {
  TrainingChoice t = ppo(Method::lora, Precision::bf16_amp);
  Step resized = step_of(t);
  resized.resize({}, {4, 512}, Bytes(0));
  t.micro_batch = 4;
  t.sequence_length = 512;
  const Step made = step_of(t);
  for (const Event event : made.events()) CHECK(resized.live(event) == made.live(event));
}
