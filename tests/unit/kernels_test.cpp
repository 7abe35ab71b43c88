// Losses and fused kernels of Transformers, Liger and Unsloth, against bytes counted by hand from their source and a
// benchmark of loss kernels (huggingface/trl pull request 6858).
#include <doctest/doctest.h>

#include "support/steps.hpp"
#include "vramplan/step.hpp"

using namespace vramplan;
using support::held;

namespace {

FrameworkSwitches switches(FrameworkId framework, CrossEntropy loss, Kernels kernels = Kernels::eager,
                           Precision precision = Precision::bf16) {
  TrainingChoice t;
  t.framework = framework;
  t.precision = precision;
  t.cross_entropy = loss;
  t.kernels = kernels;
  return switches_for(t, {});
}

// Head and loss alone, of a given width and vocabulary, everything in 16 bits.
struct Head {
  ModelArchitecture model;
  BlockContext context;

  Head(Dim hidden, Dim vocabulary, const FrameworkSwitches& framework, bool trained) {
    model.hidden_size = hidden;
    model.vocab_size = vocabulary;
    model.final_norm = false;
    context.framework = framework;
    context.trains_head = trained;
  }
  // The model is found where this object is, wherever it was moved.
  [[nodiscard]] Graph graph() const {
    BlockContext c = context;
    c.model = &model;
    return head_graph(c);
  }
  [[nodiscard]] ProductTable products(BatchSize batch) const {
    return products_of(sized(graph().widths(), context.framework, batch));
  }
  [[nodiscard]] std::int64_t forward(BatchSize batch) const {
    return profile(graph()).forward_with_grad.at(products(batch)).bytes.value;
  }
  [[nodiscard]] std::int64_t backward(BatchSize batch) const {
    return profile(graph()).backward.at(products(batch)).bytes.value;
  }
  [[nodiscard]] std::int64_t saved(BatchSize batch) const { return profile(graph()).saved.at(products(batch)).value; }
};

Dim chunk(const FrameworkSwitches& framework, BatchSize batch, Dim hidden, Dim vocabulary) {
  SymbolTable widths;
  widths[Symbol::h] = hidden;
  widths[Symbol::V] = vocabulary;
  return sized(widths, framework, batch)[Symbol::sc];
}

constexpr std::int64_t kLoss = 4;  // bytes of the loss itself, and of its gradient

// One layer that is a gated MLP behind a norm: width 16, inner width 64, 16 bits.
struct Mlp16 {
  ModelArchitecture model;
  LayerGroup layer;
  BlockContext context;

  explicit Mlp16(const FrameworkSwitches& framework) {
    model.hidden_size = 16;
    layer.count = 1;
    layer.mlps = {DenseMlp{.intermediate_size = 64}};
    context.framework = framework;
  }
  [[nodiscard]] Graph graph() const {
    BlockContext c = context;
    c.model = &model;
    return block_graph(c, layer, false);
  }
  [[nodiscard]] SymbolTable symbols(const Graph& g) const { return sized(g.widths(), context.framework, {1, 1}); }
  [[nodiscard]] std::int64_t saved() const {
    const Graph g = graph();
    return profile(g).saved.at(products_of(symbols(g))).value;
  }
  [[nodiscard]] std::int64_t backward() const {
    const Graph g = graph();
    return profile(g).backward.at(products_of(symbols(g))).bytes.value;
  }
  [[nodiscard]] std::int64_t gradients_at_first_operation() const {
    const Graph g = graph();
    const LiveSet alive = live_at(g, Phase::backward, 0);
    Bytes sum;
    for (const LiveItem& item : alive.items()) {
      if (item.component == Component::activation_gradients) sum += bytes_of(item.size, symbols(g));
    }
    return sum.value;
  }
};

const ModelArchitecture& llama() { return support::model_of("meta-llama/Llama-3.1-8B"); }

Step unsloth_step(Recompute recompute = Recompute::full) {
  PlanRequest request;
  request.training.framework = FrameworkId::unsloth;
  request.training.method = Method::qlora;
  request.training.recompute = recompute;
  return Step(prepare(llama(), resolve_defaults(request).training, {}, {}));
}

}  // namespace

TEST_CASE("tokens in one chunk of the loss") {
  using enum FrameworkId;
  const FrameworkSwitches of_liger = switches(liger, CrossEntropy::fused);
  // Liger: parts = V / h up; tokens / parts up; up to a power of two.
  CHECK(chunk(of_liger, {1, 8192}, 4096, 128256) == 256);   // Llama 3: 32 parts, 256 tokens
  CHECK(chunk(of_liger, {4, 2048}, 3072, 256000) == 128);   // Gemma: 84 parts, 98 tokens
  CHECK(chunk(of_liger, {1, 8192}, 3584, 152064) == 256);   // Qwen 2.5: 43 parts, 191 tokens
  CHECK(chunk(of_liger, {2, 4096}, 4096, 32000) == 1024);   // Mistral: 8 parts
  CHECK(chunk(of_liger, {1, 16384}, 2048, 248320) == 256);  // 122 parts, 135 tokens
  CHECK(chunk(of_liger, {1, 5}, 8, 8) == 5);                // one part: never more than there are
  CHECK(chunk(switches(liger, CrossEntropy::chunked), {1, 8192}, 4096, 128256) == 256);
  CHECK(chunk(switches(transformers, CrossEntropy::chunked, Kernels::fused), {1, 8192}, 4096, 128256) == 256);
  CHECK(chunk(switches(transformers, CrossEntropy::fused), {1, 8192}, 4096, 128256) == 256);
  // TRL: 4096 tokens.
  CHECK(chunk(switches(transformers, CrossEntropy::chunked), {2, 4096}, 4096, 128256) == 4096);
  CHECK(chunk(switches(transformers, CrossEntropy::chunked), {1, 100}, 4096, 128256) == 100);
  // torchtune: an eighth of each sequence.
  CHECK(chunk(switches(torchtune, CrossEntropy::chunked), {2, 100}, 4096, 128256) == 2 * 13);
  const FrameworkSwitches of_unsloth = switches(unsloth, CrossEntropy::fused);
  // Unsloth: 2048 x 4096 / 128256 = 65, down to 64, at least 512 (512 x 151936 / 128256 = 606, down to 512).
  CHECK(chunk(of_unsloth, {1, 2048}, 4096, 128256) == 512);
  CHECK(chunk(of_unsloth, {1, 300}, 4096, 128256) == 300);
  // 8192 x 4096 / 32000 = 1048, down to 1024, at least 2048 (512 x 151936 / 32000 = 2430, down to 2048).
  CHECK(chunk(of_unsloth, {2, 4096}, 4096, 32000) == 2048);
  // From 4096 tokens on, tiles of 4096 x 16384 logits: what 524 rows of the vocabulary hold.
  CHECK(chunk(of_unsloth, {2, 4096}, 4096, 128256) == 524);
}

// 16384 tokens, 248320 rows, width 2048, 16 bits, H100, forward and backward. Besides what the loss itself holds there
// are the weight, its gradient and that of the hidden states from the pass before, and two cuBLAS workspaces of 32 MiB.
namespace bench {
constexpr std::int64_t kWeight = 248320LL * 2048 * 2;
constexpr std::int64_t kHidden = 16384LL * 2048 * 2;
constexpr std::int64_t kLogits = 16384LL * 248320;
constexpr std::int64_t kAround = 2 * kWeight + kHidden + (64LL << 20);
constexpr BatchSize kBatch{1, 16384};
double gib(std::int64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(1LL << 30); }
Head head(const FrameworkSwitches& framework) {
  Head h(2048, 248320, framework, true);
  h.context.accumulates = true;
  return h;
}
}  // namespace bench

TEST_CASE("benchmark of loss kernels: all logits at once, 47.55 GiB") {
  const Head head = bench::head(switches(FrameworkId::transformers, CrossEntropy::full_logits));
  // The saved log-softmax, its gradient and the gradient of the FP32 logits; the hidden states, for the weight's sake.
  const std::int64_t expected = 3 * 4 * bench::kLogits + bench::kHidden + 2 * kLoss;
  CHECK(head.backward(bench::kBatch) == doctest::Approx(expected).epsilon(1e-9));
  CHECK(bench::gib(head.backward(bench::kBatch) + bench::kAround) == doctest::Approx(47.55).epsilon(0.0002));
}

TEST_CASE("benchmark of loss kernels: Liger, 6.05 GiB with two copies that it no longer makes") {
  const Head head = bench::head(switches(FrameworkId::liger, CrossEntropy::fused));
  // Hidden states and their gradient, the weight's gradient, logits of one chunk of 256 tokens.
  const std::int64_t expected = 2 * bench::kHidden + bench::kWeight + 256LL * 248320 * 2 + kLoss;
  CHECK(head.forward(bench::kBatch) == expected);
  // Until 0.8 the product for the weight's gradient was a tensor, and an FP32 copy of it another.
  const std::int64_t then = head.forward(bench::kBatch) + bench::kAround + 3 * bench::kWeight;
  CHECK(bench::gib(then) == doctest::Approx(6.05).epsilon(0.001));
}

TEST_CASE("a fused linear loss keeps gradients made in forward, the weight's among them when the head trains") {
  const std::int64_t hidden = 1024 * 64 * 2, weight = 4096 * 64 * 2;
  Head head(64, 4096, switches(FrameworkId::liger, CrossEntropy::fused), false);  // 64 parts: 16 tokens a chunk
  CHECK(head.saved({1, 1024}) == hidden);
  CHECK(head.forward({1, 1024}) == 2 * hidden + 16 * 4096 * 2 + kLoss);
  CHECK(head.backward({1, 1024}) == hidden + kLoss);  // what was saved is the gradient
  head.context.trains_head = true;
  CHECK(head.saved({1, 1024}) == hidden + weight);
  CHECK(head.backward({1, 1024}) == hidden + weight + kLoss);
  head.context.accumulates = true;  // added to the gradient of the pass before, and dropped
  CHECK(head.backward({1, 1024}) == hidden + weight + kLoss);
}

TEST_CASE("under autocast a fused linear loss casts the FP32 weight twice, once when it is frozen") {
  Head head(64, 4096, switches(FrameworkId::liger, CrossEntropy::fused, Kernels::fused, Precision::bf16_amp), true);
  head.context.leftovers = head.context.tables = head.context.residual = head.context.gradients = ElementType::fp32;
  const std::int64_t hidden = 1024 * 64 * 4, weight = 4096 * 64 * 4, chunk_of_logits = 16 * 4096 * 2;
  CHECK(head.forward({1, 1024}) == 2 * hidden + weight + chunk_of_logits + 2 * weight / 2 + kLoss);
  head.context.trains_head = false;
  CHECK(head.forward({1, 1024}) == 2 * hidden + chunk_of_logits + weight / 2 + kLoss);
}

TEST_CASE("FOAK's fused linear loss holds 8 bytes of a chunk's logits, Unsloth's 4") {
  const std::int64_t hidden = 1024 * 64 * 2;
  const Head foak(64, 4096, switches(FrameworkId::transformers, CrossEntropy::chunked, Kernels::fused), false);
  CHECK(foak.forward({1, 1024}) == 2 * hidden + 16 * 4096 * 8 + kLoss);
  // 1024 tokens are fewer than 64 x 4096 / 4096 and the least of 4096: one chunk, and its hidden gradient in FP32.
  const Head unsloth(64, 4096, switches(FrameworkId::unsloth, CrossEntropy::fused), false);
  CHECK(unsloth.forward({1, 1024}) == 2 * hidden + 1024 * 4096 * 4 + 1024 * 64 * 4 + kLoss);
}

TEST_CASE("TRL's loss makes the logits of a tile twice and adds gradients up in FP32") {
  const std::int64_t hidden = 8192LL * 64 * 2, tile = 4096LL * 32768 * 2;
  Head head(64, 65536, switches(FrameworkId::transformers, CrossEntropy::chunked), false);
  CHECK(head.saved({1, 8192}) == hidden);  // the hidden states that count, gathered
  CHECK(head.forward({1, 8192}) == 2 * hidden + tile + kLoss);
  CHECK(head.backward({1, 8192}) == hidden + tile + 2 * hidden + hidden + kLoss);
  head.context.trains_head = true;
  const std::int64_t weight = 65536LL * 64 * 2;
  CHECK(head.backward({1, 8192}) == hidden + tile + 2 * hidden + hidden + 2 * weight + weight + kLoss);
}

TEST_CASE("loss kernels on materialised logits: Liger's writes over an FP32 copy, Unsloth's into a tensor of its own") {
  const std::int64_t hidden = 1024 * 64 * 2, logits = 1024 * 4096 * 2;
  const Head liger(64, 4096, switches(FrameworkId::liger, CrossEntropy::full_logits), false);
  CHECK(liger.saved({1, 1024}) == 2 * logits);
  CHECK(liger.forward({1, 1024}) == hidden + 3 * logits + kLoss);  // logits keep their name until the model returns
  CHECK(liger.backward({1, 1024}) == 3 * logits);                  // FP32 gradient and its 16-bit copy
  const Head unsloth(64, 4096, switches(FrameworkId::unsloth, CrossEntropy::full_logits), false);
  CHECK(unsloth.saved({1, 1024}) == logits);
  CHECK(unsloth.forward({1, 1024}) == hidden + logits + kLoss);
  CHECK(unsloth.backward({1, 1024}) == 2 * logits + kLoss);
  const Head foak(64, 4096, switches(FrameworkId::transformers, CrossEntropy::full_logits, Kernels::fused), false);
  // The 16-bit logits are overwritten by their upcast, of which the logits without the last position are a copy.
  CHECK(foak.saved({1, 1024}) == 2 * logits);
  CHECK(foak.forward({1, 1024}) == hidden + 4 * logits + kLoss);
}

TEST_CASE("FSDP with mixed precision trains FP32 weights, whatever they were loaded as") {
  PlanRequest request;
  request.training.framework = FrameworkId::liger;
  request.training.method = Method::full;
  request.training.base_weights = WeightFormat::bf16;
  const auto bytes_of_parameter = [&](std::int64_t zero) {
    LayoutChoice layout;
    layout.dp = 4;
    layout.zero = zero;
    const Step step(prepare(llama(), resolve_defaults(request).training, layout, {}));
    const Event event{EventKind::optimizer_step};
    const std::int64_t held_bytes = held(step, Component::weights, event) + held(step, Component::gradients, event) +
                                    held(step, Component::optimizer_states, event);
    return static_cast<double>(held_bytes) / static_cast<double>(step.run().inventory.total.value);
  };
  CHECK(bytes_of_parameter(3) == doctest::Approx(16.0 / 4).epsilon(1e-6));  // 4 + 4 + 2 x 4
  CHECK(bytes_of_parameter(0) == doctest::Approx(8.0).epsilon(1e-6));       // 2 + 2 + 2 x 2, on each
}

TEST_CASE("a gated MLP kernel keeps gate and up, and backward writes over them") {
  const Mlp16 block(switches(FrameworkId::liger, CrossEntropy::fused));
  // The stream and a statistic for the norm; gate and up. Frozen projections keep nothing.
  CHECK(block.saved() == 32 + 4 + 2 * 128);
  // Highest where the product's gradient is there: saved, the stream's gradient, 128 bytes.
  CHECK(block.backward() == 32 + 4 + 2 * 128 + 32 + 128);
}

TEST_CASE("a gated MLP whose gate and up are one projection gives the kernel copies") {
  Mlp16 block(switches(FrameworkId::liger, CrossEntropy::fused));
  block.layer.mlps = {DenseMlp{.intermediate_size = 64, .fused_gate_up = true}};
  CHECK(block.saved() == 32 + 4 + 2 * 128);
  block.layer.mlps = {DenseMlp{.intermediate_size = 64, .fused_gate_up = true, .activation = Activation::relu2}};
  CHECK(block.saved() > 32 + 4 + 2 * 128);  // no kernel for it: the parts keep the whole, and the activation its own
}

TEST_CASE("a fused norm's gradient takes the place of its output's, but for norms after a branch") {
  Mlp16 block(switches(FrameworkId::liger, CrossEntropy::fused));
  CHECK(block.gradients_at_first_operation() == 2 * 32);  // the stream's, and that through the norm
  block.model.norm.unit_offset = true;
  CHECK(block.gradients_at_first_operation() == 3 * 32);
  block.model.norm.unit_offset = false;
  block.model.norm_placement = NormPlacement::sandwich;
  CHECK(block.gradients_at_first_operation() == 3 * 32);
}

TEST_CASE("while an adapter runs, the call of its module holds the input that the adapter has cast") {
  Mlp16 block(switches(FrameworkId::liger, CrossEntropy::fused, Kernels::fused, Precision::bf16_amp));
  block.context.adapter.targets = std::uint64_t{1} << static_cast<unsigned>(Module::down);
  block.context.rank = 4;
  const Graph g = block.graph();
  const std::int64_t highest = profile(g).forward_without_grad.at(products_of(block.symbols(g))).bytes.value;
  // At the second small product: the stream and the MLP's own input, the input of `down` in 16 bits and in FP32, the
  // base's output, autocast's copies of both small matrices, the rank-wide middle and the update.
  CHECK(highest == 32 + 32 + 128 + 256 + 32 + 4 * 64 * 2 + 4 * 16 * 2 + 8 + 32);
}

TEST_CASE("Unsloth's fused adapters keep the input, gate and up, and nothing of the adapters") {
  Mlp16 block(switches(FrameworkId::unsloth, CrossEntropy::fused));
  const auto bit = [](Module m) { return std::uint64_t{1} << static_cast<unsigned>(m); };
  block.context.adapter.targets = bit(Module::gate) | bit(Module::up) | bit(Module::down);
  block.context.quantized = true;
  block.context.rank = 4;
  // Norm: stream and statistic; the function: its input, gate and up.
  const std::int64_t saved = 32 + 4 + 32 + 2 * 128;
  CHECK(block.saved() == saved);
  // At gate and up: the stream's gradient, the product made again, a dequantized 16 x 64 matrix, two rank-wide
  // gradients; the input's gradient is over the input, those of gate and up are over gate and up. Adapters' gradients
  // in FP32: rank 4, sides 16 + 64 for each of three.
  CHECK(block.backward() == saved + 32 + 128 + 16 * 64 * 2 + 2 * 4 * 2 + 3 * 4 * 4 * (16 + 64));
  block.context.adapter.dropout = true;  // a mask a target: 16, 16 and 64 bytes
  CHECK(block.saved() == saved + 16 + 16 + 64);
  block.context.adapter.dropout = false;
  block.context.adapter.targets = bit(Module::gate) | bit(Module::down);  // not all three: PEFT runs them
  CHECK(block.saved() > saved);
}

TEST_CASE("Unsloth's checkpoints wait in host memory: two buffers and the last block's input stay") {
  const Step step = unsloth_step();
  const std::int64_t stream = 2048LL * 4096 * 2;
  CHECK(step.host_memory().total().value == 31 * stream);
  CHECK(held(step, Component::checkpoints, {EventKind::forward_block, 5}) == 3 * stream);
  CHECK(held(step, Component::checkpoints, {EventKind::forward_head}) == 3 * stream);
  CHECK(held(step, Component::checkpoints, {EventKind::backward_block, 31}) == 3 * stream);
  CHECK(held(step, Component::checkpoints, {EventKind::backward_block, 5}) == 2 * stream);
  CHECK(held(step, Component::checkpoints, {EventKind::optimizer_step}) == 2 * stream);
  CHECK(unsloth_step(Recompute::none).host_memory().total().value == 0);
}

TEST_CASE("Unsloth dequantizes into a buffer of the largest matrix") {
  const Step step = unsloth_step();
  CHECK(held(step, Component::dequantized_weights, {EventKind::steady}) == 14336LL * 4096 * 2);
}

// ---- adapters fused by FOAK (fms-acceleration)

namespace {

Step foak_step(double dropout, Kernels kernels = Kernels::fused) {
  PlanRequest request;
  request.training.method = Method::qlora;
  request.training.kernels = kernels;
  request.training.lora.targets = {"q", "k", "v", "o"};
  request.training.lora.dropout = dropout;
  return Step(prepare(llama(), resolve_defaults(request).training, {}, {}));
}

std::int64_t kept_for_adapters(const Step& step) {
  return support::held(step, Component::activations_adapter, EventKind::backward_block, 31);
}

}  // namespace

TEST_CASE("FOAK keeps what dropout left of the input for each projection, PEFT that, its mask and the middles") {
  constexpr std::int64_t kInput = 2048LL * 4096;  // values of one sequence: the input of q, k and v, and that of o
  CHECK(kept_for_adapters(foak_step(0.1)) == 4 * kInput * 2);
  CHECK(kept_for_adapters(foak_step(0.0)) == 0);  // the functions keep the input itself
  CHECK(kept_for_adapters(foak_step(0.1, Kernels::eager)) == 4 * (kInput * 2 + kInput + 2048 * 16 * 2));
}
