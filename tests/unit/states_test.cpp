// What stays from step to step, against counts made by hand from the published shapes.
#include "vramplan/states.hpp"

#include <doctest/doctest.h>

#include "support/steps.hpp"
#include "vramplan/step.hpp"

using namespace vramplan;
using support::model_of;

namespace {

// A request whose defaults are filled in, as plan() passes it on.
TrainingChoice training(Method method, Precision precision = Precision::bf16_amp) {
  PlanRequest request;
  request.training.method = method;
  request.training.precision = precision;
  return resolve_defaults(request).training;
}

Inventory inventory_of(std::string_view id, const TrainingChoice& t) {
  const ModelArchitecture& model = model_of(id);
  return take_inventory(model, t, parameter_groups(model));
}

FrameworkSwitches switches() { return {}; }

std::int64_t optimizer_bytes(const Inventory& n, const TrainingChoice& t, const Sharding& sharding = {}) {
  Contributions out;
  const FrameworkSwitches framework = switches_for(t, {});
  add_optimizer_states(out, optimizer_memory(n, t, framework, state_types(t, framework)), sharding);
  return out.total().value;
}

std::int64_t constants_of(const Inventory& n, WeightFormat format) {
  Contributions out;
  add_quantization_constants(out, n, format, 1);
  return out.total().value;
}

Bytes held(const Step& step, Component component, Event event) { return Bytes(support::held(step, component, event)); }

constexpr std::string_view kLlama = "meta-llama/Llama-3.1-8B";
constexpr std::string_view kQwen = "Qwen/Qwen2.5-0.5B";

// Llama 3.1 8B, one layer: q and o 4096 x 4096, k and v 1024 x 4096, gate, up and down 14336 x 4096.
constexpr std::int64_t kLlamaLayerLinear = 2LL * 4096 * 4096 + 2LL * 1024 * 4096 + 3LL * 14336 * 4096;
// rank x (inputs + outputs) of the same seven.
constexpr std::int64_t kLlamaLayerSides = 2LL * (4096 + 4096) + 2LL * (4096 + 1024) + 3LL * (4096 + 14336);
constexpr std::int64_t kLlamaLayerOutputs = 2LL * 4096 + 2LL * 1024 + 2LL * 14336 + 4096;

// Qwen2.5 0.5B, one layer: q and o 896 x 896, k and v 128 x 896, gate, up and down 4864 x 896; biases on q, k and v.
constexpr std::int64_t kQwenLayerLinear = 2LL * 896 * 896 + 2LL * 128 * 896 + 3LL * 4864 * 896;
constexpr std::int64_t kQwenLayerVectors = (896 + 128 + 128) + 2 * 896;
constexpr std::int64_t kQwenTable = 151936LL * 896;  // embedding and head are one tensor
// bitsandbytes: 256 values in FP32 that the 8-bit codes of a moment stand for.
constexpr std::int64_t kCodeMap = 4 * 256;

}  // namespace

// ---- adapters

TEST_CASE("LoRA on Llama 3.1 8B, rank 16, all linear layers: 41,943,040 parameters, as published") {
  const Inventory n = inventory_of(kLlama, training(Method::lora));
  CHECK(n.adapters == Params(41'943'040));
  CHECK(n.adapters == Params(32 * 16 * kLlamaLayerSides));
  CHECK(n.trained() == n.adapters);
  CHECK(n.trained_base == Params(0));
}

TEST_CASE("adapters grow with the rank and with the targets, and know grouped keys and values") {
  TrainingChoice t = training(Method::lora);
  t.lora.rank = 8;
  CHECK(inventory_of(kLlama, t).adapters == Params(20'971'520));
  t.lora.targets = {"q", "v"};
  CHECK(inventory_of(kLlama, t).adapters == Params(32 * 8 * (4096 + 4096 + 4096 + 1024)));
}

TEST_CASE("DoRA adds one magnitude an output") {
  const Inventory lora = inventory_of(kLlama, training(Method::lora));
  const Inventory dora = inventory_of(kLlama, training(Method::dora));
  CHECK(dora.adapters - lora.adapters == Params(32 * kLlamaLayerOutputs));
}

TEST_CASE("a fused projection takes one adapter where q, k or v are meant") {
  TrainingChoice t = training(Method::lora);
  t.lora.targets = {"q", "v"};
  // Phi-3 mini: 3072 inputs, 3 x 3072 outputs, 32 layers.
  CHECK(inventory_of("microsoft/Phi-3-mini-4k-instruct", t).adapters == Params(32 * 16 * (3072 + 9216)));
}

TEST_CASE("every expert has adapters of its own") {
  TrainingChoice t = training(Method::lora);
  t.lora.targets = {"gate", "up", "down"};
  // OLMoE: 16 layers, 64 experts, 2048 x 1024.
  CHECK(inventory_of("allenai/OLMoE-1B-7B-0924", t).adapters == Params(16LL * 64 * 3 * 16 * (2048 + 1024)));
}

// ---- what is counted

TEST_CASE("the linear layers of the blocks and the rest make up the model") {
  const Inventory n = inventory_of(kLlama, training(Method::qlora));
  CHECK(n.total == Params(8'030'261'248));
  CHECK(n.block_linear == Params(32 * kLlamaLayerLinear));
  CHECK(n.block_linear + n.leftovers == n.total);
  CHECK(n.largest_layer == Params(kLlamaLayerLinear + 2 * 4096));
  CHECK(n.outside_layers == Params(2LL * 128256 * 4096 + 4096));
}

TEST_CASE("a tied table is one tensor") {
  const Inventory n = inventory_of(kQwen, training(Method::full));
  CHECK(n.total == Params(494'032'768));
  CHECK(n.outside_layers == Params(kQwenTable + 896));
  CHECK(n.tensors.front().elements() == kQwenTable);
  CHECK(n.trained_base == n.total);
}

TEST_CASE("a frozen stack trains its last layers and nothing outside them") {
  TrainingChoice t = training(Method::freeze);
  t.trainable_layers = 3;
  CHECK(inventory_of(kLlama, t).trained_base == Params(3 * (kLlamaLayerLinear + 2 * 4096)));
  t.trainable_layers = 1000;
  CHECK(inventory_of(kLlama, t).trained_base == Params(32 * (kLlamaLayerLinear + 2 * 4096)));
}

// ---- optimizers

TEST_CASE("AdamW keeps two states a parameter, Lion one, SGD none") {
  TrainingChoice t = training(Method::full);
  const Inventory n = inventory_of(kQwen, t);
  CHECK(optimizer_bytes(n, t) == 8 * n.total.value);
  t.optimizer.states = StateFormat::bf16;
  CHECK(optimizer_bytes(n, t) == 4 * n.total.value);
  t.optimizer.states = StateFormat::fp32;
  t.optimizer.name = OptimizerName::lion;
  CHECK(optimizer_bytes(n, t) == 4 * n.total.value);
  t.optimizer.name = OptimizerName::sgd;
  CHECK(optimizer_bytes(n, t) == 0);
}

TEST_CASE("8-bit Adam: a byte a state, FP32 for small tensors and embeddings, a constant per 256 values") {
  TrainingChoice t = training(Method::full);
  t.optimizer.states = StateFormat::int8;
  const std::int64_t large = 24 * kQwenLayerLinear;  // every one of these matrices is whole blocks
  const std::int64_t small = kQwenTable + 24 * kQwenLayerVectors + 896;
  CHECK(optimizer_bytes(inventory_of(kQwen, t), t) == 2 * (large + 4 * (large / 256) + 4 * small + kCodeMap));
}

TEST_CASE("8-bit Adam outside the Trainer quantizes the embedding's states too") {
  TrainingChoice t = training(Method::full);
  t.framework = FrameworkId::torchtune;
  t.optimizer.states = StateFormat::int8;
  const std::int64_t large = 24 * kQwenLayerLinear + kQwenTable;
  const std::int64_t small = 24 * kQwenLayerVectors + 896;
  CHECK(optimizer_bytes(inventory_of(kQwen, t), t) == 2 * (large + 4 * (large / 256) + 4 * small + kCodeMap));
}

TEST_CASE("8-bit Adam: a tensor's last block of 256 is whole, tensors under 4096 elements have none") {
  TrainingChoice t = training(Method::lora);
  t.lora.rank = 17;
  t.lora.targets = {"k"};
  t.lora.dropout = 0.0;
  t.optimizer.states = StateFormat::int8;
  const Inventory n = inventory_of(kQwen, t);
  CHECK(n.adapters == Params(24 * 17 * (896 + 128)));
  // 17 x 896 = 15232 elements: 59 blocks and a half. 128 x 17 = 2176: small.
  CHECK(optimizer_bytes(n, t) == 24 * 2 * (17 * 896 + 4 * 60 + 4 * 17 * 128) + 2 * kCodeMap);
}

TEST_CASE("paged states are not in GPU memory, but for tensors under 100,000 elements and 8-bit constants") {
  TrainingChoice t = training(Method::full);
  t.optimizer.paged = true;
  // The smallest matrix, k and v of 128 x 896, has 114,688.
  CHECK(optimizer_bytes(inventory_of(kQwen, t), t) == 8 * (24 * kQwenLayerVectors + 896));
  t.optimizer.states = StateFormat::int8;
  CHECK(optimizer_bytes(inventory_of(kQwen, t), t) ==
        2 * (4 * (24 * kQwenLayerLinear / 256) + 4 * (24 * kQwenLayerVectors + 896) + kCodeMap));
}

TEST_CASE("Adafactor keeps a row and a column of each matrix, vectors whole") {
  TrainingChoice t = training(Method::full);
  t.optimizer.name = OptimizerName::adafactor;
  const std::int64_t layer = 2 * (896 + 896) + 2 * (128 + 896) + 3 * (4864 + 896) + kQwenLayerVectors;
  const std::int64_t tensors = 24 * (7 + 3 + 2) + 2;  // each has a root mean square
  CHECK(optimizer_bytes(inventory_of(kQwen, t), t) == 4 * (24 * layer + (151936 + 896) + 896 + tensors));
}

TEST_CASE("states of adapters are those of adapters alone") {
  const TrainingChoice t = training(Method::lora);
  CHECK(optimizer_bytes(inventory_of(kLlama, t), t) == 8 * 41'943'040LL);
}

// ---- quantizers

TEST_CASE("constants beside quantized weights") {
  const Inventory n = inventory_of(kLlama, training(Method::qlora));
  const std::int64_t linear = 32 * kLlamaLayerLinear;
  const std::int64_t outputs = 32 * kLlamaLayerOutputs;
  const std::int64_t inputs = 32 * (6LL * 4096 + 14336);
  CHECK(constants_of(n, WeightFormat::nf4) == linear / 64 * 4);
  CHECK(constants_of(n, WeightFormat::fp4) == linear / 64 * 4);
  CHECK(constants_of(n, WeightFormat::nf4_dq) == linear / 64 + linear / 64 / 256 * 4);
  CHECK(constants_of(n, WeightFormat::int8) == outputs * 4);
  CHECK(constants_of(n, WeightFormat::int4_gptq) == linear / 128 * 5 / 2 + inputs * 4);
  CHECK(constants_of(n, WeightFormat::mxfp4) == linear / 32);
  for (const WeightFormat format : {WeightFormat::fp32, WeightFormat::bf16, WeightFormat::fp16, WeightFormat::fp8}) {
    CHECK(constants_of(n, format) == 0);
  }
}

TEST_CASE("storage formats are rows of whole numbers") {
  CHECK(bytes_in_blocks(1000, storage_of(WeightFormat::fp32)) == Bytes(4000));
  CHECK(bytes_in_blocks(1000, storage_of(WeightFormat::bf16)) == Bytes(2000));
  CHECK(bytes_in_blocks(1000, storage_of(WeightFormat::int8)) == Bytes(1000));
  CHECK(bytes_in_blocks(1000, storage_of(WeightFormat::nf4)) == Bytes(500));
  CHECK(bytes_in_blocks(1001, storage_of(WeightFormat::nf4)) == Bytes(501));
}

// ---- sharding

TEST_CASE("each ZeRO stage divides one thing more") {
  LayoutChoice layout;
  layout.dp = 8;
  const auto shared = [&](std::int64_t stage) {
    layout.zero = stage;
    return sharding_of(training(Method::full), layout);
  };
  const auto check = [](const Sharding& s, std::int64_t optimizer, std::int64_t gradients, std::int64_t weights) {
    CHECK(s.optimizer == optimizer);
    CHECK(s.gradients == gradients);
    CHECK(s.weights == weights);
  };
  check(shared(0), 1, 1, 1);
  check(shared(1), 8, 1, 1);
  check(shared(2), 8, 8, 8);  // SHARD_GRAD_OP: whole only from forward to backward
  check(shared(3), 8, 8, 8);
}

TEST_CASE("the largest shard decides") {
  TrainingChoice t = training(Method::full);
  const Inventory n = inventory_of(kQwen, t);  // no multiple of 7
  CHECK(optimizer_bytes(n, t, {.weights = 1, .gradients = 1, .optimizer = 7}) == 8 * divide_up(n.total.value, 7));
}

TEST_CASE("DistributedDataParallel holds the gradients again in its buckets, sharded training does not") {
  const auto buckets = [](Method method, std::int64_t dp, std::int64_t zero) {
    LayoutChoice layout;
    layout.dp = dp;
    layout.zero = zero;
    const Step step(prepare(model_of(kLlama), training(method), layout, Bytes(0)));
    return held(step, Component::communication_buffers, {EventKind::steady}).value;
  };
  CHECK(buckets(Method::full, 1, 0) == 0);
  CHECK(buckets(Method::full, 2, 0) == 4 * 8'030'261'248);
  CHECK(buckets(Method::full, 16, 0) == 4 * 8'030'261'248);
  CHECK(buckets(Method::lora, 2, 0) == 4 * 41'943'040LL);
  CHECK(buckets(Method::full, 2, 3) == 0);
}

// ---- types

TEST_CASE("mixed precision keeps FP32 weights where an optimizer updates them, and only there") {
  const auto weights = [](Method method, Precision precision) {
    return state_types(training(method, precision), switches()).weights;
  };
  CHECK(weights(Method::full, Precision::bf16_amp) == ElementType::fp32);
  CHECK(weights(Method::full, Precision::fp16_amp) == ElementType::fp32);
  CHECK(weights(Method::full, Precision::bf16) == ElementType::bf16);
  CHECK(weights(Method::full, Precision::fp32) == ElementType::fp32);
  CHECK(weights(Method::lora, Precision::bf16_amp) == ElementType::bf16);
  CHECK(weights(Method::lora, Precision::fp16_amp) == ElementType::fp16);
}

TEST_CASE("PEFT's adapters took the type of 16-bit weights until it came with Transformers 4.43") {
  const auto adapters = [](Method method, WeightFormat base, Version version, std::int64_t ranks) {
    PlanRequest request;
    TrainingChoice& t = request.training;
    t.method = method;
    t.precision = Precision::bf16;
    t.base_weights = base;
    t.framework_version = version;
    LayoutChoice layout;
    layout.dp = ranks;
    layout.zero = ranks > 1 ? 3 : 0;
    return prepare(model_of(kQwen), resolve_defaults(request).training, layout, Bytes(0)).types.adapters;
  };
  constexpr Version kBefore{4, 42}, kSince{4, 43};
  CHECK(adapters(Method::lora, WeightFormat::bf16, kBefore, 1) == ElementType::bf16);
  CHECK(adapters(Method::lora, WeightFormat::bf16, kSince, 1) == ElementType::fp32);
  // Packed bytes have no type to take; FSDP stores them as 16-bit elements.
  CHECK(adapters(Method::qlora, WeightFormat::nf4, kBefore, 1) == ElementType::fp32);
  CHECK(adapters(Method::qlora, WeightFormat::nf4, kBefore, 2) == ElementType::bf16);
  CHECK(adapters(Method::qlora, WeightFormat::nf4, kSince, 2) == ElementType::fp32);
}

TEST_CASE("states of adapters have their type: two bytes each beside 16-bit weights under an old PEFT") {
  // Qwen2.5 0.5B, rank 16: 24 layers of 16 x (inputs + outputs) of the seven projections; two states.
  constexpr std::int64_t kSides = 2LL * (896 + 896) + 2LL * (896 + 128) + 3LL * (896 + 4864);
  const auto states = [](Version version) {
    PlanRequest request;
    TrainingChoice& t = request.training;
    t.method = Method::lora;
    t.precision = Precision::bf16;
    t.framework_version = version;
    t.lora.rank = 16;
    const TrainingChoice resolved = resolve_defaults(request).training;
    return optimizer_bytes(inventory_of(kQwen, resolved), resolved);
  };
  CHECK(states({4, 42}) == 2 * 2 * 24 * 16 * kSides);
  CHECK(states({4, 43}) == 2 * 4 * 24 * 16 * kSides);
}
