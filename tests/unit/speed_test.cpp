// The speed stage, rule by rule, with figures worked out by hand. Shares are set to 1 and latencies to 0 where they
// would only blur what is meant.
#include <doctest/doctest.h>

#include <cmath>

#include "support/layouts.hpp"
#include "support/steps.hpp"
#include "vramplan/links.hpp"
#include "vramplan/speed.hpp"

using namespace vramplan;
using doctest::Approx;

namespace {

constexpr double kGB = 1e9;

const Gpu& card(std::string_view id) {
  const Gpu* gpu = find_gpu(shipped_catalogue(), id);
  REQUIRE(gpu != nullptr);
  return *gpu;
}

// Everything reaches what is on paper, and the host takes no time.
Calibration ideal() {
  Calibration c = kCalibration;
  for (FamilyRates& family : c.family) {
    family.matmul = family.matmul8 = family.attention = {1, 1, 1};
    family.memory = family.link = family.tensor_exposed = 1;
    family.routing_seconds = 0;
  }
  c.tile = c.step_seconds = c.launch_seconds = c.hop_in = c.hop_out = 0;
  c.network = c.data_hidden = 1;
  return c;
}

TrainingChoice full() {
  TrainingChoice t;
  t.method = Method::full;
  t.framework = FrameworkId::megatron;
  t.kernels = Kernels::fused;
  t.recompute = Recompute::none;
  t.attention = AttentionKernel::flash;
  t.base_weights = WeightFormat::fp32;
  t.cross_entropy = CrossEntropy::full_logits;
  t.sequence_length = 4096;
  t.micro_batch = 4;
  return t;
}

Speed speed_of(const TrainingChoice& t, const LayoutChoice& layout = {}, const char* model = "meta-llama/Llama-2-7b-hf",
               const Calibration& c = ideal(), const char* gpu = "a100-sxm4-80gb") {
  const NodeShape node = node_shape(card(gpu), 8, std::nullopt);
  return SpeedModel(support::model_of(model), t, card(gpu), node, c)(layout, {t.micro_batch, t.sequence_length});
}

double seconds(const Speed& s, SpeedPhase phase) { return s[phase].seconds; }

double sum(const Speed& s) {
  double total = 0;
  for (const PhaseTime& phase : s.phases) total += phase.seconds;
  return total;
}

}  // namespace

TEST_CASE("a ring hands on (n-1)/n of the bytes, through as many network cards as it has members in a node") {
  const Links links{300 * kGB, 24 * kGB, 25 * kGB, 0, 0, 8, 8};
  CHECK(reach(links, {8, 1}).bandwidth == Approx(300 * kGB));
  CHECK(reach(links, {16, 1}).bandwidth == Approx(200 * kGB));  // eight members, eight cards
  CHECK(reach(links, {16, 8}).bandwidth == Approx(25 * kGB));   // one member a node
  CHECK(reach(links, {16, 8}).domains == Approx(16));
  CHECK(reach(links, {4, 4}).bandwidth == Approx(50 * kGB));  // two members a node
  // 80 GB: the ramp of short messages (60 microseconds) is nothing beside it.
  CHECK(gather_seconds(links, {8, 1}, 80 * kGB) == Approx(80.0 * 7 / 8 / 300).epsilon(0.001));
  CHECK(gather_seconds(links, {1, 1}, 80 * kGB) == 0);
  // A megabyte takes longer than its 2.9 microseconds.
  CHECK(gather_seconds(links, {8, 1}, 1e6) == Approx(1e6 * 7 / 8 / (300 * kGB) + 60e-6 / 9));
}

TEST_CASE("cards without a link share PCIe inside their node, and the network beyond it") {
  const Links links{24 * kGB, 24 * kGB, 25 * kGB / 2, 0, 0, 1, 8};
  CHECK(reach(links, {8, 1}).bandwidth == Approx(24 * kGB));
  CHECK(reach(links, {16, 1}).bandwidth == Approx(12.5 * kGB));
  CHECK(point_seconds(links, 1, 24 * kGB) == Approx(1));
  CHECK(point_seconds(links, 8, 25 * kGB) == Approx(2));
}

// Both have 16 lanes of generation 4. Two RTX 3090 reach each other through their bridge, two pairs of them do not.
TEST_CASE("GeForce cards send to each other through host memory, at half of the rate") {
  Calibration nothing_hidden = ideal();
  nothing_hidden.data_hidden = 0;
  const auto sent = [&](const char* gpu, std::int64_t ranks) {
    const Speed s = speed_of(full(), support::sharded(ranks), "meta-llama/Llama-2-7b-hf", nothing_hidden, gpu);
    return seconds(s, SpeedPhase::communication);
  };
  CHECK(sent("rtx-4090", 2) / sent("rtx-6000-ada", 2) == Approx(2).epsilon(0.01));
  CHECK(sent("rtx-3090", 2) < sent("rtx-6000-ada", 2));
  CHECK(sent("rtx-3090", 4) == Approx(sent("rtx-4090", 4)).epsilon(0.01));
}

TEST_CASE("an NVL72 rack is one domain, a node of four H100 is no more than itself") {
  CHECK(node_shape(card("gb200-186gb"), 4, std::nullopt).domain == 72);
  CHECK(node_shape(card("h100-sxm-80gb"), 4, std::nullopt).domain == 4);
  CHECK(node_shape(card("h100-sxm-80gb"), 8, std::nullopt).domain == 8);
  CHECK(node_shape(card("rtx-4090"), 8, std::nullopt).domain == 1);
  CHECK(node_shape(card("h100-sxm-80gb"), 8, std::nullopt).network_gbit_per_s_per_gpu == 400);
  CHECK(node_shape(card("h100-sxm-80gb"), 8, 200.0).network_gbit_per_s_per_gpu == 200);
}

// Linear layers of Llama 2 7B: 32 x (4 x 4096^2 + 3 x 4096 x 11008) parameters, 2 FLOPs each and token; attention 4 x
// 4096 x half the length; at 312 TFLOP/s. Element-wise kernels are a few percent more.
TEST_CASE("forward takes its FLOPs over the rate; backward twice that, and attention once more") {
  const Speed s = speed_of(full());
  const double tokens = 4 * 4096;
  const double linear = tokens * 2 * 32 * (4 * 4096.0 * 4096 + 3 * 4096.0 * 11008) / 312e12;
  const double attention = tokens * 32 * 4 * 4096.0 * 2048 / 312e12;
  const double head = tokens * 2 * 4096.0 * 32000 / 312e12;
  const double forward = linear + attention + head;
  CHECK(seconds(s, SpeedPhase::forward) > forward);
  CHECK(seconds(s, SpeedPhase::forward) < 1.1 * forward);
  const double backward = 2 * linear + 2.5 * attention + 2 * head;
  CHECK(seconds(s, SpeedPhase::backward) > backward);
  CHECK(seconds(s, SpeedPhase::backward) < 1.1 * backward);
  CHECK(s[SpeedPhase::forward].bound == Bound::compute);
  CHECK(s.bound == Bound::compute);
  CHECK(sum(s) == Approx(s.step_seconds.expected));
  CHECK(s.tokens_per_second.expected == Approx(tokens / s.step_seconds.expected));
  CHECK(s.mfu == Approx(3 * forward / s.step_seconds.expected));
}

TEST_CASE("a card that multiplies fast waits for its memory: one sequence of a few tokens reads all weights") {
  TrainingChoice t = full();
  t.micro_batch = 1;
  t.sequence_length = 16;
  const Speed s = speed_of(t);
  CHECK(s[SpeedPhase::forward].bound == Bound::memory_bandwidth);
  // 6.6e9 weights of 2 bytes at 2,039 GB/s
  CHECK(seconds(s, SpeedPhase::forward) == Approx(6.6e9 * 2 / 2039e9).epsilon(0.03));
}

TEST_CASE("the host sets the pace where kernels are many and small") {
  Calibration slow_host = ideal();
  slow_host.launch_seconds = 1e-2;
  const Speed s = speed_of(full(), {}, "meta-llama/Llama-2-7b-hf", slow_host);
  CHECK(s[SpeedPhase::forward].bound == Bound::host);
  CHECK(s.bound == Bound::host);
}

TEST_CASE("full recomputation adds a forward of the layers, selective one of attention") {
  TrainingChoice t = full();
  t.recompute = Recompute::full;
  const Speed s = speed_of(t);
  const double head = 4 * 4096 * 2 * 4096.0 * 32000 / 312e12;
  CHECK(seconds(s, SpeedPhase::recompute) == Approx(seconds(s, SpeedPhase::forward) - head).epsilon(0.01));
  t.recompute = Recompute::selective;
  CHECK(seconds(speed_of(t), SpeedPhase::recompute) == Approx(4 * 4096.0 * 32 * 4 * 4096 * 2048 / 312e12));
}

TEST_CASE("a module that predicts a further token runs a projection, a layer and the head once more") {
  TrainingChoice t = full();
  const Speed without = speed_of(t);
  t.mtp_layers = 2;
  const Speed s = speed_of(t);
  const double tokens = 4 * 4096;
  const double products = 2 * (2 * 4096.0 * 4096 + 4 * 4096.0 * 4096 + 3 * 4096.0 * 11008 + 4096.0 * 32000);
  const double module = tokens * (products + 4 * 4096.0 * 2048) / 312e12;
  const double more = seconds(s, SpeedPhase::forward) - seconds(without, SpeedPhase::forward);
  CHECK(more > 2 * module);
  CHECK(more < 1.1 * 2 * module);
  const double forward = without.mfu * without.step_seconds.expected / 3 + 2 * module;
  CHECK(s.mfu == Approx(3 * forward / s.step_seconds.expected));
}

TEST_CASE("adapters leave the weights' own gradients out") {
  TrainingChoice t = full();
  t.recompute = Recompute::none;
  const double whole = seconds(speed_of(t), SpeedPhase::backward);
  t.method = Method::lora;
  t.base_weights = WeightFormat::bf16;
  const Speed s = speed_of(t);
  const double linear = 4 * 4096 * 2 * 32 * (4 * 4096.0 * 4096 + 3 * 4096.0 * 11008) / 312e12;
  CHECK(seconds(s, SpeedPhase::backward) < whole - 0.75 * linear);  // the adapters' own kernels take some of it
  CHECK(seconds(s, SpeedPhase::optimizer) < 0.001);
}

TEST_CASE("only trained layers are walked backward") {
  TrainingChoice t = full();
  t.method = Method::freeze;
  t.trainable_layers = 8;
  const Speed s = speed_of(t);
  t.trainable_layers = 16;
  const Speed twice = speed_of(t);
  const double head = 4 * 4096 * 2 * 2 * 4096.0 * 32000 / 312e12;
  CHECK(seconds(twice, SpeedPhase::backward) - head ==
        Approx(2 * (seconds(s, SpeedPhase::backward) - head)).epsilon(0.02));
}

TEST_CASE("a pipeline of p stages and m micro-batches waits (p-1)/m of its work, over v where chunks interleave") {
  TrainingChoice t = full();
  t.global_batch = 32;  // eight micro-batches
  LayoutChoice layout;
  layout.pp = 4;
  const Speed s = speed_of(t, layout);
  const double work = seconds(s, SpeedPhase::forward) + seconds(s, SpeedPhase::backward);
  CHECK(seconds(s, SpeedPhase::bubble) > 3.0 / 8 * work);
  CHECK(seconds(s, SpeedPhase::bubble) < 3.6 / 8 * work);  // and the last stage has the head
  layout.vpp = 8;
  CHECK(seconds(speed_of(t, layout), SpeedPhase::bubble) < 0.5 * seconds(s, SpeedPhase::bubble));
}

TEST_CASE("tensor parallelism sends the stream twice a layer and pass, and halves the work") {
  LayoutChoice layout;
  layout.tp = 2;
  const Speed one = speed_of(full());
  const Speed two = speed_of(full(), layout);
  CHECK(seconds(two, SpeedPhase::forward) > 0.5 * seconds(one, SpeedPhase::forward));
  CHECK(seconds(two, SpeedPhase::forward) < 0.55 * seconds(one, SpeedPhase::forward));
  // 32 layers, forward and backward two all-reduces each: half of 134 MB twice over 300 GB/s, and the ramp of each pass
  const double bytes = 4 * 4096 * 4096.0 * 2;
  const double pass = bytes / 2 / 300e9 + 60e-6 * bytes / (bytes + 8e6);
  CHECK(seconds(two, SpeedPhase::communication) == Approx(32 * 4 * 2 * pass));
}

TEST_CASE("sequence parallelism divides the work between the matrices too") {
  LayoutChoice layout;
  layout.tp = 8;
  const double whole = seconds(speed_of(full(), layout), SpeedPhase::forward);
  layout.sp = true;
  CHECK(seconds(speed_of(full(), layout), SpeedPhase::forward) < whole);
}

TEST_CASE("fetching shards hides behind computation as far as that lasts") {
  LayoutChoice layout;
  layout.dp = 8;
  layout.zero = 3;
  TrainingChoice t = full();
  const Speed s = speed_of(t, layout);
  // Hidden all of it but its tax of 13 %: two fetches and a reduction of 2 bytes for each of 6.5e9 weights.
  const double link = 3 * 2 * 6.476e9 * 7 / 8 / 300e9;
  CHECK(seconds(s, SpeedPhase::communication) > 0.13 * link);
  CHECK(seconds(s, SpeedPhase::communication) < 0.2 * link);
  t.micro_batch = 1;
  t.sequence_length = 128;  // computation ends long before
  CHECK(seconds(speed_of(t, layout), SpeedPhase::communication) > 0.8 * link);
}

TEST_CASE("experts that are divided exchange their tokens") {
  TrainingChoice t = full();
  t.micro_batch = 1;
  LayoutChoice layout;
  layout.dp = layout.ep = 8;
  layout.zero = 1;
  const char* model = "Qwen/Qwen3-30B-A3B";
  const double inside = seconds(speed_of(t, layout, model), SpeedPhase::communication);
  layout.dp = layout.ep = 16;
  CHECK(seconds(speed_of(t, layout, model), SpeedPhase::communication) > inside);
}

TEST_CASE("the optimizer moves weights, states and gradients of what trains, a shard of it where ranks share") {
  TrainingChoice t = full();
  const double whole = seconds(speed_of(t), SpeedPhase::optimizer);
  // 20 bytes of weight, gradient and clipping, 16 of two states read and written
  CHECK(whole == Approx(6.738e9 * 36 / 2039e9).epsilon(0.001));
  LayoutChoice layout;
  layout.dp = 8;
  layout.zero = 1;
  CHECK(seconds(speed_of(t, layout), SpeedPhase::optimizer) == Approx(whole / 8));
}

TEST_CASE("what lives in host memory goes over PCIe") {
  TrainingChoice t = full();
  t.framework = FrameworkId::deepspeed;
  t.offload.optimizer = true;
  LayoutChoice layout;
  layout.zero = 2;
  const Speed s = speed_of(t, layout);
  // 4 bytes over 26 GB/s, and 36 through the host's memory at 200 GB/s
  CHECK(seconds(s, SpeedPhase::offload) == Approx(6.738e9 * (4 / 26e9 + 36 / 200e9)).epsilon(0.001));
}

TEST_CASE("weights in four bits are made whole for each pass") {
  TrainingChoice t = full();
  t.method = Method::qlora;
  t.framework = FrameworkId::transformers;
  t.base_weights = WeightFormat::nf4;
  const double twice = seconds(speed_of(t), SpeedPhase::dequantization);
  CHECK(twice == Approx(2 * 6.476e9 * 15 / 2039e9).epsilon(0.001));
  t.recompute = Recompute::full;
  CHECK(seconds(speed_of(t), SpeedPhase::dequantization) == Approx(1.5 * twice));
}

TEST_CASE("preference training sees two sequences a sample and asks the reference; policies write first") {
  TrainingChoice t = full();
  t.framework = FrameworkId::transformers;
  t.base_weights = WeightFormat::bf16;  // else the weights are lowered once, whatever the sequences
  const double forward = seconds(speed_of(t), SpeedPhase::forward);
  t.objective = Objective::dpo;
  t.reference = Reference::model;
  const Speed s = speed_of(t);
  CHECK(seconds(s, SpeedPhase::forward) == Approx(2 * forward).epsilon(0.001));
  CHECK(seconds(s, SpeedPhase::reference_forward) == Approx(seconds(s, SpeedPhase::forward)));
  t = full();
  t.objective = Objective::grpo;
  t.generation = GenerationChoice{};
  CHECK(seconds(speed_of(t), SpeedPhase::generation) == Approx(256 * 6.476e9 * 2 / 2039e9).epsilon(0.001));
}

TEST_CASE("days and energy of a budget") {
  Speed s;
  s.tokens_per_second = {800, 1000, 1250};
  const Budget b = budget_of(s, 86.4e6, card("h100-sxm-80gb"), 8);
  CHECK(b.days.expected == Approx(1));
  CHECK(b.days.low == Approx(0.8));
  CHECK(b.days.high == Approx(1.25));
  CHECK(b.energy_kwh == Approx(8 * 0.7 * 24));
}

TEST_CASE("no estimate where nobody published the card's rate") {
  TrainingChoice t = full();
  Gpu gpu = card("h100-sxm-80gb");
  CHECK_FALSE(speed_refusal(gpu, t));
  gpu.bf16_tflops = 0;
  CHECK(speed_refusal(gpu, t) == "no_rate");
  gpu = card("h100-sxm-80gb");
  gpu.memory_bandwidth_gb_per_s = 0;
  CHECK(speed_refusal(gpu, t) == "no_bandwidth");
}

TEST_CASE("what is measured has a narrower band than what is not") {
  const Calibration& c = kCalibration;
  const Speed a100 = speed_of(full(), {}, "meta-llama/Llama-2-7b-hf", c);
  const Speed mi300 = speed_of(full(), {}, "meta-llama/Llama-2-7b-hf", c, "mi300x");
  const auto width = [](const Band& b) { return b.high / b.low; };
  CHECK(width(a100.step_seconds) < width(mi300.step_seconds));
}
