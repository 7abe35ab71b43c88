// GPT-2 and those after it that kept LayerNorm, biases or a plain two-matrix MLP. As in the configuration and modelling
// classes of Hugging Face Transformers 4.57.
#include "decoder.hpp"
#include "dialects.hpp"

namespace vramplan::config {
namespace {

constexpr Norm kLayerNorm{.type = NormType::layer, .bias = true};

Defaults gpt_defaults(const char* activation, bool tied) {
  Defaults defaults;
  defaults.intermediate_factor = 4;
  defaults.activation = activation;
  defaults.tied = tied;
  return defaults;
}

void make_gpt(Decoder& decoder) {
  decoder.mlp.gated = false;
  decoder.model.norm = kLayerNorm;
}

void make_parallel(Decoder& decoder, Dim norms) {
  decoder.model.parallel_residual = true;
  decoder.norms = norms;
}

// What config.json publishes for dropout, or the class default.
Dropout read_dropout(ConfigFields& fields, const Dropout& otherwise) {
  return {.embedding = fields.number_or({"embd_pdrop", "embedding_dropout"}, otherwise.embedding),
          .attention = fields.number_or({"attn_pdrop", "attention_dropout"}, otherwise.attention),
          .residual = fields.number_or({"resid_pdrop", "residual_dropout", "hidden_dropout"}, otherwise.residual)};
}

ModelArchitecture gpt2(ConfigFields& fields) {
  Defaults defaults = gpt_defaults("gelu_new", true);
  defaults.vocab = 50257;
  defaults.positions = 1024;
  Decoder decoder = read_gpt_decoder(fields, defaults);
  make_gpt(decoder);
  set_all_biases(decoder, true);
  decoder.attention.fused_qkv = true;
  decoder.attention.rotary = false;
  decoder.attention.softmax_in_type = true;
  decoder.model.dropout = read_dropout(fields, {.embedding = 0.1, .attention = 0.1, .residual = 0.1});
  decoder.model.position = PositionType::learned;
  decoder.model.position_rows = decoder.model.max_position_embeddings;
  return uniform(decoder);
}

ModelArchitecture gpt_neox(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.activation = "gelu"});
  make_gpt(decoder);
  set_all_biases(decoder, true);
  read_attention_bias(fields, decoder, true);
  decoder.attention.fused_qkv = true;
  decoder.model.parallel_residual = fields.flag_or({"use_parallel_residual"}, true);
  decoder.model.dropout = read_dropout(fields, {});
  decoder.model.dropout.embedding = decoder.model.dropout.residual;  // hidden_dropout serves both
  return uniform(decoder);
}

ModelArchitecture gptj(ConfigFields& fields) {
  Decoder decoder = read_gpt_decoder(fields, gpt_defaults("gelu_new", false));
  make_gpt(decoder);
  make_parallel(decoder, 1);
  decoder.mlp.bias = true;
  decoder.model.lm_head_bias = true;
  decoder.model.dropout = read_dropout(fields, {});
  return uniform(decoder);
}

// The position table has two rows more than positions: the first two are never used.
ModelArchitecture opt(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.tied = true, .activation = "relu"});
  make_gpt(decoder);
  set_all_biases(decoder, fields.flag_or({"enable_bias"}, true));
  ModelArchitecture& model = decoder.model;
  model.norm.weight = model.norm.bias = fields.flag_or({"layer_norm_elementwise_affine"}, true);
  decoder.attention.rotary = false;
  model.position = PositionType::learned;
  model.position_rows = model.max_position_embeddings + 2;
  model.dropout.attention = fields.number_or({"attention_dropout"}, 0);
  model.dropout.residual = fields.number_or({"dropout"}, 0.1);
  const bool norm_first = fields.flag_or({"do_layer_norm_before"}, true);
  model.final_norm = norm_first && !fields.flag_or({"_remove_final_layer_norm"}, false);
  const Dim width = fields.size_or({"word_embed_proj_dim"}, limits::kWidth, model.hidden_size);
  if (width != model.hidden_size) model.embedding_size = width;
  return uniform(decoder);
}

ModelArchitecture bloom(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, gpt_defaults("gelu_pytorch_tanh", true));
  decoder.mlp.intermediate_size = 4 * decoder.model.hidden_size;
  make_gpt(decoder);
  set_all_biases(decoder, true);
  decoder.attention.fused_qkv = true;
  decoder.attention.rotary = false;
  decoder.model.position = PositionType::alibi;
  decoder.model.embedding_norm = true;
  decoder.model.dropout = read_dropout(fields, {});
  return uniform(decoder);
}

// Falcon 7B: one key-value head, one norm. The "new decoder architecture" (40B, 180B): groups of heads, two norms.
Dim falcon_kv_heads(ConfigFields& fields, bool new_architecture, const Attention& attention) {
  const bool multi_query = fields.flag_or({"multi_query"}, true);
  if (new_architecture) return attention.kv_heads;
  return multi_query ? 1 : attention.heads;
}

Dim falcon_norms(ConfigFields& fields, bool new_architecture, bool parallel) {
  const Dim given = fields.size_or({"num_ln_in_parallel_attn"}, {1, 2}, new_architecture ? 2 : 1);
  return parallel ? given : 2;
}

ModelArchitecture falcon(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, gpt_defaults("gelu", true));
  make_gpt(decoder);
  set_all_biases(decoder, fields.flag_or({"bias"}, false));
  const bool new_architecture = fields.flag_or({"new_decoder_architecture"}, false);
  ModelArchitecture& model = decoder.model;
  model.parallel_residual = fields.flag_or({"parallel_attn"}, true);
  decoder.norms = falcon_norms(fields, new_architecture, model.parallel_residual);
  decoder.attention.kv_heads = falcon_kv_heads(fields, new_architecture, decoder.attention);
  decoder.attention.fused_qkv = true;
  decoder.attention.rotary = !fields.flag_or({"alibi"}, false);
  model.dropout = read_dropout(fields, {});
  if (!decoder.attention.rotary) model.position = PositionType::alibi;
  return uniform(decoder);
}

// Transformers builds MPT with ALiBi, four times the width and one head of keys a query head, whatever the file says.
ModelArchitecture mpt(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, gpt_defaults("gelu", true));
  decoder.mlp.intermediate_size = 4 * decoder.model.hidden_size;
  decoder.mlp.gated = false;
  decoder.model.norm = {.type = NormType::layer};
  decoder.attention.fused_qkv = true;
  decoder.attention.rotary = false;
  decoder.model.position = PositionType::alibi;
  return uniform(decoder);
}

ModelArchitecture phi(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.activation = "gelu_new"});
  make_gpt(decoder);
  make_parallel(decoder, 1);
  set_all_biases(decoder, true);
  decoder.model.lm_head_bias = true;
  decoder.model.dropout = read_dropout(fields, {});
  if (fields.flag_or({"qk_layernorm"}, false)) fields.not_supported({"qk_layernorm"}, "true");
  return uniform(decoder);
}

ModelArchitecture starcoder2(ConfigFields& fields) {
  Decoder decoder =
      read_decoder(fields, {.kv_heads = 2, .positions = 4096, .tied = true, .activation = "gelu_pytorch_tanh"});
  make_gpt(decoder);
  set_all_biases(decoder, fields.flag_or({"use_bias"}, true));
  decoder.attention.window = read_window(fields, 0);
  decoder.model.dropout = read_dropout(fields, {});
  return uniform(decoder);
}

// Gated as Llama, with LayerNorm. StableLM 2 12B: parallel, and a norm for each head of q and k.
ModelArchitecture stablelm(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.kv_heads = 32, .positions = 4096});
  decoder.model.norm = kLayerNorm;
  decoder.attention.qkv_bias = fields.flag_or({"use_qkv_bias"}, false);
  if (fields.flag_or({"qk_layernorm"}, false)) decoder.attention.qk_norm = QkNorm::full;
  if (fields.flag_or({"use_parallel_residual"}, false)) make_parallel(decoder, 1);
  return uniform(decoder);
}

ModelArchitecture nemotron(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.positions = 4096, .activation = "relu2"});
  make_gpt(decoder);
  read_attention_bias(fields, decoder);
  decoder.mlp.bias = fields.flag_or({"mlp_bias"}, false);
  return uniform(decoder);
}

constexpr Dialect kDialects[] = {
    {"gpt2", gpt2},         {"gpt_neox", gpt_neox}, {"gptj", gptj},
    {"opt", opt},           {"bloom", bloom},       {"mpt", mpt},
    {"falcon", falcon},     {"phi", phi},           {"starcoder2", starcoder2},
    {"stablelm", stablelm}, {"nemotron", nemotron},
};

}  // namespace

std::span<const Dialect> gpt_dialects() { return kDialects; }

}  // namespace vramplan::config
