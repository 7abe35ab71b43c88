#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "catalogue.hpp"
#include "vramplan/parameters.hpp"

namespace vramplan {
namespace {

// A model of width 10 with one layer and nothing else, so that its total is what the layer holds.
ModelArchitecture one_layer(LayerGroup layer) {
  ModelArchitecture m;
  m.hidden_size = 10;
  m.vocab_size = 0;
  m.tie_word_embeddings = true;
  m.final_norm = false;
  layer.count = 1;
  layer.norms = 0;
  m.groups.push_back(std::move(layer));
  return m;
}

std::int64_t count(const Mixer& mixer) {
  LayerGroup layer;
  layer.mixers.push_back(mixer);
  return total_parameters(parameter_groups(one_layer(layer))).value;
}

std::int64_t count(const Mlp& mlp) {
  LayerGroup layer;
  layer.mlps.push_back(mlp);
  return total_parameters(parameter_groups(one_layer(layer))).value;
}

std::int64_t active(const Mlp& mlp) {
  LayerGroup layer;
  layer.mlps.push_back(mlp);
  return active_parameters(parameter_groups(one_layer(layer))).value;
}

Attention attention() {
  Attention a;
  a.heads = 6;
  a.kv_heads = 2;
  a.head_dim = 4;
  return a;
}

TEST_CASE("attention: q 10x24, k and v 10x8, o 24x10") {
  CHECK(count(attention()) == 240 + 80 + 80 + 240);
  Attention a = attention();
  a.v_head_dim = 3;
  CHECK(count(a) == 240 + 80 + 60 + 180);
  a = attention();
  a.qkv_bias = a.o_bias = true;
  CHECK(count(a) == 640 + 24 + 8 + 8 + 10);
  a.fused_qkv = true;
  CHECK(count(a) == 640 + 24 + 8 + 8 + 10);
}

TEST_CASE("attention: what models add to it and leave out of it") {
  Attention a = attention();
  a.qk_norm = QkNorm::head;
  CHECK(count(a) == 640 + 4 + 4);
  a.qk_norm = QkNorm::full;
  CHECK(count(a) == 640 + 24 + 8);
  a = attention();
  a.sinks = true;
  CHECK(count(a) == 640 + 6);
  a = attention();
  a.output_gate = OutputGate::doubled_query;
  CHECK(count(a) == 640 + 240);
  a.output_gate = OutputGate::head;
  CHECK(count(a) == 640 + 60);
  a.output_gate = OutputGate::channel;
  CHECK(count(a) == 640 + 240);
  a = attention();
  a.k_is_v = true;
  CHECK(count(a) == 640 - 80);
  a = attention();
  a.kv_shared = true;
  a.qk_norm = QkNorm::head;
  CHECK(count(a) == 640 - 160 + 4);
  a.kv_stored = true;
  CHECK(count(a) == 640 + 8);
}

TEST_CASE("attention: indexers") {
  Attention a = attention();
  a.indexer = Indexer{.heads = 3, .head_dim = 5, .query_input = 7, .head_weights = true};
  CHECK(count(a) == 640 + 7 * 15 + 10 * 5 + 2 * 5 + 10 * 3);
  a.indexer->head_weights = false;
  CHECK(count(a) == 640 + 7 * 15 + 10 * 5 + 2 * 5);
}

TEST_CASE("latent attention") {
  LatentAttention a;
  a.heads = 3;
  a.kv_lora_rank = 6;
  a.qk_nope_head_dim = 4;
  a.qk_rope_head_dim = 2;
  a.v_head_dim = 5;
  const std::int64_t keys_values_output = 10 * 8 + 6 + 6 * 3 * 9 + 15 * 10;
  CHECK(count(a) == 10 * 18 + keys_values_output);
  a.q_lora_rank = 7;
  CHECK(count(a) == 10 * 7 + 7 + 7 * 18 + keys_values_output);
  a.qkv_bias = a.o_bias = true;
  CHECK(count(a) == 10 * 7 + 7 + 7 * 18 + keys_values_output + 7 + 8 + 10);
  a.output_gate = true;
  CHECK(count(a) == 10 * 7 + 7 + 7 * 18 + keys_values_output + 7 + 8 + 10 + 150);
}

TEST_CASE("compressed attention") {
  CompressedAttention a;
  a.heads = 4;
  a.head_dim = 6;
  a.q_lora_rank = 5;
  a.o_groups = 2;
  a.o_lora_rank = 3;
  // q 10x5, norm, 5x24; kv 10x6, norm; sinks; o 12x6 and 6x10.
  const std::int64_t window_only = 50 + 5 + 120 + 60 + 6 + 4 + 72 + 60;
  CHECK(count(a) == window_only);
  a.ratio = 128;  // 2 x 10x6, 128x6 positions, norm
  CHECK(count(a) == window_only + 120 + 768 + 6);
  a.ratio = 4;  // overlapping: twice as wide
  a.indexer = Indexer{.heads = 3, .head_dim = 2, .query_input = 5, .head_weights = true};
  CHECK(count(a) == window_only + 240 + 48 + 6 + (80 + 16 + 2 + 30 + 30));
}

TEST_CASE("state space") {
  // in 10x40, conv 20x4 + 20, x 20x(3+2x2), dt 3x20 + 20, A 20x2, D 20, norms 3+2+2, out 20x10.
  CHECK(count(Mamba1{.inner = 20, .state_size = 2, .conv_kernel = 4, .dt_rank = 3, .inner_norms = true}) ==
        400 + 80 + 20 + 140 + 60 + 20 + 40 + 20 + 7 + 200);
  // inner 12, convolved 12 + 2x2x5 = 32: in 10x(12+32+4), conv 32x4 + 32, A D dt 3x4, norm 12, out 12x10.
  Mamba2 mamba{.heads = 4, .head_dim = 3, .groups = 2, .state_size = 5, .conv_kernel = 4, .gated_norm = true};
  CHECK(count(mamba) == 480 + 128 + 32 + 12 + 12 + 120);
  mamba.gated_norm = false;
  CHECK(count(mamba) == 480 + 128 + 32 + 12 + 120);
}

TEST_CASE("linear attention and convolution") {
  // keys 6, values 20: qkvz 10x52, ba 10x8, conv 32x4, A and dt 2x4, norm 5, out 20x10.
  GatedDeltaNet net{.key_heads = 2, .key_head_dim = 3, .value_heads = 4, .value_head_dim = 5, .conv_kernel = 4};
  CHECK(count(net) == 520 + 80 + 128 + 8 + 5 + 200);
  net.fused_projections = true;
  CHECK(count(net) == 520 + 80 + 128 + 8 + 5 + 200);
  // width 6: qkv 3x60, conv 3x24, decay 30 + 18, beta 20, gate 30 + 18, A 2, dt 6, norm 3, out 60.
  KimiDeltaAttention kda{.heads = 2, .head_dim = 3, .conv_kernel = 4};
  CHECK(count(kda) == 180 + 72 + 48 + 20 + 48 + 2 + 6 + 3 + 60);
  kda.full_rank_gate = true;
  CHECK(count(kda) == 180 + 72 + 48 + 20 + 60 + 2 + 6 + 3 + 60);
  CHECK(count(LightningAttention{.heads = 2, .head_dim = 3}) == 180 + 60 + 60 + 6);
  CHECK(count(ShortConvolution{.kernel = 3}) == 300 + 30 + 100);
}

TEST_CASE("dense MLP") {
  DenseMlp mlp;
  mlp.intermediate_size = 7;
  CHECK(count(mlp) == 3 * 70);
  mlp.fused_gate_up = true;
  CHECK(count(mlp) == 3 * 70);
  mlp.bias = true;
  CHECK(count(mlp) == 3 * 70 + 14 + 10);
  mlp.gated = false;
  CHECK(count(mlp) == 2 * 70 + 7 + 10);
  mlp.activation = Activation::xielu;
  CHECK(count(mlp) == 2 * 70 + 7 + 10 + 2);
}

TEST_CASE("mixture of experts") {
  MoeMlp moe;
  moe.experts = 8;
  moe.experts_per_token = 2;
  moe.intermediate_size = 5;
  CHECK(count(moe) == 80 + 8 * 150);
  CHECK(active(moe) == 80 + 2 * 150);
  moe.shared_intermediate_size = 6;
  moe.shared_expert_gate = true;
  CHECK(count(moe) == 80 + 8 * 150 + 180 + 10);
  moe = {.experts = 8, .experts_per_token = 2, .intermediate_size = 5};
  moe.router_bias = moe.router_correction_bias = moe.router_scale = true;
  CHECK(count(moe) == 80 + 8 * 150 + 8 + 8 + (10 + 8));
  moe = {.experts = 8, .experts_per_token = 2, .intermediate_size = 5};
  moe.expert_bias = true;
  CHECK(count(moe) == 80 + 8 * (150 + 2 * 5 + 10));
  CHECK(active(moe) == 80 + 2 * (150 + 2 * 5 + 10));
  moe = {.experts = 8, .experts_per_token = 2, .intermediate_size = 5, .latent_size = 4};
  moe.latent_norm = true;
  CHECK(count(moe) == 80 + 8 * 60 + 2 * 40 + 4);
  moe = {.experts = 8, .experts_per_token = 3, .intermediate_size = 5, .zero_experts = 4, .gated = false};
  CHECK(count(moe) == 120 + 8 * 100);
  CHECK(active(moe) == 120 + 2 * 100);  // 3 x 8 / 12
}

TEST_CASE("outside the layers") {
  ModelArchitecture m;
  m.hidden_size = 10;
  m.vocab_size = 100;
  CHECK(total_parameters(parameter_groups(m)).value == 1000 + 10 + 1000);
  m.tie_word_embeddings = true;
  CHECK(total_parameters(parameter_groups(m)).value == 1000 + 10);
  m.norm = {NormType::layer, true, true};
  m.embedding_norm = true;
  m.position_rows = 7;
  CHECK(total_parameters(parameter_groups(m)).value == 1000 + 70 + 20 + 20);
  m.embedding_size = 5;  // 100x5, 5x10 and 10x5
  CHECK(total_parameters(parameter_groups(m)).value == 500 + 70 + 20 + 20 + 50 + 50);
  m.embedding_size = 0;
  m.tie_word_embeddings = false;
  m.head_rows = 90;
  m.lm_head_bias = true;
  CHECK(total_parameters(parameter_groups(m)).value == 1000 + 70 + 20 + 20 + 900 + 90);
  m.towers.push_back({"vision", Params(12345)});
  m.extras.push_back({"projection", {2, 3, 10}, 4, true, false});
  CHECK(total_parameters(parameter_groups(m)).value == 1000 + 70 + 20 + 20 + 900 + 90 + 12345 + 240);
}

TEST_CASE("layers multiply and norms follow the model") {
  LayerGroup layer;
  layer.mixers.push_back(attention());
  ModelArchitecture m = one_layer(layer);
  m.groups[0].count = 3;
  m.groups[0].norms = 4;
  CHECK(total_parameters(parameter_groups(m)).value == 3 * (640 + 40));
  m.norm = {NormType::layer, true, true};
  CHECK(total_parameters(parameter_groups(m)).value == 3 * (640 + 80));
  m.norm = {NormType::layer, false, false};
  CHECK(total_parameters(parameter_groups(m)).value == 3 * 640);
}

const ParameterGroup& find(const std::vector<ParameterGroup>& groups, Module module, ParameterKind kind) {
  const auto found = std::find_if(groups.begin(), groups.end(), [=](const ParameterGroup& group) {
    return group.module == module && group.kind == kind;
  });
  REQUIRE(found != groups.end());
  return *found;
}

TEST_CASE("cuts follow Megatron, quantizers see the linear layers of the blocks") {
  const ModelCard* card = find_model(shipped_catalogue(), "meta-llama/Llama-3.1-8B");
  REQUIRE(card != nullptr);
  const std::vector<ParameterGroup> groups = parameter_groups(card->architecture);
  CHECK(find(groups, Module::q, ParameterKind::linear).cut == Cut::column);
  CHECK(find(groups, Module::k, ParameterKind::linear).rows == 1024);
  CHECK(find(groups, Module::k, ParameterKind::linear).columns == 4096);
  CHECK(find(groups, Module::o, ParameterKind::linear).cut == Cut::row);
  CHECK(find(groups, Module::up, ParameterKind::linear).cut == Cut::column);
  CHECK(find(groups, Module::down, ParameterKind::linear).cut == Cut::row);
  CHECK(find(groups, Module::embedding, ParameterKind::embedding).cut == Cut::vocabulary);
  CHECK(find(groups, Module::head, ParameterKind::head).cut == Cut::vocabulary);
  CHECK(find(groups, Module::norm, ParameterKind::norm).cut == Cut::replicate);
  Params quantizable;
  for (const ParameterGroup& group : groups) {
    CHECK(group.quantizable == (group.kind == ParameterKind::linear));
    if (group.quantizable) quantizable += parameters_of(group);
  }
  CHECK(quantizable.value == std::int64_t{32} * (4096 * 4096 * 2 + 4096 * 1024 * 2 + 3 * 4096 * 14336));
}

TEST_CASE("routers: experts are cut whole, correction biases take no gradient") {
  const ModelCard* card = find_model(shipped_catalogue(), "deepseek-ai/DeepSeek-V3");
  REQUIRE(card != nullptr);
  const std::vector<ParameterGroup> groups = parameter_groups(card->architecture);
  const ParameterGroup& expert = find(groups, Module::gate, ParameterKind::expert);
  CHECK(expert.cut == Cut::expert);
  CHECK(expert.copies == 256);
  CHECK(expert.active_copies == 8);
  CHECK_FALSE(find(groups, Module::router, ParameterKind::bias).trainable);
  CHECK_FALSE(find(groups, Module::router, ParameterKind::router).quantizable);
  const ModelCard* mixtral = find_model(shipped_catalogue(), "mistralai/Mixtral-8x7B-v0.1");
  REQUIRE(mixtral != nullptr);
  CHECK(find(parameter_groups(mixtral->architecture), Module::router, ParameterKind::router).quantizable);
}

// Every size that decides a total. Windows, experts per token and the like do not.
template <class F>
void each_size(std::optional<Indexer>& indexer, F f) {
  if (!indexer) return;
  f("indexer.heads", indexer->heads);
  f("indexer.head_dim", indexer->head_dim);
}
template <class F>
void each_size(Attention& a, F f) {
  f("heads", a.heads);
  if (!a.kv_shared || a.kv_stored) f("kv_heads", a.kv_heads);
  f("head_dim", a.head_dim);
  if (a.v_head_dim > 0) f("v_head_dim", a.v_head_dim);
  each_size(a.indexer, f);
  if (a.indexer) f("indexer.query_input", a.indexer->query_input);
}
template <class F>
void each_size(LatentAttention& a, F f) {
  f("heads", a.heads);
  f("q_lora_rank", a.q_lora_rank);
  f("kv_lora_rank", a.kv_lora_rank);
  f("qk_nope_head_dim", a.qk_nope_head_dim);
  f("qk_rope_head_dim", a.qk_rope_head_dim);
  f("v_head_dim", a.v_head_dim);
  each_size(a.indexer, f);
}
template <class F>
void each_size(CompressedAttention& a, F f) {
  f("heads", a.heads);
  f("head_dim", a.head_dim);
  f("q_lora_rank", a.q_lora_rank);
  f("o_groups", a.o_groups);
  f("o_lora_rank", a.o_lora_rank);
  f("ratio", a.ratio);
  each_size(a.indexer, f);
}
template <class F>
void each_size(Mamba1& m, F f) {
  f("inner", m.inner);
  f("state_size", m.state_size);
  f("conv_kernel", m.conv_kernel);
  f("dt_rank", m.dt_rank);
}
template <class F>
void each_size(Mamba2& m, F f) {
  f("heads", m.heads);
  f("head_dim", m.head_dim);
  f("groups", m.groups);
  f("state_size", m.state_size);
  f("conv_kernel", m.conv_kernel);
}
template <class F>
void each_size(GatedDeltaNet& n, F f) {
  f("key_heads", n.key_heads);
  f("key_head_dim", n.key_head_dim);
  f("value_heads", n.value_heads);
  f("value_head_dim", n.value_head_dim);
  f("conv_kernel", n.conv_kernel);
}
template <class F>
void each_size(KimiDeltaAttention& a, F f) {
  f("heads", a.heads);
  f("head_dim", a.head_dim);
  f("conv_kernel", a.conv_kernel);
}
template <class F>
void each_size(LightningAttention& a, F f) {
  f("heads", a.heads);
  f("head_dim", a.head_dim);
}
template <class F>
void each_size(ShortConvolution& c, F f) {
  f("kernel", c.kernel);
}
template <class F>
void each_size(DenseMlp& m, F f) {
  f("intermediate_size", m.intermediate_size);
}
template <class F>
void each_size(MoeMlp& m, F f) {
  f("experts", m.experts);
  f("intermediate_size", m.intermediate_size);
  f("shared_intermediate_size", m.shared_intermediate_size);
  f("latent_size", m.latent_size);
  f("zero_experts", m.zero_experts);
}
template <class F>
void each_size(ExtraTensor& extra, F f) {
  f("copies", extra.copies);
  for (Dim& size : extra.shape) f("shape", size);
}
template <class F>
void each_size(ModelArchitecture& m, F f) {
  f("hidden_size", m.hidden_size);
  f("vocab_size", m.vocab_size);
  f("position_rows", m.position_rows);
  if (m.head_rows > 0) f("head_rows", m.head_rows);
  if (m.embedding_size > 0) f("embedding_size", m.embedding_size);
  for (ExtraTensor& extra : m.extras) each_size(extra, f);
  for (Tower& tower : m.towers) f("tower", tower.parameters.value);
  for (LayerGroup& group : m.groups) {
    f("count", group.count);
    if (m.norm.weight) f("norms", group.norms);
    for (Mixer& mixer : group.mixers) std::visit([&](auto& kind) { each_size(kind, f); }, mixer);
    for (Mlp& mlp : group.mlps) std::visit([&](auto& kind) { each_size(kind, f); }, mlp);
    for (ExtraTensor& extra : group.extras) each_size(extra, f);
  }
}

TEST_CASE("one more of any dimension changes the total, in every model") {
  std::int64_t tried = 0;
  for (const ModelCard& card : shipped_catalogue().models) {
    CAPTURE(card.id);
    ModelArchitecture model = card.architecture;
    const Params total = total_parameters(parameter_groups(model));
    each_size(model, [&](const char* name, Dim& size) {
      CAPTURE(name);
      ++size;
      CHECK(total_parameters(parameter_groups(model)) != total);
      --size;
      ++tried;
    });
    REQUIRE(total_parameters(parameter_groups(model)) == total);
  }
  CHECK(tried > 4'000);
}

}  // namespace
}  // namespace vramplan
