// Dense decoders of Llama's shape. What a dialect fixes in code and what its config.json can change is as in the
// configuration and modelling classes of Hugging Face Transformers 4.57; InternLM, EXAONE 3 and MiniCPM as in the code
// that their repositories bring.
#include "decoder.hpp"
#include "dialects.hpp"

namespace vramplan::config {
namespace {

ModelArchitecture llama(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {});
  read_attention_bias(fields, decoder);
  decoder.mlp.bias = fields.flag_or({"mlp_bias"}, false);
  return uniform(decoder);
}

ModelArchitecture mistral(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.kv_heads = 8, .positions = 131072});
  decoder.attention.window = read_window(fields, 4096);
  return uniform(decoder);
}

ModelArchitecture ministral3(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.kv_heads = 8, .head_dim = 128, .positions = 262144});
  decoder.attention.window = read_window(fields, 0);
  return uniform(decoder);
}

// Layers from max_window_layers on slide, when the config switches sliding on at all.
std::vector<std::size_t> qwen_layers(ConfigFields& fields, Dim layers, bool slides) {
  const Dim first = fields.size_or({"max_window_layers"}, {0, limits::kLayers.maximum}, 28);
  const auto given = fields.kind_of_layer({"layer_types"}, layers, {"sliding_attention", "full_attention"});
  if (given) return *given;
  return for_each_layer(layers, [&](Dim i) { return slides && i >= first ? kSliding : kGlobal; });
}

ModelArchitecture qwen(ConfigFields& fields, const Decoder& decoder) {
  const bool slides = fields.flag_or({"use_sliding_window"}, false);
  Attention sliding = decoder.attention;
  sliding.window = slides ? read_window(fields, 4096) : 0;
  return with_windows(decoder, sliding, decoder.attention, decoder.mlp, qwen_layers(fields, decoder.layers, slides));
}

ModelArchitecture qwen2(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.kv_heads = 32, .positions = 32768});
  decoder.attention.qkv_bias = true;
  return qwen(fields, decoder);
}

ModelArchitecture qwen3(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.kv_heads = 32, .head_dim = 128, .positions = 32768});
  read_attention_bias(fields, decoder);
  decoder.attention.qk_norm = QkNorm::head;
  return qwen(fields, decoder);
}

ModelArchitecture phi3(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.positions = 4096});
  decoder.attention.fused_qkv = true;
  decoder.mlp.fused_gate_up = true;
  decoder.attention.window = read_window(fields, 0);
  return uniform(decoder);
}

Decoder glm_decoder(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.kv_heads = 2, .head_dim = 128, .positions = 131072});
  decoder.attention.qkv_bias = fields.flag_or({"attention_bias"}, true);
  decoder.mlp.fused_gate_up = true;
  return decoder;
}

ModelArchitecture glm(ConfigFields& fields) { return uniform(glm_decoder(fields)); }

ModelArchitecture glm4(ConfigFields& fields) {
  Decoder decoder = glm_decoder(fields);
  decoder.norms = 4;
  decoder.model.norm_placement = NormPlacement::sandwich;
  return uniform(decoder);
}

// The first OLMo normalizes without learning anything.
ModelArchitecture olmo(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {});
  read_attention_bias(fields, decoder);
  decoder.model.norm = {.type = NormType::layer, .weight = false};
  return uniform(decoder);
}

Decoder olmo2_decoder(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {});
  read_attention_bias(fields, decoder);
  decoder.attention.qk_norm = QkNorm::full;
  decoder.model.norm.scale_before_cast = true;
  decoder.model.norm_placement = NormPlacement::post_branch;
  return decoder;
}

ModelArchitecture olmo2(ConfigFields& fields) { return uniform(olmo2_decoder(fields)); }

ModelArchitecture olmo3(ConfigFields& fields) {
  const Decoder decoder = olmo2_decoder(fields);
  Attention sliding = decoder.attention;
  sliding.window = read_window(fields, 4096);
  return with_windows(decoder, sliding, decoder.attention, decoder.mlp, sliding_layers(fields, decoder.layers, 4));
}

Decoder cohere_decoder(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.vocab = 256000, .positions = 8192, .tied = true});
  read_attention_bias(fields, decoder);
  decoder.norms = 1;
  decoder.model.norm.type = NormType::layer;
  decoder.model.parallel_residual = true;
  return decoder;
}

ModelArchitecture cohere(ConfigFields& fields) {
  Decoder decoder = cohere_decoder(fields);
  if (fields.flag_or({"use_qk_norm"}, false)) decoder.attention.qk_norm = QkNorm::full;
  return uniform(decoder);
}

// Global layers have no rotary positions.
ModelArchitecture cohere2(ConfigFields& fields) {
  const Decoder decoder = cohere_decoder(fields);
  Attention sliding = decoder.attention;
  sliding.window = read_window(fields, 4096);
  Attention global = decoder.attention;
  global.rotary = false;
  const Dim period = fields.size_or({"sliding_window_pattern"}, limits::kLayers, 4);
  return with_windows(decoder, sliding, global, decoder.mlp, sliding_layers(fields, decoder.layers, period));
}

// One layer in every no_rope_layer_interval has no rotary positions; no_rope_layers says 1 where a layer has them.
ModelArchitecture smollm3(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.kv_heads = 4, .positions = 32768, .tied = true});
  read_attention_bias(fields, decoder);
  decoder.mlp.bias = fields.flag_or({"mlp_bias"}, false);
  if (fields.flag_or({"use_sliding_window"}, false)) fields.not_supported({"use_sliding_window"}, "true");
  const auto layers = static_cast<std::size_t>(decoder.layers);
  const std::vector<std::int64_t> rotary = fields.sizes_or_none({"no_rope_layers"}, {0, 1}, layers);
  const Dim interval = fields.size_or({"no_rope_layer_interval"}, limits::kLayers, 4);
  Attention without = decoder.attention;
  without.rotary = false;
  const auto kinds = for_each_layer(decoder.layers, [&](Dim i) {
    const auto index = static_cast<std::size_t>(i);
    return index < rotary.size() ? rotary[index] : (i + 1) % interval != 0 ? 1 : 0;
  });
  return with_windows(decoder, without, decoder.attention, decoder.mlp, kinds);
}

ModelArchitecture internlm2(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {});
  decoder.attention.fused_qkv = true;
  decoder.attention.qkv_bias = decoder.attention.o_bias = fields.flag_or({"bias"}, true);
  return uniform(decoder);
}

ModelArchitecture internlm3(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.positions = 32768});
  set_all_biases(decoder, fields.flag_or({"bias"}, false));
  decoder.attention.qkv_bias = fields.flag_or({"qkv_bias"}, false);
  return uniform(decoder);
}

ModelArchitecture exaone(ConfigFields& fields) { return uniform(read_decoder(fields, {})); }

// A pattern of one letter a layer (L local, G global), or a number as in other dialects. No window: all layers are
// global.
Dim exaone4_period(ConfigFields& fields, bool slides) {
  const FieldNames name = {"sliding_window_pattern"};
  if (!slides) return 0;
  const Json* pattern = fields.any("sliding_window_pattern");
  if (pattern == nullptr || !pattern->is_string()) return fields.size_or(name, limits::kLayers, 4);
  const std::string letters = fields.text_or(name, "");
  const std::size_t global = letters.find('G');
  if (global == std::string::npos || global + 1 != letters.size() ||
      letters.find_first_not_of("LG") != std::string::npos) {
    report_unknown_value(fields.problems(), fields.pointer_to(name), letters, std::vector<std::string_view>{"LLLG"});
    return 0;
  }
  return static_cast<Dim>(letters.size());
}

ModelArchitecture exaone4(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.kv_heads = 32});
  decoder.attention.qk_norm = QkNorm::head;
  decoder.model.norm_placement = NormPlacement::post_branch;
  Attention sliding = decoder.attention;
  sliding.window = read_window(fields, 4096);
  Attention global = decoder.attention;
  global.rotary = sliding.window == 0;
  const Dim period = exaone4_period(fields, sliding.window > 0);
  return with_windows(decoder, sliding, global, decoder.mlp, sliding_layers(fields, decoder.layers, period));
}

ModelArchitecture minicpm(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.tied = true});
  read_attention_bias(fields, decoder);
  if (fields.size_or({"num_experts"}, {0, limits::kExperts.maximum}, 0) > 0)
    fields.not_supported({"num_experts"}, "MoE");
  return uniform(decoder);
}

ModelArchitecture seed_oss(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.kv_heads = 8, .head_dim = 128, .positions = 524288});
  decoder.attention.qkv_bias = fields.flag_or({"attention_bias"}, true);
  decoder.attention.o_bias = fields.flag_or({"attention_out_bias"}, false);
  decoder.mlp.bias = fields.flag_or({"mlp_bias"}, false);
  return uniform(decoder);
}

ModelArchitecture apertus(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.positions = 65536, .activation = "xielu"});
  read_attention_bias(fields, decoder);
  decoder.attention.qk_norm = QkNorm::head;
  decoder.mlp.gated = false;
  return uniform(decoder);
}

ModelArchitecture ernie4_5(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.kv_heads = 2, .head_dim = 128, .positions = 131072, .tied = true});
  set_all_biases(decoder, fields.flag_or({"use_bias"}, false));
  return uniform(decoder);
}

ModelArchitecture hunyuan(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {});
  read_attention_bias(fields, decoder);
  decoder.attention.qk_norm = QkNorm::head;
  return uniform(decoder);
}

constexpr Dialect kDialects[] = {
    {"llama", llama},
    {"mistral", mistral},
    {"ministral3", ministral3},
    {"qwen2", qwen2},
    {"qwen2_5_vl_text", qwen2},
    {"qwen3", qwen3},
    {"qwen3_vl_text", qwen3},
    {"phi3", phi3},
    {"glm", glm},
    {"glm4", glm4},
    {"olmo", olmo},
    {"olmo2", olmo2},
    {"olmo3", olmo3},
    {"cohere", cohere},
    {"cohere2", cohere2},
    {"granite", llama},
    {"smollm3", smollm3},
    {"internlm2", internlm2},
    {"internlm3", internlm3},
    {"exaone", exaone},
    {"exaone4", exaone4},
    {"minicpm", minicpm},
    {"mimo", qwen2},
    {"seed_oss", seed_oss},
    {"apertus", apertus},
    {"ernie4_5", ernie4_5},
    {"hunyuan_v1_dense", hunyuan},
};

}  // namespace

std::span<const Dialect> llama_dialects() { return kDialects; }

}  // namespace vramplan::config
