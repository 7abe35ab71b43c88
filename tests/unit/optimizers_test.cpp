// States and temporaries of each optimizer on Qwen2.5-0.5B, against bytes worked out by hand from its shapes:
// 24 layers with q and o 896 x 896, k and v 128 x 896, gate and up 4864 x 896, down 896 x 4864, three biases (896, 128,
// 128), two norms of 896; a tied table of 151936 x 896; a final norm.
#include <doctest/doctest.h>

#include <algorithm>

#include "support/steps.hpp"
#include "vramplan/states.hpp"
#include "vramplan/step.hpp"

using namespace vramplan;
using support::held;

namespace {

constexpr std::int64_t kSquare = 896LL * 896;
constexpr std::int64_t kNarrow = 128LL * 896;
constexpr std::int64_t kWide = 4864LL * 896;
constexpr std::int64_t kTable = 151936LL * 896;
constexpr std::int64_t kVectors = 896 + 128 + 128 + 2 * 896;  // of a layer
constexpr std::int64_t kMatrices = 2 * kSquare + 2 * kNarrow + 3 * kWide;
constexpr std::int64_t kHidden = 24 * kMatrices;
constexpr std::int64_t kOutside = kTable + 24 * kVectors + 896;
constexpr std::int64_t kAll = kHidden + kOutside;

const ModelArchitecture& qwen() { return support::model_of("Qwen/Qwen2.5-0.5B"); }

TrainingChoice choice(OptimizerName name, Precision precision = Precision::bf16,
                      FrameworkId framework = FrameworkId::transformers) {
  PlanRequest request;
  request.training.method = Method::full;
  request.training.precision = precision;
  request.training.framework = framework;
  request.training.optimizer.name = name;
  return resolve_defaults(request).training;
}

struct Sizes {
  std::int64_t states, temporaries;
};

Sizes sizes(const TrainingChoice& t, std::int64_t ranks = 1) {
  const FrameworkSwitches framework = switches_for(t, {});
  const StateTypes types = state_types(t, framework);
  const Inventory n = take_inventory(qwen(), t, parameter_groups(qwen()));
  Sharding sharding;
  sharding.optimizer = ranks;
  Contributions states;
  Contributions temporaries;
  const OptimizerMemory memory = optimizer_memory(n, t, framework, types);
  add_optimizer_states(states, memory, sharding);
  add_optimizer_temporaries(temporaries, memory, n, types, sharding);
  return {states.total().value, temporaries.total().value};
}

Step step_of(const TrainingChoice& t) { return Step(prepare(qwen(), t, {}, Bytes(0))); }

}  // namespace

// ---- BAdam: AdamW on FP32 copies of one layer

TEST_CASE("BAdam keeps FP32 weights and moments of one layer, and makes FP32 gradients of its gradients") {
  constexpr std::int64_t kLayer = kMatrices + kVectors;
  const TrainingChoice t = choice(OptimizerName::badam);
  CHECK(t.optimizer.master_weights);
  const Step step = step_of(t);
  CHECK(held(step, Component::master_weights, EventKind::steady) == 4 * kLayer);
  CHECK(held(step, Component::optimizer_states, EventKind::steady) == 8 * kLayer);
  CHECK(held(step, Component::gradients, EventKind::optimizer_step) == 2 * kLayer);
  CHECK(held(step, Component::optimizer_temporaries, EventKind::optimizer_step) == 2 * kLayer);
  CHECK(held(step, Component::weights, EventKind::steady) == 2 * kLayer);
  CHECK(held(step, Component::frozen_weights, EventKind::steady) == 2 * (kAll - kLayer));
}

TEST_CASE("BAdam's lowest layer: nothing outside the layers is trained, all layers have gradients of activations") {
  const Step step = step_of(choice(OptimizerName::badam));
  REQUIRE(step.stacks().size() == 2);
  CHECK(step.stacks()[0].count == 1);
  CHECK(step.stacks()[0].trained);
  // A walk through a block leaves biases out; they are counted when all gradients are there.
  CHECK(step.stacks()[0].block.profile().parameter_gradients.value == 2 * (kMatrices + 2 * 896));
  CHECK(step.stacks()[1].trained);
  CHECK(step.stacks()[1].block.profile().parameter_gradients == Bytes(0));
  CHECK(held(step, Component::gradients, EventKind::backward_block, 1) == 0);
}

TEST_CASE("BAdam copies FP32 weights as well, but no FP32 gradients") {
  const Step step = step_of(choice(OptimizerName::badam, Precision::fp32));
  CHECK(held(step, Component::master_weights, EventKind::steady) == 4 * (kMatrices + kVectors));
  CHECK(held(step, Component::optimizer_temporaries, EventKind::optimizer_step) == 0);
}

TEST_CASE("AdamW: foreach makes all roots at once, the fused kernel none, the loop a root and a quotient") {
  TrainingChoice t = choice(OptimizerName::adamw);
  t.optimizer.foreach = true;
  CHECK(sizes(t).states == 4 * kAll);
  CHECK(sizes(t).temporaries == 2 * (kHidden + kTable));  // the Trainer's biases and norms are a group of their own
  t.framework = FrameworkId::torchtune;
  CHECK(sizes(t).temporaries == 2 * kAll);
  t.framework = FrameworkId::transformers;
  t.optimizer.foreach = false;
  CHECK(sizes(t).temporaries == 0);
  t.optimizer.fused = false;
  CHECK(sizes(t).temporaries == 2 * 2 * kTable);  // the table comes first: nothing is left from before
}

TEST_CASE("4-bit AdamW: half a byte a state, a scale per 256 values, a table of 16 per state; vectors stay whole") {
  TrainingChoice t = choice(OptimizerName::adamw);
  t.optimizer.states = StateFormat::int4;
  const std::int64_t quantized = kHidden + kTable;
  const std::int64_t tensors = 24 * 7 + 1;
  CHECK(sizes(t).states == quantized + 2 * 4 * (quantized / 256) + 2 * 64 * tensors + 2 * 2 * (24 * kVectors + 896));
  t.framework = FrameworkId::torchtune;  // torchao's own default
  CHECK(sizes(t).states == quantized + 2 * 4 * (quantized / 128) + 2 * 64 * tensors + 2 * 2 * (24 * kVectors + 896));
}

TEST_CASE("SGD keeps a buffer only with momentum") {
  TrainingChoice t = choice(OptimizerName::sgd);
  CHECK(sizes(t).states == 0);
  t.optimizer.momentum = true;
  CHECK(sizes(t).states == 2 * kAll);
  CHECK(sizes(t).temporaries == 0);
}

TEST_CASE("Lion: FP32 in place in bitsandbytes, in the type of the weights with two temporaries elsewhere") {
  CHECK(sizes(choice(OptimizerName::lion)).states == 4 * kAll);
  CHECK(sizes(choice(OptimizerName::lion)).temporaries == 0);
  const TrainingChoice t = choice(OptimizerName::lion, Precision::bf16, FrameworkId::torchtune);
  CHECK(sizes(t).states == 2 * kAll);
  CHECK(sizes(t).temporaries == 2 * 2 * kTable);
}

TEST_CASE("Adafactor of Transformers copies a 16-bit gradient and weight to FP32 beside the square and its sum") {
  CHECK(sizes(choice(OptimizerName::adafactor)).temporaries == 4 * 4 * kTable);
  CHECK(sizes(choice(OptimizerName::adafactor, Precision::fp32)).temporaries == 2 * 4 * kTable);
}

TEST_CASE("Adafactor of PyTorch: states and estimates in the type of the weights") {
  TrainingChoice t = choice(OptimizerName::adafactor, Precision::bf16, FrameworkId::torchtune);
  const std::int64_t sums = 24 * (2 * 1792 + 2 * 1024 + 3 * 5760 + kVectors) + 152832 + 896;
  CHECK(sizes(t).states == 2 * sums);
  CHECK(sizes(t).temporaries == 2 * kAll);
  t.optimizer.foreach = false;
  CHECK(sizes(t).temporaries == 2 * (kTable + kSquare));  // the table's is still there when q begins
}

TEST_CASE("CAME: a first moment in FP32 and two pairs of rows and columns") {
  const std::int64_t rows_and_columns = 24 * (2 * 1792 + 2 * 1024 + 3 * 5760) + 152832;
  const std::int64_t vectors = 24 * kVectors + 896;
  const std::int64_t tensors = 24 * 12 + 2;
  CHECK(sizes(choice(OptimizerName::came)).states == 4 * kAll + 2 * 4 * rows_and_columns + 4 * vectors + 2 * tensors);
  CHECK(sizes(choice(OptimizerName::came)).temporaries == 4 * 4 * kTable);
}

TEST_CASE("Adam-mini: a full moment, and one second moment a row, a head or a vector; biases keep both") {
  // Blocks of q and k have 896 x 896 / 14 elements: 14 and 2 of them.
  const std::int64_t layer = (14 + 2) + (128 + 896) + (4864 + 4864 + 896) + (896 + 128 + 128) + 2;
  CHECK(sizes(choice(OptimizerName::adam_mini)).states == 2 * kAll + 2 * (24 * layer + 151936 + 1));
  CHECK(sizes(choice(OptimizerName::adam_mini)).temporaries == 2 * 2 * kTable);
}

TEST_CASE("Muon: one moment for the matrices of the blocks, AdamW for the rest") {
  TrainingChoice t = choice(OptimizerName::muon);
  CHECK(sizes(t).states == 2 * kHidden + 4 * kOutside);
  // The update, two iterates and two Gram matrices, all 16-bit; the fused AdamW has no temporaries.
  CHECK(sizes(t).temporaries == 3 * 2 * kWide + 2 * 2 * kSquare);
  t.optimizer.foreach = true;  // the roots of embedding and vectors are more than that
  CHECK(sizes(t).temporaries == 2 * kOutside);
}

TEST_CASE("GaLore: moments of rank x the longer side, a projector, AdamW for the rest") {
  TrainingChoice t = choice(OptimizerName::galore);
  CHECK(t.optimizer.rank == 128);
  const std::int64_t moments = 24 * 128 * (2 * 896 + 2 * 896 + 3 * 4864);
  // Of k and v the shorter side is 128.
  const std::int64_t projectors = 24 * 128 * (2 * 896 + 2 * 128 + 3 * 896);
  CHECK(sizes(t).states == 4 * (moments + kOutside) + 2 * projectors);
  t.optimizer.rank = 64;
  CHECK(sizes(t).states == 4 * (moments / 2 + kOutside) + 2 * projectors / 2);
}

TEST_CASE("GaLore in FP32: the projector keeps the whole matrix of singular vectors") {
  const TrainingChoice t = choice(OptimizerName::galore, Precision::fp32);
  const std::int64_t moments = 24 * 128 * (2 * 896 + 2 * 896 + 3 * 4864);
  const std::int64_t vectors = 24 * (2 * kSquare + 2 * 128 * 128 + 3 * kSquare);
  CHECK(sizes(t).states == 8 * (moments + kOutside) + 4 * vectors);
}

TEST_CASE("GaLore's 8-bit states are quantized as they are: low-rank, and embeddings too") {
  TrainingChoice t = choice(OptimizerName::galore);
  t.optimizer.states = StateFormat::int8;
  const std::int64_t large = 24 * 128 * (4 * 896 + 3 * 4864) + kTable;
  const std::int64_t projectors = 24 * 128 * (2 * 896 + 2 * 128 + 3 * 896);
  CHECK(sizes(t).states == 2 * (large + 4 * (large / 256) + 4 * (24 * kVectors + 896) + 4 * 256) + 2 * projectors);
}

TEST_CASE("GaLore's peak is the embedding's quotient, or a new projector beside what was left") {
  TrainingChoice t = choice(OptimizerName::galore);
  CHECK(sizes(t).temporaries == 2 * 2 * kTable + 2 * 896);  // both are still there when the next tensor begins
  t.method = Method::freeze;
  t.trainable_layers = 24;
  // FP32 gradient, its copy for the decomposition, both sides of it; the quotient of `gate` is left when `up` starts,
  // and its denominator of rank 128.
  CHECK(sizes(t).temporaries == 3 * 4 * kWide + 4 * kSquare + 4 * 896 + 2 * kWide + 2 * 128 * 4864);
}

TEST_CASE("APOLLO: GaLore's states with a random projector, and a norm per tensor; rank 1 is APOLLO-Mini") {
  TrainingChoice t = choice(OptimizerName::apollo);
  t.optimizer.rank = 1;
  const std::int64_t moments = 24 * (4 * 896 + 3 * 4864);
  const std::int64_t projectors = 24 * (2 * 896 + 2 * 128 + 3 * 896);
  CHECK(sizes(t).states == 4 * (moments + kOutside) + 2 * projectors + 2 * 24 * 7);
  CHECK(sizes(t).temporaries == 2 * 2 * kTable + 2 * 896);
}

TEST_CASE("LOMO keeps nothing, AdaLomo rows and columns in FP32") {
  CHECK(sizes(choice(OptimizerName::lomo)).states == 0);
  const std::int64_t sums = 24 * (2 * 1792 + 2 * 1024 + 3 * 5760 + kVectors) + 152832 + 896;
  CHECK(sizes(choice(OptimizerName::adalomo)).states == 4 * sums);
}

TEST_CASE("the methods galore and lomo are full training with those optimizers") {
  for (const auto& [method, name] :
       {std::pair{Method::galore, OptimizerName::galore}, std::pair{Method::lomo, OptimizerName::lomo}}) {
    PlanRequest request;
    request.training.method = method;
    request.training.precision = Precision::bf16;
    const TrainingChoice t = resolve_defaults(request).training;
    CHECK(t.optimizer.name == name);
    CHECK(step_of(t).highest().bytes == step_of(choice(name)).highest().bytes);
  }
}

// ---- master weights and moving averages

TEST_CASE("master weights: four bytes for each trained 16-bit parameter, shared like the states, which are FP32") {
  PlanRequest request;
  request.training.method = Method::full;
  request.training.precision = Precision::bf16;
  request.training.optimizer.master_weights = true;
  const TrainingChoice t = resolve_defaults(request).training;
  CHECK(held(step_of(t), Component::master_weights, {EventKind::steady}) == 4 * kAll);
  CHECK(sizes(t).states == 8 * kAll);
  LayoutChoice layout;
  layout.dp = 4;
  layout.zero = 1;
  const Step shared(prepare(qwen(), t, layout, Bytes(0)));
  CHECK(held(shared, Component::master_weights, {EventKind::steady}) == 4 * (kAll / 4));
  request.training.precision = Precision::bf16_amp;  // the weights are FP32 already
  const Step amp = step_of(resolve_defaults(request).training);
  CHECK(held(amp, Component::master_weights, {EventKind::steady}) == 0);
}

TEST_CASE("a moving average is a second set of the trained weights") {
  TrainingChoice t = choice(OptimizerName::adamw);
  t.ema = true;
  CHECK(held(step_of(t), Component::weights, {EventKind::steady}) == 2 * 2 * kAll);
}

// ---- copies of modules and states elsewhere

TEST_CASE("a copied embedding has FP32 states under the Trainer's 8-bit AdamW, a copied head 8-bit ones") {
  const ModelArchitecture& llama = support::model_of("meta-llama/Llama-3.1-8B");
  PlanRequest request;
  request.training.method = Method::lora;
  request.training.precision = Precision::bf16;
  request.training.lora.targets = {"q"};
  request.training.lora.rank = 8;
  request.training.lora.modules_to_save = {SavedModule::embedding, SavedModule::head};
  request.training.optimizer.states = StateFormat::int8;
  constexpr std::int64_t kCopy = 128256LL * 4096;
  constexpr std::int64_t kAdapters = 32LL * 8 * (4096 + 4096);
  constexpr std::int64_t kEight = kAdapters + kCopy;
  const auto states = [&](FrameworkId framework) {
    request.training.framework = framework;
    const TrainingChoice t = resolve_defaults(request).training;
    const FrameworkSwitches switches = switches_for(t, {});
    Contributions out;
    add_optimizer_states(
        out, optimizer_memory(take_inventory(llama, t, parameter_groups(llama)), t, switches, state_types(t, switches)),
        {});
    return out.total().value;
  };
  for (const FrameworkId framework : {FrameworkId::transformers, FrameworkId::liger, FrameworkId::unsloth})
    CHECK(states(framework) == 2 * (kEight + 4 * (kEight / 256) + 4 * kCopy + 4 * 256));
}

TEST_CASE("states of a copy take its type, those of adapters are FP32") {
  PlanRequest request;
  request.training.method = Method::lora;
  request.training.precision = Precision::bf16;
  request.training.lora.targets = {"q"};
  request.training.lora.rank = 8;
  request.training.lora.modules_to_save = {SavedModule::embedding};
  const TrainingChoice t = resolve_defaults(request).training;
  CHECK(sizes(t).states == 8 * 24 * 8 * (896 + 896) + 4 * kTable);
}

TEST_CASE("host memory has the paged states that are not on the GPU") {
  TrainingChoice t = choice(OptimizerName::adamw, Precision::fp32);
  t.optimizer.paged = true;
  CHECK(sizes(t).states == 8 * (24 * kVectors + 896));
  CHECK(step_of(t).host_memory().total().value == 8 * (kHidden + kTable));
}

// ---- when gradients and states are there

TEST_CASE("updates in backward: only the gradients of the running operation are alive") {
  TrainingChoice t = choice(OptimizerName::adamw);
  t.recompute = Recompute::none;
  const Step later = step_of(t);
  t.optimizer.in_backward = true;
  const Step now = step_of(t);
  CHECK(held(later, Component::gradients, {EventKind::optimizer_step}) == 2 * kAll);
  CHECK(held(now, Component::gradients, {EventKind::optimizer_step}) == 0);
  CHECK(held(now, Component::optimizer_temporaries, {EventKind::optimizer_step}) == 0);
  for (std::int32_t layer = 0; layer < 24; ++layer) {
    // The tied table's gradient waits for the embedding's.
    const std::int64_t gradients = held(now, Component::gradients, {EventKind::backward_block, layer});
    CHECK(gradients >= 2 * kTable);
    CHECK(gradients <= 2 * (kTable + kWide));
  }
}

TEST_CASE("updates in backward: temporaries come when the operation has run") {
  // Llama 3.1 8B: the head of 128256 x 4096 is a tensor of its own. In BF16, FP32 copies of its gradient and weight
  // less the gradient itself.
  const ModelArchitecture& llama = support::model_of("meta-llama/Llama-3.1-8B");
  const TrainingChoice t = choice(OptimizerName::lomo);
  const Inventory n = take_inventory(llama, t, parameter_groups(llama));
  const FrameworkSwitches framework = switches_for(t, {});
  const TensorUpdate outside = largest_update(n, t, framework, state_types(t, framework), false);
  CHECK(outside.elements == 128256LL * 4096);
  CHECK(outside.temporaries == Bytes(6 * 128256LL * 4096));
  CHECK(largest_update(n, t, framework, state_types(t, framework), true).temporaries == Bytes(6 * 14336LL * 4096));
  const Step step(prepare(llama, t, {}, Bytes(0)));
  CHECK(held(step, Component::optimizer_temporaries, {EventKind::backward_embedding}) == 6 * 128256LL * 4096);
  CHECK(held(step, Component::gradients, {EventKind::backward_embedding}) == 2 * 128256LL * 4096);
}

TEST_CASE("the first step is no higher than later ones, and lower where states are there at the peak") {
  for (const OptimizerName name : {OptimizerName::adamw, OptimizerName::adafactor, OptimizerName::galore}) {
    TrainingChoice t = choice(name);
    t.sequence_length = 65536;  // the peak is the logits'
    const Step step = step_of(t);
    CHECK(step.highest_of_first_step() <= step.highest().bytes);
    CHECK(step.highest_of_first_step() == step.highest().bytes - Bytes(sizes(t).states));
  }
}
