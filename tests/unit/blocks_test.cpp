// What blocks keep for backward, on models small enough to count by hand: two sequences of four tokens (T = 8 tokens),
// hidden size 8, two heads of 4, MLP width 16. All sums are of bytes.
#include <doctest/doctest.h>

#include <algorithm>

#include "vramplan/ops.hpp"
#include "vramplan/states.hpp"

using namespace vramplan;

namespace {

constexpr std::int64_t kTokens = 8;
constexpr std::int64_t kHidden = 8;
constexpr std::int64_t kInner = 16;
constexpr std::int64_t kScores = 2 * 2 * 4 * 4;  // batch x heads x queries x keys

ModelArchitecture small_model() {
  ModelArchitecture model;
  model.hidden_size = kHidden;
  model.vocab_size = 32;
  LayerGroup layer;
  layer.count = 1;
  Attention attention;
  attention.heads = attention.kv_heads = 2;
  attention.head_dim = 4;
  layer.mixers = {attention};
  layer.mlps = {DenseMlp{.intermediate_size = kInner, .gated = false, .activation = Activation::gelu}};
  model.groups = {layer};
  return model;
}

Attention& attention_of(ModelArchitecture& model) { return std::get<Attention>(model.groups[0].mixers[0]); }
DenseMlp& mlp_of(ModelArchitecture& model) { return std::get<DenseMlp>(model.groups[0].mlps[0]); }

// Pure 16-bit full training.
BlockContext context_for(const ModelArchitecture& model) {
  BlockContext c;
  c.model = &model;
  c.sequence_length = 4;
  c.trains_base = c.trains_norms = c.trains_embedding = c.trains_head = true;
  return c;
}

// FP32 weights under autocast.
BlockContext autocast_for(const ModelArchitecture& model) {
  BlockContext c = context_for(model);
  c.framework.autocast = true;
  c.residual = c.weights = c.leftovers = c.tables = c.gradients = ElementType::fp32;
  return c;
}

BlockContext adapters_for(const ModelArchitecture& model, Module target) {
  BlockContext c = context_for(model);
  c.trains_base = c.trains_norms = c.trains_embedding = c.trains_head = false;
  c.framework.autocast = c.framework.adapter_casts_input = true;
  c.rank = 2;
  c.adapter.targets = std::uint64_t{1} << static_cast<unsigned>(target);
  return c;
}

ProductTable products_for(const Graph& g) {
  return products_of(sized(g.widths(), FrameworkSwitches{}, {.micro_batch = 2, .sequence_length = 4}));
}

std::int64_t saved(const BlockContext& c) {
  const Graph g = block_graph(c, c.model->groups[0], false);
  REQUIRE_FALSE(g.overflowed());
  return profile(g).saved.at(products_for(g)).value;
}
std::int64_t forward_peak(const BlockContext& c) {
  const Graph g = block_graph(c, c.model->groups[0], false);
  REQUIRE_FALSE(g.overflowed());
  return profile(g).forward_with_grad.at(products_for(g)).bytes.value;
}

}  // namespace

TEST_CASE("residual dropout keeps a mask of one byte an element for each branch") {
  const ModelArchitecture plain = small_model();
  ModelArchitecture dropped = small_model();
  dropped.dropout.residual = 0.1;
  CHECK(saved(context_for(dropped)) - saved(context_for(plain)) == 2 * kTokens * kHidden);
}

TEST_CASE("dropout of the embedding keeps a mask when the embedding needs a gradient") {
  ModelArchitecture model = small_model();
  model.dropout.embedding = 0.1;
  BlockContext c = context_for(model);
  const auto kept = [&] {
    const Graph g = embedding_graph(c);
    return profile(g).saved.at(products_for(g)).value;
  };
  CHECK(kept() == kTokens * kHidden);
  c.trains_embedding = c.gradient_enters = false;
  CHECK(kept() == 0);
}

TEST_CASE("dropout of attention: eager keeps the mask and the dropped probabilities, the kernels nothing") {
  const ModelArchitecture plain = small_model();
  ModelArchitecture dropped = small_model();
  dropped.dropout.attention = 0.1;
  const auto more = [&](AttentionKernel kernel) {
    BlockContext without = context_for(plain);
    BlockContext with = context_for(dropped);
    without.attention = with.attention = kernel;
    return saved(with) - saved(without);
  };
  // FP32 softmax; its 16-bit copy is no longer the product's operand, the dropped one is.
  CHECK(more(AttentionKernel::eager) == kScores * 1);
  CHECK(more(AttentionKernel::sdpa) == 0);
}

TEST_CASE("a softmax in the type of the scores keeps itself once, unless autocast raises it") {
  const ModelArchitecture raised = small_model();
  ModelArchitecture in_type = small_model();
  attention_of(in_type).softmax_in_type = true;
  BlockContext a = context_for(raised);
  BlockContext b = context_for(in_type);
  a.attention = b.attention = AttentionKernel::eager;
  CHECK(saved(a) - saved(b) == kScores * 4);  // FP32 result and 16-bit copy against one 16-bit tensor
  a.framework.autocast = b.framework.autocast = true;
  CHECK(saved(a) == saved(b));
}

TEST_CASE("attention sinks: one more column, and the index of each row's maximum") {
  const ModelArchitecture plain = small_model();
  ModelArchitecture sinking = small_model();
  attention_of(sinking).sinks = true;
  BlockContext a = context_for(plain);
  BlockContext b = context_for(sinking);
  a.attention = b.attention = AttentionKernel::eager;
  const std::int64_t rows = 2 * 2 * 4;
  // 16-bit probabilities with a column instead of FP32 and 16-bit ones.
  CHECK(saved(b) - saved(a) == rows * (2 + 8) - kScores * 4);
}

TEST_CASE("a fused projection: its parts keep it whole; a cache copies keys and values besides") {
  ModelArchitecture model = small_model();
  attention_of(model).fused_qkv = true;
  attention_of(model).rotary = false;
  ModelArchitecture apart = small_model();
  attention_of(apart).rotary = false;
  BlockContext c = context_for(model);
  CHECK(saved(c) == saved(context_for(apart)));  // 3 x hidden wide, once
  c.framework.kv_cache = true;
  CHECK(saved(c) == saved(context_for(apart)) + 2 * kTokens * kHidden * 2);
}

TEST_CASE("a rotary kernel that writes over its input copies the parts of a fused projection first") {
  ModelArchitecture model = small_model();
  attention_of(model).fused_qkv = true;
  const ModelArchitecture apart = small_model();
  BlockContext c = context_for(model);
  BlockContext of_apart = context_for(apart);
  for (BlockContext* context : {&c, &of_apart}) {
    context->framework.rotary = RotaryKernel::fused;
    context->framework.kv_cache = true;
  }
  CHECK(saved(c) == saved(of_apart));  // nothing holds the projection itself: the cache copied the values
}

TEST_CASE("SDPA makes a bias of a window's mask in every block, and its kernel answers a row a token") {
  const ModelArchitecture global = small_model();
  ModelArchitecture sliding = small_model();
  attention_of(sliding).window = 4;
  BlockContext a = context_for(global);
  BlockContext b = context_for(sliding);
  a.framework.masks_sdpa_windows = b.framework.masks_sdpa_windows = true;
  constexpr std::int64_t kBias = 2 * 4 * 4 * 2;
  CHECK(saved(b) - saved(a) == kBias);
  ModelArchitecture joined = sliding;
  attention_of(joined).partial_rotary = true;
  CHECK(saved(context_for(joined)) - saved(context_for(sliding)) == kTokens * kHidden * 2);  // without masks: a copy
  BlockContext masked = context_for(joined);
  masked.framework.masks_sdpa_windows = true;
  CHECK(saved(masked) == saved(b));
  masked.compute = masked.residual = masked.weights = masked.leftovers = masked.tables = masked.gradients =
      ElementType::fp32;
  masked.framework.masks_sdpa_windows = false;
  BlockContext fp32 = masked;
  fp32.model = &global;
  CHECK(saved(masked) == saved(fp32));  // FP32 takes the same kernel
}

TEST_CASE("gelu_new under autocast: the power is FP32, and what is made of it") {
  ModelArchitecture composite = small_model();
  mlp_of(composite).activation = Activation::gelu_new;
  const ModelArchitecture kernel = small_model();
  // 16 bits: half, tanh and 1 + tanh beside the input, which gelu keeps too.
  CHECK(saved(context_for(composite)) - saved(context_for(kernel)) == kTokens * kInner * (3 * 2));
  // Autocast: a 16-bit half; FP32 input of the power, tanh and 1 + tanh; not the 16-bit input. The product is FP32, and
  // its 16-bit copy is kept by the projection, as gelu's output was.
  CHECK(saved(autocast_for(composite)) - saved(autocast_for(kernel)) == kTokens * kInner * (2 + 3 * 4 - 2));
}

namespace {

constexpr std::int64_t kExperts = 3;
constexpr std::int64_t kRows = kTokens * 2;  // two experts a token

ModelArchitecture expert_model(Activation activation = Activation::silu) {
  ModelArchitecture model = small_model();
  model.groups[0].mlps = {
      MoeMlp{.experts = kExperts, .experts_per_token = 2, .intermediate_size = kInner, .activation = activation}};
  return model;
}

}  // namespace

TEST_CASE("the clamped gate of gpt-oss keeps gate, sigmoid, their product and the lifted up") {
  const ModelArchitecture silu = expert_model();
  const ModelArchitecture clamped = expert_model(Activation::clamped_swiglu);
  // silu keeps the activation beside both projections and the product; the clamped gate four tensors.
  CHECK(saved(context_for(clamped)) - saved(context_for(silu)) == kRows * kInner * 2 * 3);
}

TEST_CASE("an adapter on experts as one parameter keeps weight plus update, in the weight's type") {
  const ModelArchitecture model = expert_model();
  BlockContext c = adapters_for(model, Module::down);
  c.framework.merges_expert_adapters = true;
  const BlockContext none = adapters_for(model, Module::head);
  const std::int64_t weight = kExperts * kInner * kHidden * 2;
  const std::int64_t factors = kExperts * 2 * (kInner + kHidden) * 2;
  const std::int64_t input = kRows * kInner * 2;  // and the product that feeds it, for the gradient of the sum
  CHECK(saved(c) - saved(none) == weight + factors + input);
}

TEST_CASE("experts that run one after another keep as much, and make gradients of one at a time") {
  const ModelArchitecture model = expert_model();
  const auto walk = [&](bool loops) {
    BlockContext c = context_for(model);
    c.trains_base = c.trains_norms = c.trains_embedding = c.trains_head = false;
    c.framework.loops_experts = loops;
    const Graph g = block_graph(c, model.groups.front(), false);
    REQUIRE(!g.overflowed());
    const SymbolTable table = sized(g.widths(), c.framework, {1, 32 * kExperts});
    const BlockProfile p = profile(g);
    return std::pair(p.saved.at(products_of(table)).value, p.backward.at(products_of(table)).bytes.value);
  };
  const auto [looped_saved, looped_peak] = walk(true);
  const auto [grouped_saved, grouped_peak] = walk(false);
  // Grouped experts keep gate and up in one tensor; both keep the activation and what each expert answers.
  CHECK(looped_saved == grouped_saved);
  CHECK(looped_peak < grouped_peak);
}

TEST_CASE("merged adapters of gate and up share their factors at twice the rank") {
  const ModelArchitecture model = expert_model();
  const std::vector<ParameterGroup> groups = parameter_groups(model);
  TrainingChoice training;
  training.method = Method::lora;
  training.lora.rank = 2;
  training.lora.targets = {"gate", "up", "down"};
  training.lora.dropout = 0.0;
  // gate and up: 2r x hidden in, 2 x inner x 2r out. down: r x (inner + hidden). Of each expert.
  CHECK(take_inventory(model, training, groups).adapters ==
        Params(kExperts * (4 * kHidden + 4 * 2 * kInner + 2 * (kInner + kHidden))));
  training.lora.dropout = 0.05;  // PEFT refuses that on merged experts: each is a linear module of its own
  CHECK(take_inventory(model, training, groups).adapters == Params(kExperts * 3 * 2 * (kInner + kHidden)));
}

TEST_CASE("experts with biases are bare parameters: all-linear adapters do not reach them") {
  ModelArchitecture model = expert_model(Activation::clamped_swiglu);
  MoeMlp& experts = std::get<MoeMlp>(model.groups[0].mlps[0]);
  experts.expert_bias = experts.router_bias = true;
  TrainingChoice training;
  training.method = Method::lora;
  training.lora.targets = {"all-linear"};
  const std::uint64_t targets = adapter_targets(training, parameter_groups(model));
  const auto reached = [&](Module m) { return (targets >> static_cast<unsigned>(m) & 1U) != 0; };
  CHECK(reached(Module::q));
  CHECK_FALSE(reached(Module::down));
  CHECK_FALSE(reached(Module::router));
}

TEST_CASE("DoRA with dropout runs the base once more: its 16-bit weight is kept, the first result is not") {
  const ModelArchitecture model = small_model();
  BlockContext c = adapters_for(model, Module::down);
  c.adapter.dora = true;
  const std::int64_t without = saved(c);
  c.adapter.dropout = true;
  const std::int64_t mask = kTokens * kInner;
  // The dropped input for the base is a 16-bit copy of its own, but a frozen weight does not keep it.
  CHECK(saved(c) - without == mask + kInner * kHidden * 2);
}

TEST_CASE("DoRA's norm: identity, update, weight, scaled update and sum are there together") {
  ModelArchitecture model = small_model();
  mlp_of(model).intermediate_size = 4096;  // so wide that the moment of the norm is the highest
  BlockContext c = adapters_for(model, Module::down);
  c.adapter.dora = true;
  const std::int64_t inner = 4096;
  const std::int64_t identity = inner * inner * 2;
  const std::int64_t matrices = 4 * inner * kHidden * 4;
  // Also the identity in FP32, while it is made.
  CHECK(forward_peak(c) > identity * 3);
  const Graph g = block_graph(c, model.groups[0], false);
  std::int64_t most = 0;
  for (std::int32_t op = 0; op < static_cast<std::int32_t>(g.ops().size()); ++op) {
    std::int64_t working = 0;
    const LiveSet alive = live_at(g, Phase::forward_with_grad, op);
    for (const LiveItem& item : alive.items()) {
      const bool of_weights = item.size.symbols[0] == Symbol::f && item.component == Component::working_memory;
      if (of_weights) working += bytes_of(item.size, g.widths()).value;
    }
    const bool after_identity = !g.ops()[static_cast<std::size_t>(op)].forward.items().empty() &&
                                g.ops()[static_cast<std::size_t>(op)].output_count == 0;
    if (after_identity) most = std::max(most, working);
  }
  CHECK(most == identity + matrices);
}

TEST_CASE("what a module is called with lives as long as the call") {
  // An adapter on down: while its first matrix runs, the 16-bit product that came in is still there.
  ModelArchitecture model = small_model();
  mlp_of(model).intermediate_size = 4096;
  const BlockContext c = adapters_for(model, Module::down);
  const std::int64_t product = kTokens * 4096 * 2;
  // Saved: gelu's input. Alive: the product, its FP32 copy and that one's 16-bit copy.
  const std::int64_t least = product + product + 2 * product + product;
  CHECK(forward_peak(c) >= least);
}

TEST_CASE("what a branch is called with lives until the branch has ended") {
  const ModelArchitecture model = small_model();
  const Graph g = block_graph(adapters_for(model, Module::head), model.groups[0], false);
  const Size stream{{Symbol::b, Symbol::s, Symbol::one, Symbol::h}, 1, ElementType::bf16};
  const auto reads_inner = [&](const Op& op) {
    return op.input_count == 1 && g.at(op.inputs[0]).size.symbols[3] == Symbol::f;
  };
  const auto last = std::find_if(g.ops().rbegin(), g.ops().rend(), reads_inner);  // the down projection
  REQUIRE(last != g.ops().rend());
  const LiveSet alive = live_at(g, Phase::forward_with_grad, static_cast<std::int32_t>(g.ops().rend() - last - 1));
  // The stream, the norm of it that went into the MLP, and what comes out; norms keep their FP32 copies only. The
  // block's own input is held to its end.
  std::int64_t found = 0;
  for (const LiveItem& item : alive.items()) found += item.size == stream ? 1 : 0;
  CHECK(found == 4);
}
