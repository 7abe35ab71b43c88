// Mixtures of experts with ordinary attention. As in the configuration and modelling classes of Hugging Face
// Transformers (4.57; MiniMax-M2 as in 5.24); DeepSeekMoE as in the code that its repository brings.
#include "decoder.hpp"
#include "dialects.hpp"

namespace vramplan::config {
namespace {

ModelArchitecture mixtral(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.kv_heads = 8, .positions = 131072});
  decoder.attention.window = read_window(fields, 0);
  return uniform(decoder, read_experts_of_intermediate_size(fields, decoder, {.experts = 8, .per_token = 2}));
}

// Neither Qwen2-MoE nor Qwen3-MoE was released with a window, though their classes have the switch.
void refuse_window(ConfigFields& fields) {
  if (fields.flag_or({"use_sliding_window"}, false)) fields.not_supported({"use_sliding_window"}, "true");
}

ModelArchitecture qwen2_moe(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.kv_heads = 16, .positions = 32768});
  decoder.attention.qkv_bias = fields.flag_or({"qkv_bias"}, true);
  refuse_window(fields);
  MoeMlp experts = read_experts(fields, decoder, {.experts = 60, .per_token = 4, .intermediate = 1408});
  experts.shared_intermediate_size = fields.size_or({"shared_expert_intermediate_size"}, limits::kWidth, 5632);
  experts.shared_expert_gate = true;
  return with_experts(decoder, decoder.attention, experts, sparse_step_layers(fields, decoder.layers));
}

ModelArchitecture qwen3_moe(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.kv_heads = 4, .positions = 32768});
  read_attention_bias(fields, decoder);
  decoder.attention.qk_norm = QkNorm::head;
  refuse_window(fields);
  const MoeMlp experts = read_experts(fields, decoder, {.experts = 128, .per_token = 8, .intermediate = 768});
  return with_experts(decoder, decoder.attention, experts, sparse_step_layers(fields, decoder.layers));
}

ModelArchitecture phimoe(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.kv_heads = 8, .positions = 131072});
  read_attention_bias(fields, decoder);
  decoder.model.norm = {.type = NormType::layer, .bias = true};
  decoder.model.lm_head_bias = fields.flag_or({"lm_head_bias"}, false);
  decoder.attention.window = read_window(fields, 0);
  return uniform(decoder, read_experts_of_intermediate_size(fields, decoder, {.experts = 16, .per_token = 2}));
}

ModelArchitecture olmoe(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.positions = 4096});
  read_attention_bias(fields, decoder);
  decoder.attention.qk_norm = QkNorm::full;
  return uniform(decoder, read_experts_of_intermediate_size(fields, decoder, {.experts = 64, .per_token = 8}));
}

ModelArchitecture gpt_oss(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.kv_heads = 8, .head_dim = 64, .positions = 131072});
  read_attention_bias(fields, decoder, true);
  decoder.attention.sinks = true;
  decoder.model.norm.scale_before_cast = true;
  Attention sliding = decoder.attention;
  sliding.window = read_window(fields, 128);
  MoeMlp experts = read_experts_of_intermediate_size(fields, decoder, {.experts = 128, .per_token = 4});
  experts.router_bias = experts.expert_bias = true;
  experts.activation = Activation::clamped_swiglu;
  return with_windows(decoder, sliding, decoder.attention, experts, sliding_layers(fields, decoder.layers, 2));
}

// With `shared_intermediate_size` (granitemoeshared) an MLP for every token beside the experts.
ModelArchitecture granitemoe(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {});
  read_attention_bias(fields, decoder);
  MoeMlp experts = read_experts_of_intermediate_size(fields, decoder, {.experts = 8, .per_token = 2});
  const IntegerRange range{0, limits::kWidth.maximum};
  experts.shared_intermediate_size = fields.size_or({"shared_intermediate_size"}, range, 0);
  return uniform(decoder, experts);
}

ModelArchitecture deepseek(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {});
  read_attention_bias(fields, decoder);
  if (!fields.has({"n_routed_experts"})) return uniform(decoder);
  MoeMlp experts = read_experts(fields, decoder, {.intermediate = 1407});
  add_shared_experts(fields, experts, 0);
  return with_experts(decoder, decoder.attention, experts, dense_then_experts(fields, decoder.layers, 0));
}

ModelArchitecture glm4_moe(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.kv_heads = 8, .positions = 131072});
  decoder.attention.qkv_bias = fields.flag_or({"attention_bias"}, false);
  if (fields.flag_or({"use_qk_norm"}, false)) decoder.attention.qk_norm = QkNorm::head;
  MoeMlp experts = read_experts(fields, decoder, {.experts = 128, .per_token = 8, .intermediate = 1408});
  experts.router_correction_bias = true;
  add_shared_experts(fields, experts, 1);
  return with_experts(decoder, decoder.attention, experts, dense_then_experts(fields, decoder.layers, 1));
}

ModelArchitecture dots1(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.kv_heads = 32});
  read_attention_bias(fields, decoder);
  decoder.attention.qk_norm = QkNorm::head;
  MoeMlp experts = read_experts(fields, decoder, {.intermediate = 1408});
  experts.router_correction_bias = true;
  add_shared_experts(fields, experts, 0);
  return with_experts(decoder, decoder.attention, experts, dense_then_experts(fields, decoder.layers, 0));
}

// Experts from layer moe_layer_start_index to moe_layer_end_index (-1: the last), in one layer of every interval.
std::vector<std::size_t> ernie_layers(ConfigFields& fields, Dim layers) {
  const Dim start = fields.size_or({"moe_layer_start_index"}, {0, limits::kLayers.maximum}, 1);
  const Dim end = fields.size_or({"moe_layer_end_index"}, {-1, limits::kLayers.maximum}, -1);
  const Dim interval = fields.size_or({"moe_layer_interval"}, limits::kLayers, 1);
  return for_each_layer(layers, [&](Dim i) {
    const bool inside = i >= start && (end < 0 || i <= end);
    return inside && (i + 1) % interval == 0 ? kExperts : kDense;
  });
}

ModelArchitecture ernie4_5_moe(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.kv_heads = 4, .positions = 131072, .tied = true});
  set_all_biases(decoder, fields.flag_or({"use_bias"}, false));
  MoeMlp experts = read_experts(fields, decoder, {.experts = 64, .per_token = 6, .intermediate = 1536});
  experts.router_correction_bias = true;
  add_shared_experts(fields, experts, 2);
  return with_experts(decoder, decoder.attention, experts, ernie_layers(fields, decoder.layers));
}

ModelArchitecture minimax_m2(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.kv_heads = 8, .head_dim = 128, .positions = 196608});
  decoder.attention.qk_norm = QkNorm::full;
  MoeMlp experts = read_experts_of_intermediate_size(fields, decoder, {.experts = 256, .per_token = 8});
  experts.router_correction_bias = true;
  return uniform(decoder, experts);
}

constexpr Dialect kDialects[] = {
    {"mixtral", mixtral},
    {"qwen2_moe", qwen2_moe},
    {"qwen3_moe", qwen3_moe},
    {"qwen3_vl_moe_text", qwen3_moe},
    {"phimoe", phimoe},
    {"olmoe", olmoe},
    {"gpt_oss", gpt_oss},
    {"granitemoe", granitemoe},
    {"granitemoeshared", granitemoe},
    {"deepseek", deepseek},
    {"glm4_moe", glm4_moe},
    {"dots1", dots1},
    {"ernie4_5_moe", ernie4_5_moe},
    {"minimax_m2", minimax_m2},
};

}  // namespace

std::span<const Dialect> expert_dialects() { return kDialects; }

}  // namespace vramplan::config
