// Aleph Alpha's Scaling, against bytes worked out by hand from its sources.
#include <doctest/doctest.h>

#include "support/steps.hpp"
#include "vramplan/memory.hpp"
#include "vramplan/step.hpp"

using namespace vramplan;
using support::held;

namespace {

// Llama 2 13B: hidden, MLP, heads and their width, vocabulary. Every query head has keys of its own.
constexpr std::int64_t kH = 5120, kF = 13824, kHeads = 40, kHead = 128, kV = 32000;
constexpr std::int64_t kTokens = 2048;

struct Case {
  LayoutChoice layout{};
  TrainingChoice training{};
  std::int64_t stage = 0;

  Case() {
    training.framework = FrameworkId::scaling;
    training.method = Method::full;
    training.recompute = Recompute::none;
    training.attention = AttentionKernel::flash;
    training.sequence_length = kTokens;
    layout.zero = 1;
  }
  [[nodiscard]] Step step() const { return support::step_of("meta-llama/Llama-2-13b-hf", training, layout, stage); }
  [[nodiscard]] std::int64_t kept() const { return support::kept(step()); }
  [[nodiscard]] std::int64_t bytes(Component component, EventKind kind) const { return held(step(), component, kind); }
};

}  // namespace

TEST_CASE("a layer keeps what its operations save, the whole projection of q, k and v among it") {
  Case c;
  // A norm: its input, one deviation, the normed stream, and that times the weight, all in 16 bits.
  constexpr std::int64_t kNorm = 2 * kH + 2 + 2 * kH + 2 * kH;
  // q, k and v as the projection made them, for the values are a part of it; q and k rotated, with cosine and sine for
  // each; the output, and one FP32 number a head.
  constexpr std::int64_t kAttention = 6 * kH + 4 * kH + 2 * 2 * 2 * kHead + 2 * kH + 4 * kHeads;
  constexpr std::int64_t kMlp = 4 * 2 * kF;  // gate, its activation, up, product
  CHECK(c.kept() == (2 * kNorm + kAttention + kMlp) * kTokens);
}

TEST_CASE("with FlashAttention's kernels norm, rotation and activation keep what goes into them") {
  Case c;
  c.training.kernels = Kernels::fused;
  // The projection is rotated in place; one FP32 deviation a norm; gate, up and product.
  constexpr std::int64_t kNorm = 2 * kH + 4 + 2 * kH;
  constexpr std::int64_t kAttention = 6 * kH + 2 * kH + 4 * kHeads;
  CHECK(c.kept() == (2 * kNorm + kAttention + 3 * 2 * kF) * kTokens);
}

TEST_CASE("of several sequences the output of attention is copied, and the kernel keeps its own") {
  Case c;
  const std::int64_t one = c.kept();
  c.training.micro_batch = 2;
  CHECK(c.kept() - 2 * one == 2 * kH * 2 * kTokens);
}

TEST_CASE("eager attention keeps an FP32 softmax and its 16-bit copy, and reads q, k and v as they are joined") {
  Case c;
  const std::int64_t flash = c.kept();
  c.training.attention = AttentionKernel::eager;
  const std::int64_t scores = kHeads * kTokens * kTokens;
  CHECK(c.kept() - flash == (4 + 2) * scores - 4 * kHeads * kTokens);
  // Of two sequences q, k and v are copies: nobody keeps the projection and what was rotated.
  const std::int64_t one = c.kept();
  c.training.micro_batch = 2;
  CHECK(2 * one - c.kept() == (6 + 4 - 6) * kH * 2 * kTokens);
}

TEST_CASE("sequence parallelism divides norms, and keeps what was gathered from them") {
  Case c;
  c.layout.tp = 2;
  const std::int64_t whole = c.kept();
  c.layout.sp = true;
  // Of each norm half of the input and of the normed stream; its result is made for all tokens. Deviations, 2 bytes a
  // token, are counted for all of them.
  CHECK(whole - c.kept() == 2 * (2 * kH + 2 * kH) * kTokens / 2);
}

TEST_CASE("ranks of tensor parallelism each have all logits, and PyTorch's loss on them") {
  Case c;
  c.layout.tp = 2;
  const std::int64_t all = kV * kTokens;
  // Backward starts with 16-bit logits, log-softmax and the gradients of it and of the FP32 logits.
  CHECK(c.bytes(Component::logits, EventKind::backward_head) +
            c.bytes(Component::activation_gradients, EventKind::backward_head) ==
        (2 + 4 + 4 + 4) * all);
}

TEST_CASE("a pipeline keeps the logits of earlier micro-batches") {
  Case c;
  c.layout.tp = 2;
  const auto live = [&](EventKind kind, std::int64_t micro_batches) {
    c.training.global_batch = micro_batches;
    return c.bytes(Component::logits, kind);
  };
  const std::int64_t all = 2 * kV * kTokens;
  const auto more = [&](EventKind kind, std::int64_t micro_batches) {
    return live(kind, micro_batches) - live(kind, 1);
  };
  // Two buffers: that of the micro-batch before, and in forward, of the one before that.
  CHECK(more(EventKind::backward_head, 2) == all);
  CHECK(more(EventKind::backward_head, 8) == all);
  CHECK(more(EventKind::forward_embedding, 2) == all);
  CHECK(more(EventKind::forward_embedding, 8) == 2 * all);
  // The last two wait for the optimizer, the only one too.
  CHECK(live(EventKind::optimizer_step, 1) == all);
  CHECK(more(EventKind::optimizer_step, 8) == all);
  c.training.framework = FrameworkId::megatron;  // its pipeline drops them
  CHECK(more(EventKind::backward_head, 8) == 0);
}

TEST_CASE("stages keep what they handed on, and receive into buffers that stay") {
  Case c;
  c.layout.pp = 4;
  c.training.recompute = Recompute::full;
  c.training.global_batch = 8;
  constexpr std::int64_t kStream = 2 * kH * kTokens;
  constexpr auto kBuffers = Component::communication_buffers;
  CHECK(c.bytes(kBuffers, EventKind::steady) == kStream);  // the first stage gets gradients only
  // Three micro-batches wait while the fourth runs; its own stream is in backward too.
  CHECK(c.bytes(Component::activations_residual, EventKind::forward_embedding) == 3 * kStream);
  CHECK(c.bytes(Component::activations_residual, EventKind::backward_embedding) == 4 * kStream);
  c.stage = 1;
  CHECK(c.bytes(kBuffers, EventKind::steady) == 2 * kStream);
  c.stage = 3;
  CHECK(c.bytes(kBuffers, EventKind::steady) == kStream);
}

TEST_CASE("gradients are joined bucket by bucket and summed in FP32") {
  Case c;
  const auto joined = [&] { return c.bytes(Component::communication_buffers, EventKind::gradient_reduction); };
  CHECK(joined() == 0);
  c.layout.dp = 2;
  // 500 million, and then the head.
  CHECK(joined() == (2 + 4) * (500'000'000 + kV * kH));
  // The first stage has none; its embedding comes first. A matrix of the MLP completes the bucket, beside the buffer
  // that receives.
  c.layout.pp = 2;
  CHECK(joined() == (2 + 4) * (500'000'000 + kF * kH) + 2 * kH * kTokens);
}

TEST_CASE("a rank has communicators of all ranks and of the pairs that it talks with, too") {
  using namespace literals;
  Case c;
  const auto buffers = [&] { return estimate_memory(c.step(), nullptr).nccl_buffers; };
  constexpr Bytes kGroup{392'000'000}, kPair{342'000'000};
  CHECK(buffers() == Bytes(0));
  c.layout.dp = 4;
  CHECK(buffers() == 1_GiB + kGroup);
  c.layout.pp = 2;
  CHECK(buffers() == 1_GiB + kGroup * 2 + kPair);
  c.layout.pp = 8;
  CHECK(buffers() == 1_GiB + kGroup * 2 + kPair * 2);
}
