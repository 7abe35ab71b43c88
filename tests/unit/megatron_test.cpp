// Megatron-Core's layers and what stands beside them, against bytes worked out by hand from its sources.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "support/steps.hpp"
#include "vramplan/memory.hpp"
#include "vramplan/step.hpp"

using namespace vramplan;

namespace {

// Llama 3 70B: hidden, MLP, query and key widths, heads.
constexpr std::int64_t kH = 8192, kF = 28672, kQ = 8192, kKv = 1024, kHeads = 64, kV = 128256;
constexpr std::int64_t kTokens = 4096;

struct Case {
  std::string_view model = "meta-llama/Meta-Llama-3-70B";
  LayoutChoice layout{};
  TrainingChoice training{};
  std::int64_t stage = 0;

  Case() {
    training.framework = FrameworkId::megatron;
    training.method = Method::full;
    training.precision = Precision::bf16_amp;
    training.recompute = Recompute::none;
    training.attention = AttentionKernel::flash;
    training.cross_entropy = CrossEntropy::fused;
    training.sequence_length = kTokens;
    layout.zero = 1;
  }
  Case& tensor(std::int64_t ranks) {
    layout.tp = ranks;
    layout.sp = ranks > 1;
    return *this;
  }
  [[nodiscard]] Step step() const { return support::step_of(model, training, layout, stage); }
  [[nodiscard]] std::int64_t kept() const { return support::kept(step()); }
};

Case selective(std::vector<RecomputeModule> modules) {
  Case c;
  c.tensor(2);
  c.training.recompute = Recompute::selective;
  c.training.recompute_modules = std::move(modules);
  return c;
}

}  // namespace

TEST_CASE("a layer keeps two streams, two normed ones, q, k, v, the answer of attention, and the MLP's inner tensors") {
  // Streams and normed streams are shared by the ranks token by token, the rest width by width; a deviation for each
  // norm and a log-sum-exp for each head in FP32.
  const auto expected = [](std::int64_t tp) {
    return kTokens * (2 * (4 * kH + 2 * kQ + 2 * kKv + 3 * kF) + 2 * 4 + 4 * kHeads) / tp;
  };
  CHECK(Case().kept() == expected(1));
  CHECK(Case().tensor(2).kept() == expected(2));
  CHECK(Case().tensor(8).kept() == expected(8));
}

TEST_CASE("without sequence parallelism every rank keeps the whole streams") {
  Case c;
  c.layout.tp = 2;
  CHECK(c.kept() == kTokens * (2 * 4 * kH + 2 * 4 + (2 * (2 * kQ + 2 * kKv + 3 * kF) + 4 * kHeads) / 2));
}

TEST_CASE("without fused kernels norms raise their input, and activation and gate are operations of their own") {
  Case c;
  c.training.kernels = Kernels::eager;
  // A norm keeps its input in FP32 and what it divided it to, the matrix behind it the scaled one; the MLP keeps gate,
  // up, the activated gate and the product.
  const std::int64_t norms = 2 * ((4 + 2 + 2) * kH + 4);
  const std::int64_t attention = 2 * (2 * kQ + 2 * kKv) + 4 * kHeads;
  CHECK(c.kept() == kTokens * (norms + attention + 2 * 4 * kF));
  // Under tensor parallelism with shared tokens a rank's part of both.
  CHECK(c.tensor(2).kept() == kTokens * (norms + attention + 2 * 4 * kF) / 2);
}

TEST_CASE("unfused attention keeps queries, keys and values for every head, its answer, and the probabilities") {
  Case c;
  c.training.attention = AttentionKernel::eager;
  const std::int64_t rest = 2 * (4 * kH + 3 * kF) + 2 * 4;
  const std::int64_t probabilities = 2 * kHeads * kTokens;
  CHECK(c.kept() == kTokens * (rest + 2 * 4 * kQ + probabilities));
  // Computed again: what goes in, and the answer that the projection behind it keeps.
  c.training.recompute = Recompute::selective;
  CHECK(c.kept() == kTokens * (rest + 2 * (2 * kQ + 2 * kKv)));
}

TEST_CASE("a masked copy of the scores and its gradient come with a softmax that is not fused") {
  Case c;
  c.training.attention = AttentionKernel::eager;
  c.training.recompute = Recompute::full;
  const auto highest = [&](Kernels kernels) {
    c.training.kernels = kernels;
    return c.step().live({EventKind::backward_block, 40}).value;
  };
  // At the softmax: its result, the gradient of the probabilities and that of the masked scores; fused, the last one is
  // written over the second. Norms and MLP keep more as well, as above.
  const std::int64_t scores = 2 * kHeads * kTokens * kTokens;
  const std::int64_t kept = kTokens * (2 * (8 * kH + 4) + 2 * 4 * kF - (2 * 4 * kH + 2 * 4 + 2 * 3 * kF));
  CHECK(highest(Kernels::eager) - highest(Kernels::fused) >= scores);
  CHECK(highest(Kernels::eager) - highest(Kernels::fused) <= 2 * scores + kept);
}

TEST_CASE("ranks of context parallelism that exchange heads keep attention's own answer beside the one that goes on") {
  Case ring;
  ring.layout.cp = 4;
  ring.layout.cp_exchange = ContextExchange::ring;
  Case exchange = ring;
  exchange.layout.cp_exchange = ContextExchange::all_to_all;
  CHECK(exchange.kept() - ring.kept() == kTokens / 4 * 2 * kQ);
  Case open = ring;
  open.layout.cp_exchange.reset();
  CHECK(open.kept() == exchange.kept());
  open.layout.cp = 16;  // more than there are key heads
  ring.layout.cp = 16;
  CHECK(open.kept() == ring.kept());
}

TEST_CASE("modules that are computed again keep what goes in and what others keep of what comes out") {
  const std::int64_t all = Case().tensor(2).kept();
  // Attention's answer is kept by the projection behind it.
  CHECK(all - selective({RecomputeModule::core_attn}).kept() == kTokens * 4 * kHeads / 2);
  CHECK(all - selective({RecomputeModule::mlp}).kept() == kTokens * (2 * (kH + 3 * kF) + 4) / 2);
  // Its norm is one function with the matrix behind it.
  CHECK(selective({RecomputeModule::layernorm}).kept() == all);
  CHECK(selective({}).kept() == selective({RecomputeModule::core_attn}).kept());
}

TEST_CASE("what is computed again is there while its backward runs") {
  const Step none = Case().tensor(2).step();
  const Step mlp = selective({RecomputeModule::mlp}).step();
  const Event last{EventKind::backward_block, 79};
  // 79 layers keep less; the one that runs has everything.
  CHECK(none.live(last).value - mlp.live(last).value == 79 * (kTokens * (2 * (kH + 3 * kF) + 4) / 2));
}

TEST_CASE("a full checkpoint keeps a rank's part of the stream") {
  Case c;
  c.tensor(4);
  c.training.recompute = Recompute::full;
  CHECK(c.kept() == kTokens * 2 * kH / 4);
}

TEST_CASE("gradients stand in FP32, and one dummy for each shape of a matrix") {
  Case c;
  c.tensor(2);
  const Step step = c.step();
  const std::int64_t rows = kV / 2;  // 128,256 is a multiple of 2 x 128
  const std::int64_t matrices = (kH * (kQ + 2 * kKv) + kQ * kH + 3 * kH * kF) / 2;
  const std::int64_t parameters = 80 * (matrices + 2 * kH) + 2 * rows * kH + kH;
  CHECK(support::held(step, Component::gradients, EventKind::steady) == 4 * parameters);
  CHECK(support::held(step, Component::weights, EventKind::steady) == 2 * parameters);
  const std::int64_t dummies = 2 * (matrices + rows * kH);
  const std::int64_t angles = 4 * kTokens * 128;
  const std::int64_t ids = 3 * 8 * kTokens;
  CHECK(support::held(step, Component::buffers, EventKind::steady) == dummies + angles + ids);
}

TEST_CASE("rows of the vocabulary are padded to a multiple of 128 on each rank") {
  Case c;
  c.tensor(8);
  const std::int64_t rows = 126 * 128;  // 128,256 / 8 = 16,032 = 125.25 x 128
  const std::int64_t logits = support::held(c.step(), Component::logits, EventKind::forward_head);
  // Besides the logits there is the loss, one number.
  CHECK(logits / (2 * rows) == kTokens);
}

TEST_CASE("Megatron's own loss keeps FP32 probabilities and makes a 16-bit gradient of them") {
  Case c;
  const std::int64_t fused = c.step().live({EventKind::backward_head}).value;
  c.training.cross_entropy = CrossEntropy::full_logits;
  const std::int64_t own = c.step().live({EventKind::backward_head}).value;
  const std::int64_t row = kV * kTokens;
  // Fused: the gradient over the logits, and that of the head's input. Own: probabilities and a 16-bit gradient of
  // them, while the loss has its own gradient, one number.
  CHECK(own - fused == 4 * row + 2 * row + 4 - 2 * row - 2 * kH * kTokens);
}

TEST_CASE("a rank has a communicator for each kind of parallelism that it takes part in") {
  using namespace literals;
  Case c;
  const auto buffers = [&] { return estimate_memory(c.step(), nullptr).nccl_buffers; };
  CHECK(buffers() == Bytes(0));
  c.tensor(2);
  CHECK(buffers() == 1_GiB);
  c.layout.pp = 2;  // four ranks and more: 392 MB for the second
  CHECK(buffers() == 1_GiB + Bytes(392'000'000));
  c.layout.dp = 4, c.layout.cp = 2;
  CHECK(buffers() == 1_GiB + Bytes(3 * 392'000'000));
}

TEST_CASE("FP16 adds gradients up in their own type unless told otherwise, BF16 in FP32") {
  Case c;
  c.tensor(2);
  const auto gradients = [&] { return support::held(c.step(), Component::gradients, EventKind::steady); };
  const std::int64_t bf16 = gradients();
  c.training.precision = Precision::fp16_amp;
  CHECK(2 * gradients() == bf16);
  c.training.fp32_gradients = true;
  CHECK(gradients() == bf16);
  const Step step = c.step();
  CHECK(step.run().types.weights == ElementType::fp16);
  CHECK(step.run().types.compute == ElementType::fp16);
}

TEST_CASE("optimizer states are shared over data and context parallelism, those of experts over their own ranks") {
  Case c;
  c.model = "mistralai/Mixtral-8x7B-v0.1";
  c.layout.dp = 8;
  c.layout.ep = 4;
  const Step step = c.step();
  const std::int64_t experts = 32 * 2 * 3LL * 4096 * 14336;  // two of eight on this rank
  const std::int64_t rest =
      32 * (2LL * 4096 * 4096 + 2LL * 1024 * 4096 + 8 * 4096 + 2 * 4096) + 2 * 32000LL * 4096 + 4096;
  CHECK(support::held(step, Component::master_weights, EventKind::steady) == 4 * rest / 8 + 4 * experts / 2);
  CHECK(support::held(step, Component::optimizer_states, EventKind::steady) == 8 * rest / 8 + 8 * experts / 2);
}

TEST_CASE("experts keep their rows, what their first matrix makes and what the second one takes") {
  Case c;
  c.model = "mistralai/Mixtral-8x7B-v0.1";
  c.layout.dp = 8;
  c.layout.ep = 8;
  constexpr std::int64_t h = 4096, q = 4096, kv = 1024, f = 14336, heads = 32, experts = 8, chosen = 2;
  const std::int64_t attention = 2 * (2 * h + 2 * q + 2 * kv) + 4 + 4 * heads;
  const std::int64_t norm = 2 * 2 * h + 4;
  // Two sets of probabilities, the chosen ones, and the map of permutation less its one number a token.
  const std::int64_t router = 2 * 4 * experts + 8 * chosen + 2 * 4 * experts;
  const std::int64_t rows = chosen * (2 * (h + 3 * f) + 4);
  CHECK(c.kept() == kTokens * (attention + norm + router + rows));

  Case padded = c;
  padded.training.moe.capacity_factor = 1.5;
  CHECK(padded.kept() - c.kept() == kTokens * rows / 2);
  Case uneven = c;
  uneven.training.moe.imbalance = 1.25;
  CHECK(uneven.kept() - c.kept() == kTokens * rows / 4);

  Case again = c;
  again.training.recompute = Recompute::selective;
  again.training.recompute_modules = {RecomputeModule::moe_act};
  CHECK(c.kept() - again.kept() == kTokens * chosen * 2 * f);
  again.training.recompute_modules = {RecomputeModule::layernorm};
  CHECK(c.kept() - again.kept() == kTokens * (2 * h + 4));  // the normed stream and its deviation
}

TEST_CASE("a pipeline that nobody says how to feed is full") {
  Case c;
  c.layout.pp = 4;
  const Step step = c.step();
  CHECK(step.run().accumulation_steps == 4);
  const Event last{EventKind::backward_block, 19};
  c.training.global_batch = 1;
  const std::int64_t alone = c.step().live(last).value;
  // Three more micro-batches wait, of twenty layers each, and of the embedding nothing.
  CHECK(step.live(last).value - alone == 3 * 20 * Case().kept());
}

TEST_CASE(
    "FP8 keeps two copies of every matrix beside the weights, or in their place, and one byte of a product's input") {
  Case c;
  c.tensor(2);
  const Step sixteen = c.step();
  c.training.precision = Precision::fp8;
  const Step copies = c.step();
  const auto held = [](const Step& step, Component component) {
    return support::held(step, component, EventKind::steady);
  };
  // Of the blocks: the head is no module of TransformerEngine (megatron/core/models/gpt/gpt_model.py, output_layer).
  const std::int64_t matrices = 80 * ((kH * (kQ + 2 * kKv) + kQ * kH + 3 * kH * kF) / 2);
  CHECK(held(copies, Component::weights) - held(sixteen, Component::weights) == 2 * matrices);
  c.training.fp8_parameters = true;
  c.training.fp32_gradients = false;
  const Step alone = c.step();
  CHECK(held(alone, Component::weights) == held(sixteen, Component::weights));
  CHECK(2 * held(alone, Component::gradients) == held(sixteen, Component::gradients));
  // Two normed streams and the MLP's product; attention's answer is kept by attention itself.
  CHECK(Case().tensor(2).kept() - c.kept() == kTokens * (2 * kH + kF) / 2);
}

namespace {

constexpr std::int64_t kRank = 16;

Case lora(std::int64_t ranks, std::vector<std::string> targets = {"all-linear"}) {
  Case c;
  c.tensor(ranks);
  c.training.method = Method::lora;
  c.training.objective = Objective::sft;
  c.training.lora.rank = kRank;
  c.training.lora.targets = std::move(targets);
  return c;
}

// A layer whose input needs a gradient: the first one's does not.
std::int64_t kept_above(const Case& c) {
  const Step s = c.step();
  return s.kept_per_layer(s.stacks().back()).value;
}

using Shapes = std::vector<std::pair<Dim, Dim>>;
Shapes adapter_shapes(const Case& c) {
  Shapes shapes;
  const Step step = c.step();
  for (const TrainedTensor& t : step.run().inventory.tensors) shapes.emplace_back(t.rows, t.columns);
  return shapes;
}

}  // namespace

TEST_CASE("Megatron-Bridge adapts joined matrices, and ranks share both matrices of an adapter") {
  // q, k and v; what follows attention; gate and up; down. Ahead of the first and the third stands the whole stream,
  // so that the rank is cut; ahead of the others a part of it.
  CHECK(adapter_shapes(lora(1)) == Shapes{{kRank, kH},
                                          {kQ + 2 * kKv, kRank},
                                          {kRank, kQ},
                                          {kH, kRank},
                                          {kRank, kH},
                                          {2 * kF, kRank},
                                          {kRank, kF},
                                          {kH, kRank}});
  CHECK(adapter_shapes(lora(4)) == Shapes{{kRank / 4, kH},
                                          {(kQ + 2 * kKv) / 4, kRank},
                                          {kRank, kQ / 4},
                                          {kH / 4, kRank},
                                          {kRank / 4, kH},
                                          {2 * kF / 4, kRank},
                                          {kRank, kF / 4},
                                          {kH / 4, kRank}});
  // One name of ours is enough to reach what Megatron-Core has joined.
  CHECK(adapter_shapes(lora(4, {"v"})) == Shapes{{kRank / 4, kH}, {(kQ + 2 * kKv) / 4, kRank}});
  CHECK(adapter_shapes(lora(4, {"up"})) == Shapes{{kRank / 4, kH}, {2 * kF / 4, kRank}});
}

TEST_CASE("experts of a rank share one adapter; routers have none, down-projections of latent attention are cut too") {
  Case c = lora(1);
  c.model = "Qwen/Qwen3-30B-A3B";
  c.layout.dp = 8;
  constexpr std::int64_t h = 2048, q = 4096, kv = 512, fe = 768;
  const Shapes expected{{kRank, h}, {q + 2 * kv, kRank}, {kRank, q},  {h, kRank},
                        {kRank, h}, {2 * fe, kRank},     {kRank, fe}, {h, kRank}};
  CHECK(adapter_shapes(c) == expected);
  c.layout.ep = 8;
  CHECK(adapter_shapes(c) == expected);
  const Step step = c.step();
  CHECK(step.run().inventory.expert_adapters == Params(48 * kRank * (h + 2 * fe + fe + h)));
  // Adam's states of the rest are shared by eight ranks, those of experts by the one that holds the same.
  const std::int64_t rest = 48 * kRank * (h + q + 2 * kv + q + h);
  const std::int64_t experts = 48 * kRank * (h + 2 * fe + fe + h);
  CHECK(support::held(step, Component::optimizer_states, EventKind::steady) == 8 * (rest / 8 + experts));

  Case latent = lora(4, {"q", "q_a", "kv_a", "kv_b"});
  latent.model = "deepseek-ai/DeepSeek-V2-Lite";  // no compressed queries
  constexpr std::int64_t hidden = 2048, heads = 16, key = 192, compressed = 512 + 64;
  const Shapes one_group{{kRank / 4, hidden},     {heads * key / 4, kRank}, {kRank / 4, hidden},
                         {compressed / 4, kRank}, {kRank / 4, 512},         {heads * 256 / 4, kRank}};
  Shapes both = one_group;  // the dense layer and those with experts
  both.insert(both.end(), one_group.begin(), one_group.end());
  CHECK(adapter_shapes(latent) == both);
}

TEST_CASE(
    "a frozen base has weights alone; adapters have FP32 gradients, copies and states, and a dummy for each shape") {
  Case c = lora(2);
  c.layout.dp = 4;
  const Step step = c.step();
  const auto held = [&](Component component) { return support::held(step, component, EventKind::steady); };
  const std::int64_t matrices = (kH * (kQ + 2 * kKv) + kQ * kH + 3 * kH * kF) / 2;
  const std::int64_t base = 80 * (matrices + 2 * kH) + 2 * (kV / 2) * kH + kH;
  const std::int64_t of_layer = kRank * ((kH + kQ + 2 * kKv) + (kQ + kH) + (kH + 2 * kF) + (kF + kH)) / 2;
  CHECK(held(Component::frozen_weights) == 2 * base);
  CHECK(held(Component::weights) == 0);
  CHECK(held(Component::adapters) == 2 * 80 * of_layer);
  CHECK(held(Component::gradients) == 4 * 80 * of_layer);
  CHECK(held(Component::master_weights) == 4 * 80 * of_layer / 4);
  CHECK(held(Component::optimizer_states) == 8 * 80 * of_layer / 4);
  // Of the eight matrices of a layer three shapes occur twice: those that read and those that make the hidden size.
  const std::int64_t shapes = kRank * (kH + (kQ + 2 * kKv) + kQ + kH + 2 * kF + kF) / 2;
  CHECK(held(Component::buffers) == 2 * shapes + 4 * kTokens * 128 + 3 * 8 * kTokens);
}

TEST_CASE(
    "of the inputs of frozen matrices only those are kept that an adapter reads, and the middle of each adapter") {
  // Two streams with a deviation each, queries, keys, values, the answer of attention and its log-sum-exp, and the
  // gate and up that the activation kept; with adapters everywhere also both normed streams, and the MLP's product.
  const std::int64_t always = 2 * (2 * kH + 2 * kQ + 2 * kKv + 2 * kF) + 2 * 4 + 4 * kHeads;
  CHECK(kept_above(lora(1)) == kTokens * (always + 2 * (2 * kH + kF + 4 * kRank)));
  CHECK(kept_above(lora(1, {"qkv"})) == kTokens * (always + 2 * (kH + kRank)));
  CHECK(kept_above(lora(1, {"o"})) == kTokens * (always + 2 * kRank));
  CHECK(kept_above(lora(1, {"down"})) == kTokens * (always + 2 * (kF + kRank)));
  // Where ranks share the tokens an adapter keeps all tokens of a normed stream, and the norm its own part beside them.
  const std::int64_t normed = 2 * (2 * kH + 2 * kH / 4);
  CHECK(kept_above(lora(4)) == kTokens * (always / 4 + normed + 2 * (kF / 4 + 4 * kRank)));
  Case whole = lora(4);  // every rank has the whole streams
  whole.layout.sp = false;
  const std::int64_t streams = 2 * 2 * kH + 2 * 4;
  CHECK(kept_above(whole) == kTokens * (streams + (always - streams) / 4 + 2 * (2 * kH + kF / 4 + 4 * kRank)));
  // Nothing below the first adapter needs a gradient: no stream, no norm, of the first layer.
  const Step step = lora(1).step();
  CHECK(kept_above(lora(1)) - step.kept_per_layer(step.stacks().front()).value == kTokens * (2 * kH + 4));
}

TEST_CASE("adapters read what was not rounded to FP8, of which the norm keeps a copy") {
  Case c = lora(1);
  const std::int64_t sixteen = kept_above(c);
  c.training.precision = Precision::fp8;
  CHECK(kept_above(c) - sixteen == kTokens * 2 * kH);
  Case shared = lora(4);
  const std::int64_t parts = kept_above(shared);
  shared.training.precision = Precision::fp8;
  CHECK(parts - kept_above(shared) == kTokens * 2 * kH / 4);  // one byte in the place of two
  // Weights held in FP8, of the frozen base; adapters are not.
  c.training.fp8_parameters = true;
  const std::int64_t matrices = kH * (kQ + 2 * kKv) + kQ * kH + 3 * kH * kF;
  const Step step = c.step();
  CHECK(support::held(step, Component::frozen_weights, EventKind::steady) ==
        2 * (80 * (matrices + 2 * kH) + 2 * kV * kH + kH));
  CHECK(support::held(step, Component::adapters, EventKind::steady) ==
        2 * 80 * kRank * ((kH + kQ + 2 * kKv) + (kQ + kH) + (kH + 2 * kF) + (kF + kH)));
}

TEST_CASE("dropout ahead of an adapter keeps a mask and a copy of its own") {
  Case c = lora(1, {"qkv"});
  const std::int64_t without = kept_above(c);
  c.training.lora.dropout = 0.1;
  CHECK(kept_above(c) - without == kTokens * (2 + 1) * kH);
}

TEST_CASE("experts keep the rows that their shared adapter reads, and its middle") {
  Case c = lora(1);
  c.model = "mistralai/Mixtral-8x7B-v0.1";
  c.layout.dp = 8;
  c.layout.ep = 8;
  constexpr std::int64_t h = 4096, q = 4096, kv = 1024, f = 14336, heads = 32, experts = 8, chosen = 2;
  const std::int64_t attention = 2 * (2 * h + 2 * q + 2 * kv + 2 * kRank) + 4 + 4 * heads;
  const std::int64_t norm = 2 * h + 4;  // what the router read is kept by nobody
  const std::int64_t router = 2 * 4 * experts + 8 * chosen + 2 * 4 * experts;
  const std::int64_t rows = chosen * (2 * (h + 3 * f + 2 * kRank) + 4);
  CHECK(kept_above(c) == kTokens * (attention + norm + router + rows));
}

TEST_CASE("a frozen head gathers its tokens for as long as it multiplies them") {
  const auto standing = [](const Case& c) {
    return support::held(c.step(), Component::communication_buffers, EventKind::steady);
  };
  Case full;
  full.tensor(2);
  CHECK(standing(full) - standing(lora(2)) >= 2 * kTokens * kH);
  const auto working = [](const Case& c) {
    return support::held(c.step(), Component::working_memory, EventKind::forward_head);
  };
  CHECK(working(lora(2)) == 2 * kTokens * kH + 2 * kTokens * kH / 2);  // beside the rank's part, which nobody keeps
}

TEST_CASE("more ranks of tensor parallelism never need more for adapters") {
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    std::int64_t before = std::numeric_limits<std::int64_t>::max();
    for (const std::int64_t ranks : {1, 2, 4, 8}) {
      Case c = lora(ranks);
      c.training.recompute = recompute;
      const Step step = c.step();
      std::int64_t highest = 0;
      for (const Event event : step.events()) highest = std::max(highest, step.live(event).value);
      CHECK(highest < before);
      before = highest;
    }
  }
}

namespace {

// Bytes that the head keeps for one token: final norm, loss, and what predicts further tokens.
std::int64_t head_keeps(const Case& c) {
  const Step step = c.step();
  const TrainingChoice& t = step.run().training;
  BlockContext context;
  context.model = step.run().model;
  context.framework = step.run().framework;
  context.tensor_ranks = c.layout.tp;
  context.sequence_parallel = c.layout.sp;
  context.attention = t.attention;
  context.predictions = t.mtp_layers;
  context.checkpoints_predictions = t.recompute == Recompute::full;
  context.trains_base = context.trains_embedding = context.trains_head = context.trains_norms = true;
  const Graph graph = head_graph(context);
  const SymbolTable symbols = sized(graph.widths(), context.framework, {1, kTokens});
  return profile(graph).saved.at(products_of(symbols)).value / kTokens;
}

}  // namespace

TEST_CASE(
    "a module that predicts a further token is a projection, three norms and a layer; a late stage has the table too") {
  Case c;
  c.tensor(2);
  const auto trained = [&] { return c.step().run().inventory.trained_base.value; };
  const std::int64_t without = trained();
  c.training.mtp_layers = 1;
  const std::int64_t layer = (kH * (kQ + 2 * kKv) + kQ * kH + 3 * kH * kF) / 2 + 2 * kH;
  const std::int64_t module = 2 * kH * kH / 2 + 3 * kH + layer;
  CHECK(trained() - without == module);
  c.training.mtp_layers = 2;
  CHECK(trained() - without == 2 * module);
  c.layout.pp = 4;
  CHECK(trained() == 20 * layer + kV / 2 * kH);  // the first stage: layers and the table
  c.stage = 3;
  CHECK(trained() == 20 * layer + kH + kV / 2 * kH + 2 * module + kV / 2 * kH);
}

TEST_CASE("each further token keeps its embedding, what the norms read, a layer, and logits of its own") {
  Case c;
  const std::int64_t norm = 2 * kH + 4;
  const std::int64_t logits = 2 * kV;
  CHECK(head_keeps(c) == norm + 2 * kH + logits);
  const std::int64_t layer = 2 * (4 * kH + 2 * kQ + 2 * kKv + 3 * kF) + 2 * 4 + 4 * kHeads;
  // The final norm; the stream and the embedding ahead of their norms, and both joined; the layer, and its output
  // ahead of the last norm. The head reads a copy of all streams, one behind the other.
  const std::int64_t module = 2 * norm + 2 * 2 * kH + layer + norm;
  c.training.mtp_layers = 1;
  CHECK(head_keeps(c) == norm + module + 2 * 2 * kH + 2 * logits);
  c.training.mtp_layers = 2;
  CHECK(head_keeps(c) == norm + 2 * module + 3 * 2 * kH + 3 * logits);
  // Under a full checkpoint: what goes in.
  c.training.recompute = Recompute::full;
  CHECK(head_keeps(c) == norm + 2 * (2 * 2 * kH) + 3 * 2 * kH + 3 * logits);
}

TEST_CASE("ranks share what a module keeps token by token, and width by width") {
  Case c;
  c.training.mtp_layers = 1;
  const std::int64_t alone = head_keeps(c);
  CHECK(head_keeps(c.tensor(2)) == alone / 2);  // 128,256 is a multiple of 2 x 128
}
