// core/data/models/*.json: model.hpp field by field, what equals its default left out. Nothing here knows a total.
#include <array>
#include <utility>

#include "catalogue.hpp"
#include "vramplan/architecture.hpp"
#include "vramplan/model.hpp"

namespace vramplan {
namespace {

constexpr IntegerRange kWidthOrNone{0, limits::kWidth.maximum};
constexpr IntegerRange kPlace{0, 63};  // of a layer group
constexpr IntegerRange kRowsOrNone{0, limits::kVocabulary.maximum};
constexpr IntegerRange kExpertsOrNone{0, limits::kExperts.maximum};
constexpr IntegerRange kWindow{0, limits::kSequenceLength.maximum};
constexpr IntegerRange kCopies{1, 1'024};
constexpr NumberRange kSoftcap{0, 1e6};
constexpr NumberRange kProbability{0, 1};

void read_norm(const Json& value, const std::string& pointer, Problems& problems, Norm& norm) {
  ObjectReader reader(value, pointer, problems);
  reader.enumerator("type", norm.type);
  reader.boolean("weight", norm.weight);
  reader.boolean("bias", norm.bias);
  reader.boolean("unit_offset", norm.unit_offset);
  reader.boolean("scale_before_cast", norm.scale_before_cast);
  reader.finish();
}

void read_dropout(const Json& value, const std::string& pointer, Problems& problems, Dropout& dropout) {
  ObjectReader reader(value, pointer, problems);
  reader.number("embedding", dropout.embedding, kProbability);
  reader.number("attention", dropout.attention, kProbability);
  reader.number("residual", dropout.residual, kProbability);
  reader.finish();
}

void read_indexer(ObjectReader& parent, std::optional<Indexer>& destination) {
  const Json* value = parent.object("indexer");
  if (value == nullptr) return;
  Indexer indexer;
  ObjectReader reader(*value, parent.pointer_to("indexer"), parent.problems());
  reader.integer("heads", indexer.heads, limits::kHeads, Need::required);
  reader.integer("head_dim", indexer.head_dim, limits::kWidth, Need::required);
  reader.integer("query_input", indexer.query_input, limits::kWidth, Need::required);
  reader.boolean("head_weights", indexer.head_weights);
  reader.finish();
  destination = indexer;
}

Attention read_attention(ObjectReader& reader) {
  Attention a;
  reader.integer("heads", a.heads, limits::kHeads, Need::required);
  reader.integer("kv_heads", a.kv_heads, limits::kHeads, Need::required);
  reader.integer("head_dim", a.head_dim, limits::kWidth, Need::required);
  a.v_head_dim = a.head_dim;
  reader.integer("v_head_dim", a.v_head_dim, limits::kWidth);
  reader.integer("window", a.window, kWindow);
  reader.boolean("qkv_bias", a.qkv_bias);
  reader.boolean("o_bias", a.o_bias);
  reader.boolean("fused_qkv", a.fused_qkv);
  reader.boolean("sinks", a.sinks);
  reader.boolean("k_is_v", a.k_is_v);
  reader.boolean("kv_shared", a.kv_shared);
  reader.boolean("kv_stored", a.kv_stored);
  reader.boolean("cross", a.cross);
  reader.boolean("rotary", a.rotary);
  reader.boolean("partial_rotary", a.partial_rotary);
  reader.enumerator("qk_norm", a.qk_norm);
  reader.enumerator("output_gate", a.output_gate);
  reader.number("softcap", a.softcap, kSoftcap);
  reader.boolean("softmax_in_type", a.softmax_in_type);
  read_indexer(reader, a.indexer);
  return a;
}

LatentAttention read_latent_attention(ObjectReader& reader) {
  LatentAttention a;
  reader.integer("heads", a.heads, limits::kHeads, Need::required);
  reader.integer("q_lora_rank", a.q_lora_rank, kWidthOrNone);
  reader.integer("kv_lora_rank", a.kv_lora_rank, limits::kWidth, Need::required);
  reader.integer("qk_nope_head_dim", a.qk_nope_head_dim, kWidthOrNone, Need::required);
  reader.integer("qk_rope_head_dim", a.qk_rope_head_dim, kWidthOrNone, Need::required);
  reader.integer("v_head_dim", a.v_head_dim, limits::kWidth, Need::required);
  reader.boolean("qkv_bias", a.qkv_bias);
  reader.boolean("o_bias", a.o_bias);
  reader.boolean("output_gate", a.output_gate);
  reader.boolean("rotary", a.rotary);
  read_indexer(reader, a.indexer);
  return a;
}

CompressedAttention read_compressed_attention(ObjectReader& reader) {
  CompressedAttention a;
  reader.integer("heads", a.heads, limits::kHeads, Need::required);
  reader.integer("head_dim", a.head_dim, limits::kWidth, Need::required);
  reader.integer("q_lora_rank", a.q_lora_rank, limits::kWidth, Need::required);
  reader.integer("o_groups", a.o_groups, limits::kHeads, Need::required);
  reader.integer("o_lora_rank", a.o_lora_rank, limits::kWidth, Need::required);
  reader.integer("window", a.window, kWindow, Need::required);
  reader.integer("ratio", a.ratio, kWidthOrNone);
  read_indexer(reader, a.indexer);
  return a;
}

Mamba1 read_mamba1(ObjectReader& reader) {
  Mamba1 m;
  reader.integer("inner", m.inner, limits::kWidth, Need::required);
  reader.integer("state_size", m.state_size, limits::kWidth, Need::required);
  reader.integer("conv_kernel", m.conv_kernel, limits::kWidth, Need::required);
  reader.integer("dt_rank", m.dt_rank, limits::kWidth, Need::required);
  reader.boolean("inner_norms", m.inner_norms);
  return m;
}

Mamba2 read_mamba2(ObjectReader& reader) {
  Mamba2 m;
  reader.integer("heads", m.heads, limits::kHeads, Need::required);
  reader.integer("head_dim", m.head_dim, limits::kWidth, Need::required);
  reader.integer("groups", m.groups, limits::kHeads, Need::required);
  reader.integer("state_size", m.state_size, limits::kWidth, Need::required);
  reader.integer("conv_kernel", m.conv_kernel, limits::kWidth, Need::required);
  reader.integer("chunk_size", m.chunk_size, limits::kWidth);
  reader.boolean("gated_norm", m.gated_norm);
  return m;
}

GatedDeltaNet read_gated_delta_net(ObjectReader& reader) {
  GatedDeltaNet n;
  reader.integer("key_heads", n.key_heads, limits::kHeads, Need::required);
  reader.integer("key_head_dim", n.key_head_dim, limits::kWidth, Need::required);
  reader.integer("value_heads", n.value_heads, limits::kHeads, Need::required);
  reader.integer("value_head_dim", n.value_head_dim, limits::kWidth, Need::required);
  reader.integer("conv_kernel", n.conv_kernel, limits::kWidth, Need::required);
  reader.boolean("fused_projections", n.fused_projections);
  return n;
}

KimiDeltaAttention read_kimi_delta_attention(ObjectReader& reader) {
  KimiDeltaAttention a;
  reader.integer("heads", a.heads, limits::kHeads, Need::required);
  reader.integer("head_dim", a.head_dim, limits::kWidth, Need::required);
  reader.integer("conv_kernel", a.conv_kernel, limits::kWidth, Need::required);
  reader.boolean("full_rank_gate", a.full_rank_gate);
  return a;
}

LightningAttention read_lightning_attention(ObjectReader& reader) {
  LightningAttention a;
  reader.integer("heads", a.heads, limits::kHeads, Need::required);
  reader.integer("head_dim", a.head_dim, limits::kWidth, Need::required);
  return a;
}

ShortConvolution read_short_convolution(ObjectReader& reader) {
  ShortConvolution c;
  reader.integer("kernel", c.kernel, limits::kWidth, Need::required);
  return c;
}

DenseMlp read_dense_mlp(ObjectReader& reader) {
  DenseMlp m;
  reader.integer("intermediate_size", m.intermediate_size, limits::kWidth, Need::required);
  reader.boolean("gated", m.gated);
  reader.boolean("bias", m.bias);
  reader.boolean("fused_gate_up", m.fused_gate_up);
  reader.enumerator("activation", m.activation);
  return m;
}

MoeMlp read_moe_mlp(ObjectReader& reader) {
  MoeMlp m;
  reader.integer("experts", m.experts, limits::kExperts, Need::required);
  reader.integer("experts_per_token", m.experts_per_token, limits::kExperts, Need::required);
  reader.integer("intermediate_size", m.intermediate_size, limits::kWidth, Need::required);
  reader.integer("shared_intermediate_size", m.shared_intermediate_size, kWidthOrNone);
  reader.integer("latent_size", m.latent_size, kWidthOrNone);
  reader.integer("zero_experts", m.zero_experts, kExpertsOrNone);
  reader.boolean("gated", m.gated);
  reader.boolean("shared_expert_gate", m.shared_expert_gate);
  reader.boolean("latent_norm", m.latent_norm);
  reader.boolean("router_bias", m.router_bias);
  reader.boolean("router_correction_bias", m.router_correction_bias);
  reader.boolean("router_scale", m.router_scale);
  reader.boolean("expert_bias", m.expert_bias);
  reader.enumerator("activation", m.activation);
  return m;
}

template <class Kind>
struct KindReader {
  std::string_view name;
  Kind (*read)(ObjectReader& reader);
};

constexpr std::array<KindReader<Mixer>, 9> kMixers = {{
    {"attention", [](ObjectReader& reader) -> Mixer { return read_attention(reader); }},
    {"latent_attention", [](ObjectReader& reader) -> Mixer { return read_latent_attention(reader); }},
    {"compressed_attention", [](ObjectReader& reader) -> Mixer { return read_compressed_attention(reader); }},
    {"mamba1", [](ObjectReader& reader) -> Mixer { return read_mamba1(reader); }},
    {"mamba2", [](ObjectReader& reader) -> Mixer { return read_mamba2(reader); }},
    {"gated_delta_net", [](ObjectReader& reader) -> Mixer { return read_gated_delta_net(reader); }},
    {"kimi_delta_attention", [](ObjectReader& reader) -> Mixer { return read_kimi_delta_attention(reader); }},
    {"lightning_attention", [](ObjectReader& reader) -> Mixer { return read_lightning_attention(reader); }},
    {"short_convolution", [](ObjectReader& reader) -> Mixer { return read_short_convolution(reader); }},
}};

constexpr std::array<KindReader<Mlp>, 2> kMlps = {{
    {"dense", [](ObjectReader& reader) -> Mlp { return read_dense_mlp(reader); }},
    {"moe", [](ObjectReader& reader) -> Mlp { return read_moe_mlp(reader); }},
}};

// One mixer or MLP: its `kind` says which other fields there are.
template <class Kind, std::size_t N>
void read_kind(const Json& value, const std::string& pointer, const std::array<KindReader<Kind>, N>& kinds,
               Problems& problems, std::vector<Kind>& destination) {
  ObjectReader reader(value, pointer, problems);
  std::string name;
  if (!reader.string("kind", name, Need::required)) return;
  std::array<std::string_view, N> names;
  for (std::size_t i = 0; i < N; ++i) {
    names[i] = kinds[i].name;
    if (name != names[i]) continue;
    destination.push_back(kinds[i].read(reader));
    reader.finish();
    return;
  }
  report_unknown_value(problems, reader.pointer_to("kind"), name, names);
}

// Calls read(element, pointer) for each element of the array `name`.
template <class Read>
void each(ObjectReader& reader, std::string_view name, Need need, Read read) {
  const Json* values = reader.array(name, need);
  if (values == nullptr) return;
  for (std::size_t i = 0; i < values->size(); ++i) read((*values)[i], child_pointer(reader.pointer_to(name), i));
}

void read_extras(ObjectReader& parent, std::vector<ExtraTensor>& extras) {
  each(parent, "extras", Need::optional, [&](const Json& value, const std::string& pointer) {
    ExtraTensor extra;
    ObjectReader reader(value, pointer, parent.problems());
    reader.string("name", extra.name, Need::required);
    reader.integers("shape", extra.shape, limits::kVocabulary, Need::required);
    reader.integer("copies", extra.copies, kCopies);
    reader.boolean("linear", extra.linear);
    reader.boolean("embedding", extra.embedding);
    reader.finish();
    extras.push_back(std::move(extra));
  });
}

void read_towers(ObjectReader& parent, std::vector<Tower>& towers) {
  each(parent, "towers", Need::optional, [&](const Json& value, const std::string& pointer) {
    Tower tower;
    ObjectReader reader(value, pointer, parent.problems());
    reader.string("name", tower.name, Need::required);
    reader.integer("parameters", tower.parameters.value, {1, limits::kParameters.maximum}, Need::required);
    reader.finish();
    towers.push_back(std::move(tower));
  });
}

void read_layers(ObjectReader& parent, std::vector<LayerGroup>& groups) {
  Problems& problems = parent.problems();
  each(parent, "layers", Need::required, [&](const Json& value, const std::string& pointer) {
    LayerGroup group;
    ObjectReader reader(value, pointer, problems);
    reader.integer("count", group.count, limits::kLayers, Need::required);
    each(reader, "mixers", Need::optional,
         [&](const Json& mixer, const std::string& at) { read_kind(mixer, at, kMixers, problems, group.mixers); });
    each(reader, "mlps", Need::optional,
         [&](const Json& mlp, const std::string& at) { read_kind(mlp, at, kMlps, problems, group.mlps); });
    reader.integer("norms", group.norms, {0, 64});
    read_extras(reader, group.extras);
    reader.finish();
    groups.push_back(std::move(group));
  });
}

void read_card(ObjectReader& reader, ModelCard& card) {
  reader.string("id", card.id, Need::required);
  reader.string("label", card.label, Need::required);
  reader.string("family", card.family, Need::required);
  reader.string("model_type", card.model_type, Need::required);
  reader.string("release", card.release);
  reader.string("license", card.license);
  reader.strings("aliases", card.aliases);
  reader.string("source", card.source, Need::required);
  reader.string("read", card.read);
  reader.enumerator("confidence", card.confidence);
}

void read_architecture(ObjectReader& reader, ModelArchitecture& m) {
  reader.integer("hidden_size", m.hidden_size, limits::kWidth, Need::required);
  reader.integer("vocab_size", m.vocab_size, limits::kVocabulary, Need::required);
  reader.integer("head_rows", m.head_rows, kRowsOrNone);
  reader.integer("embedding_size", m.embedding_size, kWidthOrNone);
  reader.integer("max_position_embeddings", m.max_position_embeddings, limits::kSequenceLength, Need::required);
  reader.boolean("tie_word_embeddings", m.tie_word_embeddings);
  reader.boolean("lm_head_bias", m.lm_head_bias);
  reader.boolean("embedding_norm", m.embedding_norm);
  reader.boolean("final_norm", m.final_norm);
  reader.boolean("parallel_residual", m.parallel_residual);
  reader.enumerator("position", m.position);
  reader.integer("position_rows", m.position_rows, kRowsOrNone);
  if (const Json* norm = reader.object("norm")) read_norm(*norm, reader.pointer_to("norm"), reader.problems(), m.norm);
  reader.enumerator("norm_placement", m.norm_placement);
  if (const Json* dropout = reader.object("dropout")) {
    read_dropout(*dropout, reader.pointer_to("dropout"), reader.problems(), m.dropout);
  }
  reader.number("final_softcap", m.final_softcap, kSoftcap);
  read_layers(reader, m.groups);
  reader.integers("order", m.order, kPlace);
  read_extras(reader, m.extras);
  read_towers(reader, m.towers);
}

}  // namespace

Result<ModelCard> read_model(const Json& value, const std::string& pointer) {
  ModelCard card;
  Problems problems;
  ObjectReader reader(value, pointer, problems);
  read_card(reader, card);
  read_architecture(reader, card.architecture);
  reader.finish();
  if (problems.empty()) problems = check_architecture(card.architecture, pointer);
  if (!problems.empty()) return problems;
  return card;
}

}  // namespace vramplan
