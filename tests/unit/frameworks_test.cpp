// What single switches of frameworks change in bytes, where no test of kernels, losses or objectives looks at them.
#include <doctest/doctest.h>

#include <optional>

#include "support/steps.hpp"

using namespace vramplan;
using support::held;

namespace {

TrainingChoice training(FrameworkId framework, Method method, Precision precision) {
  TrainingChoice t;
  t.framework = framework;
  t.method = method;
  t.precision = precision;
  t.sequence_length = 1024;
  return t;
}

Step step_of(const TrainingChoice& t) { return support::step_of("meta-llama/Llama-3.1-8B", t, {}); }

std::int64_t adapter_bytes_each(FrameworkId framework, Precision precision) {
  const Step step = step_of(training(framework, Method::lora, precision));
  return held(step, Component::adapters, EventKind::steady) / step.run().inventory.adapters.value;
}

}  // namespace

// torch.nn.functional.layer_norm is on autocast's list for FP32: under it each norm's input becomes an FP32 copy.
TEST_CASE("DeepSpeed's engine leaves autocast out: a block keeps what it keeps in 16 bits") {
  const auto kept = [](FrameworkId framework, Precision precision) {
    TrainingChoice t = training(framework, Method::full, precision);
    t.recompute = Recompute::none;
    return support::kept(support::step_of("openai-community/gpt2", t, {}));
  };
  const std::int64_t in_type = kept(FrameworkId::transformers, Precision::bf16);
  CHECK(kept(FrameworkId::transformers, Precision::bf16_amp) > in_type);
  CHECK(kept(FrameworkId::deepspeed, Precision::bf16_amp) == in_type);
}

TEST_CASE("DeepSpeed's engine lowers what a k-bit preparation has raised") {
  const auto frozen = [](bool kbit_upcast) {
    TrainingChoice t = training(FrameworkId::deepspeed, Method::qlora, Precision::bf16_amp);
    t.kbit_upcast = kbit_upcast;
    return held(step_of(t), Component::frozen_weights, EventKind::steady);
  };
  CHECK(frozen(true) == frozen(false));
}

TEST_CASE("Unsloth's adapters are FP32; litgpt's are so under mixed precision only") {
  CHECK(adapter_bytes_each(FrameworkId::unsloth, Precision::bf16) == 4);
  CHECK(adapter_bytes_each(FrameworkId::litgpt, Precision::bf16_amp) == 4);
  CHECK(adapter_bytes_each(FrameworkId::litgpt, Precision::bf16) == 2);
}

TEST_CASE("by default litgpt's AdamW makes multi-tensor temporaries, Unsloth's does not; a request decides for both") {
  const auto temporaries = [](FrameworkId framework, std::optional<bool> foreach) {
    TrainingChoice t = training(framework, Method::lora, Precision::bf16);
    t.optimizer.foreach = foreach;
    return held(step_of(t), Component::optimizer_temporaries, EventKind::optimizer_step);
  };
  CHECK(temporaries(FrameworkId::unsloth, std::nullopt) < temporaries(FrameworkId::unsloth, true));
  CHECK(temporaries(FrameworkId::litgpt, false) < temporaries(FrameworkId::litgpt, std::nullopt));
}

TEST_CASE("mixed precision casts weights for each use, true precision none") {
  for (const FrameworkId framework : {FrameworkId::litgpt, FrameworkId::torchtune}) {
    const auto copied = [&](Precision precision) {
      return held(step_of(training(framework, Method::full, precision)), Component::autocast_weights,
                  EventKind::forward_head);
    };
    CHECK(copied(Precision::bf16_amp) > 0);
    CHECK(copied(Precision::bf16) == 0);
  }
}

TEST_CASE("adapters are of the type that modules are made in") {
  for (const FrameworkId framework : {FrameworkId::torchtune, FrameworkId::deepspeed}) {
    CHECK(adapter_bytes_each(framework, Precision::bf16) == 2);
    CHECK(adapter_bytes_each(framework, Precision::fp32) == 4);
  }
}

namespace {

constexpr std::int64_t kTokens = 16;

// A layer alone in 16 bits.
struct Layer {
  BlockProfile profile;
  ProductTable products;
  [[nodiscard]] std::int64_t kept() const { return profile.saved.at(products).value; }
  [[nodiscard]] std::int64_t highest() const { return profile.forward_without_grad.at(products).bytes.value; }
};

Layer layer_of(const FrameworkSwitches& switches, const Mixer& mixer, bool trained) {
  ModelArchitecture model;
  model.hidden_size = 8;
  LayerGroup layer;
  layer.count = 1;
  layer.mixers = {mixer};
  BlockContext c;
  c.model = &model;
  c.framework = switches;
  c.attention = AttentionKernel::flash;
  c.trains_base = trained;
  c.gradient_enters = trained;
  const Graph g = block_graph(c, layer, false);
  return {profile(g), products_of(sized(g.widths(), c.framework, {1, kTokens}))};
}

FrameworkSwitches switches_of(FrameworkId framework) {
  return switches_for(training(framework, Method::full, Precision::bf16), {});
}

}  // namespace

// One wide query, whose rotation is the highest moment, unless one kernel makes it: then it is attention, with query
// and output. In halves of the query in 16 bits.
TEST_CASE("what rotary positions hold for a moment: kernels of one pass, operations in 16 bits, in FP32") {
  Attention wide;
  wide.heads = 64;
  wide.kv_heads = 1;
  wide.head_dim = 64;
  constexpr std::int64_t kHalfQuery = kTokens * 64 * 64;
  const auto halves_by = [&](const FrameworkSwitches& s) { return layer_of(s, wide, false).highest() / kHalfQuery; };
  const auto halves = [&](FrameworkId framework) { return halves_by(switches_of(framework)); };
  CHECK(halves(FrameworkId::unsloth) == 2 * 2);
  CHECK(halves(FrameworkId::liger) == 2 * 2);
  // The query, which its caller names, its product with cosines, that of what is turned with sines, and their sum.
  CHECK(halves(FrameworkId::transformers) == 2 * 4);
  TrainingChoice fused = training(FrameworkId::transformers, Method::full, Precision::bf16);
  fused.kernels = Kernels::fused;
  CHECK(halves_by(switches_for(fused, {})) == 2 * 2);
  // Query, FP32 copy, complex product, and the result in 16 bits.
  CHECK(halves(FrameworkId::torchtitan) == 2 * (1 + 2 + 2 + 1));
  // torchtune/modules/position_embeddings.py: query, FP32 copy, both halves of the result stacked to one.
  CHECK(halves(FrameworkId::torchtune) == 2 * (1 + 2 + 2 + 2));
}

TEST_CASE("recurrent layers keep less where kernels for them are installed, as Unsloth and torchtitan do") {
  const auto kept = [](FrameworkSwitches s, RecurrenceKernel kernel) {
    s.recurrence = kernel;
    return layer_of(s, Mamba2{.heads = 4, .head_dim = 4, .groups = 1, .state_size = 8}, true).kept();
  };
  for (const FrameworkId framework : {FrameworkId::unsloth, FrameworkId::torchtitan}) {
    const FrameworkSwitches s = switches_of(framework);
    CHECK(kept(s, s.recurrence) == kept(s, RecurrenceKernel::fused));
    CHECK(kept(s, RecurrenceKernel::fused) < kept(s, RecurrenceKernel::composite));
  }
  TrainingChoice t = training(FrameworkId::transformers, Method::full, Precision::bf16);
  CHECK(switches_for(t, {}).recurrence == RecurrenceKernel::composite);
  t.recurrence = Recurrence::fused;
  CHECK(switches_for(t, {}).recurrence == RecurrenceKernel::fused);
}
