// What a step keeps under single choices, with bytes derived by hand from the published shapes.
#include "vramplan/step.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>

#include "support/steps.hpp"

using namespace vramplan;
using support::held;
using support::model_of;

namespace {

constexpr std::string_view kLlama = "meta-llama/Llama-3.1-8B";
constexpr std::string_view kQwen = "Qwen/Qwen2.5-0.5B";
constexpr std::int64_t kTokens = 1024;

// Llama 3.1 8B, one layer: q and o 4096 x 4096, k and v 1024 x 4096, gate, up and down 14336 x 4096, two norms.
constexpr std::int64_t kLlamaLayer = 2LL * 4096 * 4096 + 2LL * 1024 * 4096 + 3LL * 14336 * 4096 + 2 * 4096;
constexpr std::int64_t kLlamaTable = 128256LL * 4096;
constexpr std::int64_t kQwenTable = 151936LL * 896;

TrainingChoice training(Method method, Precision precision = Precision::bf16_amp) {
  PlanRequest request;
  request.training.method = method;
  request.training.precision = precision;
  request.training.sequence_length = kTokens;
  request.training.lora.dropout = 0.0;
  return resolve_defaults(request).training;
}

Step step_of(std::string_view model, const TrainingChoice& t) {
  return Step(prepare(model_of(model), t, LayoutChoice{}, Bytes(0)));
}

TrainingChoice saving(std::vector<SavedModule> modules, Precision precision = Precision::bf16_amp) {
  TrainingChoice t = training(Method::lora, precision);
  t.lora.modules_to_save = std::move(modules);
  return t;
}

TrainingChoice int8(Recompute recompute) {
  TrainingChoice t = training(Method::lora);
  t.base_weights = WeightFormat::int8;
  t.recompute = recompute;
  return t;
}

}  // namespace

// ---- copies of modules beside adapters

TEST_CASE("saved modules are copies in the type they have, with gradients and states of that type") {
  const Step step = step_of(kLlama, saving({SavedModule::embedding, SavedModule::head}));
  const std::int64_t copies = 2 * kLlamaTable;
  constexpr std::int64_t kAdapters = 41'943'040;
  CHECK(step.run().inventory.trained() == Params(kAdapters + copies));
  CHECK(held(step, Component::frozen_weights, EventKind::steady) == 2 * 8'030'261'248);  // the originals stay
  CHECK(held(step, Component::weights, EventKind::steady) == 2 * copies);
  CHECK(held(step, Component::gradients, EventKind::optimizer_step) == 4 * kAdapters + 2 * copies);
  CHECK(held(step, Component::optimizer_states, EventKind::steady) == 2 * (4 * kAdapters + 2 * copies));
}

TEST_CASE("gradients of copies appear where backward makes them") {
  const Step step = step_of(kLlama, saving({SavedModule::embedding, SavedModule::head}));
  CHECK(held(step, Component::gradients, EventKind::backward_block, 31) >= 2 * kLlamaTable);
  CHECK(held(step, Component::gradients, EventKind::backward_block, 31) < 4 * kLlamaTable);
  CHECK(held(step, Component::gradients, EventKind::backward_embedding) == 4 * 41'943'040 + 4 * kLlamaTable);
  const Step plain = step_of(kLlama, training(Method::lora));
  CHECK(held(plain, Component::gradients, EventKind::backward_head) == 0);
}

TEST_CASE("the head of a tied model becomes a table of its own when it is copied") {
  for (const SavedModule module : {SavedModule::embedding, SavedModule::head}) {
    CHECK(step_of(kQwen, saving({module})).run().inventory.copies == Params(kQwenTable));
  }
  CHECK(step_of(kQwen, saving({SavedModule::embedding, SavedModule::head})).run().inventory.copies ==
        Params(2 * kQwenTable));
}

TEST_CASE("8-bit Adam keeps FP32 states of a copied embedding, not of a copied head") {
  const auto states = [](std::vector<SavedModule> modules) {
    TrainingChoice t = saving(std::move(modules));
    t.optimizer.states = StateFormat::int8;
    return held(step_of(kLlama, t), Component::optimizer_states, EventKind::steady);
  };
  const std::int64_t adapters = states({});
  CHECK(states({SavedModule::embedding}) - adapters == 2 * 4 * kLlamaTable);
  CHECK(states({SavedModule::head}) - adapters == 2 * (kLlamaTable + 4 * kLlamaTable / 256));
}

TEST_CASE("rank stabilisation and unused modules to save cost nothing") {
  TrainingChoice t = training(Method::lora);
  const Bytes plain = step_of(kLlama, t).highest().bytes;
  t.lora.rslora = true;
  CHECK(step_of(kLlama, t).highest().bytes == plain);
  TrainingChoice full = training(Method::full);
  const Bytes whole = step_of(kQwen, full).highest().bytes;
  full.lora.modules_to_save = {SavedModule::head};
  CHECK(step_of(kQwen, full).highest().bytes == whole);
}

TEST_CASE("LlamaFactory#6285: added tokens make embedding and head trainable, which costs more than the adapters") {
  const Bytes adapters = step_of("Qwen/Qwen2.5-7B", training(Method::lora)).highest().bytes;
  const Bytes tokens = step_of("Qwen/Qwen2.5-7B", saving({SavedModule::embedding, SavedModule::head})).highest().bytes;
  // Copies and states of two tables of 152064 x 3584 in 16 bits: 6.5 GB, whatever the moment of the peak.
  CHECK((tokens - adapters).value >= 2LL * 152064 * 3584 * (2 + 4));
}

// ---- the last layers only

TEST_CASE("freezing trains nothing outside the last layers: no gradient of the head or of the final norm") {
  TrainingChoice t = training(Method::freeze, Precision::bf16);
  t.trainable_layers = 1;
  const Step step = step_of(kLlama, t);
  CHECK(held(step, Component::gradients, EventKind::optimizer_step) == 2 * kLlamaLayer);
  t.trainable_layers = 2;  // before the last but one runs backward, the gradients of the last are there
  CHECK(held(step_of(kLlama, t), Component::gradients, EventKind::recompute_block, 30) == 2 * kLlamaLayer);
  CHECK(held(step, Component::weights, EventKind::steady) == 2 * kLlamaLayer);
  CHECK(held(step, Component::frozen_weights, EventKind::steady) == 2 * (8'030'261'248 - kLlamaLayer));
}

TEST_CASE("frozen layers keep nothing for backward") {
  TrainingChoice t = training(Method::freeze, Precision::bf16);
  t.recompute = Recompute::none;
  t.trainable_layers = 1;
  const Step step = step_of(kLlama, t);
  CHECK(step.kept_per_layer(step.stacks().front()) == Bytes(0));
  CHECK(step.stacks().front().count == 31);
  CHECK(step.kept_per_layer(step.stacks().back()) > Bytes(0));
}

// ---- 8-bit and 4-bit products

TEST_CASE("LLM.int8 holds its inputs on the graph, where no checkpoint sees them") {
  const Step step = step_of(kLlama, int8(Recompute::full));
  // Inputs of q, k, v and of gate, up: one storage each. Inputs of o and of down. All in 16 bits, in 32 layers.
  CHECK(held(step, Component::activations_mlp, EventKind::forward_head) == 32 * kTokens * 14336 * 2);
  CHECK(held(step, Component::activations_attention, EventKind::forward_head) == 32 * kTokens * 4096 * 2);
  CHECK(held(step, Component::checkpoints, EventKind::forward_head) == 32 * kTokens * 4096 * 2);
  // And keeps them until backward has ended.
  CHECK(held(step, Component::activations_mlp, EventKind::recompute_block, 0) >= 32 * kTokens * 14336 * 2);
  const Step nf4 = step_of(kLlama, training(Method::qlora));
  CHECK(held(nf4, Component::activations_mlp, EventKind::forward_head) == 0);
}

TEST_CASE("LLM.int8 multiplies in 8 bits forward; backward makes the weight in the type of the input") {
  const Step step = step_of(kLlama, int8(Recompute::none));
  CHECK(held(step, Component::dequantized_weights, EventKind::forward_block, 16) == 0);
  // FP32 row scales beside one byte a value.
  const std::int64_t rows = 32LL * (2 * 4096 + 2 * 1024 + 2 * 14336 + 4096);
  CHECK(held(step, Component::quantization_constants, EventKind::steady) == 4 * rows);
}

TEST_CASE("a 4-bit product unpacks one weight at a time, the same for NF4 and FP4") {
  const auto peak = [](WeightFormat format) {
    TrainingChoice t = training(Method::qlora);
    t.base_weights = format;
    return step_of(kLlama, t).highest().bytes;
  };
  CHECK(peak(WeightFormat::nf4) == peak(WeightFormat::fp4));
}

// ---- who prepares a quantized base

TEST_CASE("TRL of 2025 lowers embedding and head again, today's adapters instead") {
  const auto prepared = [](std::optional<Trainer> trainer, Version version, bool upcast) {
    PlanRequest request;
    request.training.method = Method::qlora;
    request.training.trainer = trainer;
    request.training.framework_version = version;
    request.training.kbit_upcast = upcast;
    return step_of(kLlama, resolve_defaults(request).training);
  };
  constexpr std::int64_t kNorms = 65LL * 4096;
  constexpr std::int64_t kPacked = 32 * (kLlamaLayer - 2 * 4096) / 2;
  constexpr std::int64_t kAdapters = 41'943'040;
  const auto frozen = [](const Step& s) { return held(s, Component::frozen_weights, EventKind::steady); };
  const auto adapters = [](const Step& s) { return held(s, Component::adapters, EventKind::steady); };
  const Step script = prepared({}, {4, 48}, true);
  CHECK(frozen(script) == kPacked + 4 * (2 * kLlamaTable + kNorms));
  const Step trl = prepared(Trainer::trl, {4, 48}, true);
  CHECK(frozen(trl) == kPacked + 2 * 2 * kLlamaTable + 4 * kNorms);
  CHECK(adapters(trl) == 4 * kAdapters);
  const Step today = prepared(Trainer::trl, {5, 24}, false);
  CHECK(frozen(today) == kPacked + 2 * (2 * kLlamaTable + kNorms));
  CHECK(adapters(today) == 2 * kAdapters);
  CHECK(held(today, Component::optimizer_states, EventKind::steady) == 2 * 2 * kAdapters);
}

// ---- what the allocator holds

TEST_CASE("beside the logits the allocator holds what the blocks' forward left in its cache") {
  TrainingChoice t = training(Method::freeze, Precision::bf16);
  t.trainable_layers = 1;
  t.sequence_length = 8192;
  const Step step = step_of(kLlama, t);
  // Of a token in a frozen layer: its input, the stream behind attention and the norm of that; gate's activation, up
  // and their product, in 16 bits.
  constexpr std::int64_t kLeft = 2 * (3 * 4096 + 3 * 14336);
  const Bytes head = std::max(step.live({EventKind::forward_head}), step.live({EventKind::backward_head}));
  CHECK(step.highest().bytes == head);
  CHECK((step.highest().held - head).value == 8192 * kLeft);
  t.recompute = Recompute::none;
  const Step kept = step_of(kLlama, t);
  CHECK(kept.highest().held == kept.highest().bytes);
}

// ---- one table for embedding and head

namespace {

constexpr std::string_view kSmallLlama = "meta-llama/Llama-3.2-1B";
constexpr std::int64_t kSmallTable = 128256LL * 2048;

}  // namespace

TEST_CASE("the two gradients of a tied table make a third, but where one is no view of a product") {
  TrainingChoice t = training(Method::full, Precision::bf16);
  t.recompute = Recompute::none;
  const auto gradients = [](const Step& step) {
    return held(step, Component::gradients, EventKind::backward_embedding);
  };
  const Step plain = step_of(kSmallLlama, t);
  const std::int64_t all = plain.run().inventory.total.value;
  CHECK(gradients(plain) == 2 * (all + 2 * kSmallTable));
  // Under autocast the head's gradient is cast to FP32: the embedding's is added to that.
  TrainingChoice mixed = training(Method::full);
  mixed.recompute = Recompute::none;
  CHECK(gradients(step_of(kSmallLlama, mixed)) == 4 * (all + kSmallTable));
}

TEST_CASE("beside gradients of earlier passes the head's gradient of a tied table waits for the embedding's") {
  TrainingChoice t = training(Method::full, Precision::bf16);
  t.global_batch = 2;
  const Step tied = step_of(kSmallLlama, t);
  const std::int64_t all = tied.run().inventory.total.value;
  CHECK(held(tied, Component::gradients, EventKind::backward_block, 12) == 2 * (all + kSmallTable));
  CHECK(held(tied, Component::gradients, EventKind::backward_embedding) == 2 * (all + 3 * kSmallTable));
  const Step apart = step_of(kLlama, t);
  CHECK(held(apart, Component::gradients, EventKind::backward_block, 12) == 2 * apart.run().inventory.total.value);
}

TEST_CASE("under ZeRO-2 the head's gradient of a tied table waits beside the shards") {
  PlanRequest request;
  request.training.framework = FrameworkId::deepspeed;
  request.training.method = Method::full;
  const TrainingChoice t = resolve_defaults(request).training;
  LayoutChoice two;
  two.dp = 2;
  two.zero = 2;
  const Step step(prepare(model_of(kSmallLlama), t, two, Bytes(0)));
  CHECK(held(step, Component::gradients, EventKind::backward_block, 12) -
            held(step, Component::gradients, EventKind::optimizer_step) ==
        2 * kSmallTable);
}
