#include "decoder.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <utility>

namespace vramplan::config {
namespace {

constexpr FieldNames kHidden = {"hidden_size", "n_embd", "n_embed", "d_model"};
constexpr FieldNames kLayers = {"num_hidden_layers", "n_layer", "n_layers", "num_layers"};
constexpr FieldNames kHeads = {"num_attention_heads", "n_head", "n_heads"};
constexpr FieldNames kPositions = {"max_position_embeddings", "n_positions", "max_seq_len", "seq_length"};
constexpr FieldNames kIntermediate = {"intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner"};

constexpr FieldNames kGptHidden = {"n_embd", "hidden_size"};
constexpr FieldNames kGptLayers = {"n_layer", "num_hidden_layers"};
constexpr FieldNames kGptHeads = {"n_head", "num_attention_heads"};
constexpr FieldNames kGptPositions = {"n_positions", "max_position_embeddings"};
constexpr FieldNames kGptIntermediate = {"n_inner", "intermediate_size"};

constexpr FieldNames kKvHeads = {"num_key_value_heads", "num_kv_heads", "n_head_kv"};
constexpr FieldNames kActivation = {"hidden_act", "hidden_activation", "activation_function", "activation"};

constexpr FieldNames kExpertCount = {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"};
constexpr FieldNames kPerToken = {"num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk"};

struct SizeNames {
  FieldNames hidden, layers, heads, positions, intermediate;
};
constexpr SizeNames kCommonNames{kHidden, kLayers, kHeads, kPositions, kIntermediate};
constexpr SizeNames kGptNames{kGptHidden, kGptLayers, kGptHeads, kGptPositions, kGptIntermediate};

Dim size_with_default(ConfigFields& fields, FieldNames names, IntegerRange range, Dim otherwise) {
  return otherwise > 0 ? fields.size_or(names, range, otherwise) : fields.size(names, range);
}

// kv_heads and head_dim, from which everything of attention follows. Reports a ratio that is not whole, once.
void read_head_sizes(ConfigFields& fields, const SizeNames& names, const Defaults& defaults, Decoder& decoder) {
  Attention& attention = decoder.attention;
  attention.heads = size_with_default(fields, names.heads, limits::kHeads, defaults.heads);
  const bool kv_is_null = fields.is_null("num_key_value_heads");  // then a class default does not apply
  const Dim kv_otherwise = defaults.kv_heads > 0 && !kv_is_null ? defaults.kv_heads : attention.heads;
  attention.kv_heads = fields.size_or(kKvHeads, limits::kHeads, kv_otherwise);
  const Dim hidden = decoder.model.hidden_size;
  const Dim quotient = std::max<Dim>(hidden / attention.heads, 1);
  attention.head_dim =
      fields.size_or({"head_dim"}, limits::kWidth, defaults.head_dim > 0 ? defaults.head_dim : quotient);
  if (!fields.clean()) return;
  if (!fields.has({"head_dim"}) && defaults.head_dim == 0 && hidden % attention.heads != 0) {
    fields.inconsistent(names.heads, *names.hidden.begin());
  }
  if (attention.heads % attention.kv_heads != 0) fields.inconsistent(kKvHeads, *names.heads.begin());
}

Decoder read_sizes(ConfigFields& fields, const SizeNames& names, const Defaults& defaults) {
  Decoder decoder;
  ModelArchitecture& model = decoder.model;
  model.hidden_size = fields.size(names.hidden, limits::kWidth);
  decoder.layers = fields.size(names.layers, limits::kLayers);
  read_head_sizes(fields, names, defaults, decoder);
  model.vocab_size = size_with_default(fields, {"vocab_size"}, limits::kVocabulary, defaults.vocab);
  model.max_position_embeddings = fields.size_or(names.positions, limits::kSequenceLength, defaults.positions);
  model.tie_word_embeddings = fields.flag_or({"tie_word_embeddings"}, defaults.tied);
  decoder.mlp.activation = activation_of(fields, kActivation, defaults.activation);
  return decoder;
}

Decoder read_all(ConfigFields& fields, const SizeNames& names, const Defaults& defaults) {
  Decoder decoder = read_sizes(fields, names, defaults);
  const Dim otherwise = defaults.intermediate_factor * decoder.model.hidden_size;
  decoder.mlp.intermediate_size = size_with_default(fields, names.intermediate, limits::kWidth, otherwise);
  return decoder;
}

MoeMlp read_expert_counts(ConfigFields& fields, const Decoder& decoder, const ExpertDefaults& defaults) {
  MoeMlp moe;
  moe.experts = size_with_default(fields, kExpertCount, limits::kExperts, defaults.experts);
  moe.experts_per_token = size_with_default(fields, kPerToken, limits::kExperts, defaults.per_token);
  moe.activation = decoder.mlp.activation;
  if (fields.clean() && moe.experts_per_token > moe.experts) fields.inconsistent(kPerToken, *kExpertCount.begin());
  return moe;
}

}  // namespace

Decoder read_decoder(ConfigFields& fields, const Defaults& defaults) {
  return read_all(fields, kCommonNames, defaults);
}

Decoder read_gpt_decoder(ConfigFields& fields, const Defaults& defaults) {
  return read_all(fields, kGptNames, defaults);
}

Decoder read_decoder_without_mlp(ConfigFields& fields, const Defaults& defaults) {
  return read_sizes(fields, kCommonNames, defaults);
}

Activation activation_of(ConfigFields& fields, FieldNames names, const char* otherwise) {
  struct Name {
    std::string_view name;
    Activation activation;
  };
  static constexpr std::array<Name, 12> kNames = {{{"silu", Activation::silu},
                                                   {"swish", Activation::silu},
                                                   {"gelu", Activation::gelu},
                                                   {"gelu_pytorch_tanh", Activation::gelu_tanh},
                                                   {"gelu_tanh", Activation::gelu_tanh},
                                                   {"gelu_fast", Activation::gelu_new},
                                                   {"gelu_new", Activation::gelu_new},
                                                   {"relu", Activation::relu},
                                                   {"relu2", Activation::relu2},
                                                   {"relu_squared", Activation::relu2},
                                                   {"squared_relu", Activation::relu2},
                                                   {"xielu", Activation::xielu}}};
  const std::string text = fields.text_or(names, otherwise);
  const auto* found = std::find_if(kNames.begin(), kNames.end(), [&](const Name& name) { return name.name == text; });
  if (found != kNames.end()) return found->activation;
  std::array<std::string_view, kNames.size()> allowed;
  std::transform(kNames.begin(), kNames.end(), allowed.begin(), [](const Name& name) { return name.name; });
  report_unknown_value(fields.problems(), fields.pointer_to(names), text, allowed);
  return Activation::silu;
}

void read_attention_bias(ConfigFields& fields, Decoder& decoder, bool otherwise) {
  decoder.attention.qkv_bias = decoder.attention.o_bias = fields.flag_or({"attention_bias"}, otherwise);
}

void set_all_biases(Decoder& decoder, bool bias) {
  decoder.attention.qkv_bias = decoder.attention.o_bias = decoder.mlp.bias = bias;
}

LayerGroup layer_of(const Decoder& decoder, Mixer mixer, Mlp mlp) {
  LayerGroup layer;
  layer.norms = decoder.norms;
  layer.mixers.push_back(std::move(mixer));
  layer.mlps.push_back(std::move(mlp));
  return layer;
}

ModelArchitecture uniform(const Decoder& decoder, const Mlp& mlp) {
  ModelArchitecture model = decoder.model;
  model.groups.push_back(layer_of(decoder, decoder.attention, mlp));
  model.groups.back().count = decoder.layers;
  return model;
}

ModelArchitecture uniform(const Decoder& decoder) { return uniform(decoder, decoder.mlp); }

ModelArchitecture with_kinds(const Decoder& decoder, std::vector<LayerGroup> kinds,
                             const std::vector<std::size_t>& kind_of_layer) {
  constexpr std::size_t kUnseen = std::numeric_limits<std::size_t>::max();
  ModelArchitecture model = decoder.model;
  std::vector<std::size_t> group_of_kind(kinds.size(), kUnseen);
  for (const std::size_t kind : kind_of_layer) {
    if (group_of_kind[kind] == kUnseen) {
      group_of_kind[kind] = model.groups.size();
      model.groups.push_back(std::move(kinds[kind]));
      model.groups.back().count = 0;
    }
    ++model.groups[group_of_kind[kind]].count;
    model.order.push_back(static_cast<Dim>(group_of_kind[kind]));
  }
  if (std::is_sorted(model.order.begin(), model.order.end())) model.order.clear();
  return model;
}

Dim read_window(ConfigFields& fields, Dim otherwise) {
  if (fields.is_null("sliding_window")) return 0;
  return fields.size_or({"sliding_window"}, {0, limits::kSequenceLength.maximum}, otherwise);
}

std::vector<std::size_t> sliding_layers(ConfigFields& fields, Dim layers, Dim period) {
  const auto given = fields.kind_of_layer({"layer_types"}, layers, {"sliding_attention", "full_attention"});
  if (given) return *given;
  return for_each_layer(layers, [&](Dim i) { return period > 0 && (i + 1) % period != 0 ? kSliding : kGlobal; });
}

ModelArchitecture with_windows(const Decoder& decoder, const Attention& sliding, const Attention& global,
                               const Mlp& mlp, const std::vector<std::size_t>& kind_of_layer) {
  return with_kinds(decoder, {layer_of(decoder, sliding, mlp), layer_of(decoder, global, mlp)}, kind_of_layer);
}

MoeMlp read_experts(ConfigFields& fields, const Decoder& decoder, const ExpertDefaults& defaults) {
  MoeMlp moe = read_expert_counts(fields, decoder, defaults);
  moe.intermediate_size = size_with_default(fields, {"moe_intermediate_size"}, limits::kWidth, defaults.intermediate);
  return moe;
}

MoeMlp read_experts_of_intermediate_size(ConfigFields& fields, const Decoder& decoder, const ExpertDefaults& defaults) {
  MoeMlp moe = read_expert_counts(fields, decoder, defaults);
  moe.intermediate_size = decoder.mlp.intermediate_size;
  return moe;
}

void add_shared_experts(ConfigFields& fields, MoeMlp& experts, Dim otherwise) {
  const IntegerRange range{0, limits::kExperts.maximum};
  const Dim shared =
      fields.size_or({"n_shared_experts", "num_shared_experts", "moe_num_shared_experts"}, range, otherwise);
  experts.shared_intermediate_size = shared * experts.intermediate_size;
}

std::vector<std::size_t> dense_then_experts(ConfigFields& fields, Dim layers, Dim dense_otherwise) {
  const Dim dense = fields.size_or({"first_k_dense_replace"}, {0, limits::kLayers.maximum}, dense_otherwise);
  const Dim frequency = fields.size_or({"moe_layer_freq"}, limits::kLayers, 1);
  // Transformers 5 writes the outcome of the rule instead.
  const auto given = fields.kind_of_layer({"mlp_layer_types"}, layers, {"dense", "sparse"});
  if (given) return *given;
  return for_each_layer(layers, [&](Dim i) { return i >= dense && i % frequency == 0 ? kExperts : kDense; });
}

std::vector<std::size_t> sparse_step_layers(ConfigFields& fields, Dim layers) {
  const Dim step = fields.size_or({"decoder_sparse_step"}, limits::kLayers, 1);
  const std::vector<std::int64_t> dense =
      fields.sizes_or_none({"mlp_only_layers"}, {0, limits::kLayers.maximum}, static_cast<std::size_t>(layers));
  std::vector<std::size_t> kinds =
      for_each_layer(layers, [&](Dim i) { return (i + 1) % step == 0 ? kExperts : kDense; });
  for (const std::int64_t layer : dense) {
    if (layer < layers) kinds[static_cast<std::size_t>(layer)] = kDense;
  }
  return kinds;
}

ModelArchitecture with_experts(const Decoder& decoder, const Mixer& mixer, const MoeMlp& experts,
                               const std::vector<std::size_t>& kind_of_layer) {
  return with_kinds(decoder, {layer_of(decoder, mixer, decoder.mlp), layer_of(decoder, mixer, experts)}, kind_of_layer);
}

}  // namespace vramplan::config
