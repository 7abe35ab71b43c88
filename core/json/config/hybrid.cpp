// Attention in some layers, state-space, linear attention or convolution in the others. As in the configuration and
// modelling classes of Hugging Face Transformers (4.57; Qwen3.5 and LFM2-MoE as in 5.24).
#include <algorithm>
#include <cmath>

#include "decoder.hpp"
#include "dialects.hpp"

namespace vramplan::config {
namespace {

constexpr std::size_t kOther = 0;
constexpr std::size_t kAttention = 1;

// Four kinds of layer: which mixer, and which MLP. `mixers` and `mlps` hold one index a layer each.
ModelArchitecture with_mixers_and_mlps(const Decoder& decoder, const Mixer& other, const Mixer& attention,
                                       const MoeMlp& experts, const std::vector<std::size_t>& mixers,
                                       const std::vector<std::size_t>& mlps) {
  std::vector<LayerGroup> kinds = {layer_of(decoder, other, decoder.mlp), layer_of(decoder, other, experts),
                                   layer_of(decoder, attention, decoder.mlp), layer_of(decoder, attention, experts)};
  std::vector<std::size_t> kind_of_layer(mixers.size());
  std::transform(mixers.begin(), mixers.end(), mlps.begin(), kind_of_layer.begin(),
                 [](std::size_t mixer, std::size_t mlp) { return 2 * mixer + mlp; });
  return with_kinds(decoder, std::move(kinds), kind_of_layer);
}

ModelArchitecture with_mixers(const Decoder& decoder, const Mixer& other, const Mixer& attention, const Mlp& mlp,
                              const std::vector<std::size_t>& mixers) {
  return with_kinds(decoder, {layer_of(decoder, other, mlp), layer_of(decoder, attention, mlp)}, mixers);
}

// ---- Qwen3-Next and Qwen3.5

std::vector<std::size_t> delta_layers(ConfigFields& fields, Dim layers) {
  const Dim interval = fields.size_or({"full_attention_interval"}, limits::kLayers, 4);
  const auto given = fields.kind_of_layer({"layer_types"}, layers, {"linear_attention", "full_attention"});
  if (given) return *given;
  return for_each_layer(layers, [&](Dim i) { return (i + 1) % interval != 0 ? kOther : kAttention; });
}

GatedDeltaNet read_delta_net(ConfigFields& fields, bool fused) {
  return {.key_heads = fields.size_or({"linear_num_key_heads"}, limits::kHeads, 16),
          .key_head_dim = fields.size_or({"linear_key_head_dim"}, limits::kWidth, 128),
          .value_heads = fields.size_or({"linear_num_value_heads"}, limits::kHeads, 32),
          .value_head_dim = fields.size_or({"linear_value_head_dim"}, limits::kWidth, 128),
          .conv_kernel = fields.size_or({"linear_conv_kernel_dim"}, limits::kWidth, 4),
          .fused_projections = fused};
}

void make_gated(ConfigFields& fields, Decoder& decoder) {
  read_attention_bias(fields, decoder);
  decoder.attention.qk_norm = QkNorm::head;
  decoder.attention.output_gate = OutputGate::doubled_query;
  decoder.model.norm.unit_offset = true;
}

MoeMlp read_gated_experts(ConfigFields& fields, const Decoder& decoder, Dim experts, Dim per_token) {
  MoeMlp moe = read_experts(fields, decoder, {.experts = experts, .per_token = per_token, .intermediate = 512});
  moe.shared_intermediate_size = fields.size_or({"shared_expert_intermediate_size"}, limits::kWidth, 512);
  moe.shared_expert_gate = true;
  return moe;
}

ModelArchitecture qwen3_next(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.kv_heads = 2, .head_dim = 256, .positions = 32768});
  make_gated(fields, decoder);
  const GatedDeltaNet delta_net = read_delta_net(fields, true);
  const MoeMlp experts = read_gated_experts(fields, decoder, 512, 10);
  return with_mixers_and_mlps(decoder, delta_net, decoder.attention, experts, delta_layers(fields, decoder.layers),
                              sparse_step_layers(fields, decoder.layers));
}

ModelArchitecture qwen3_5(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.kv_heads = 4, .head_dim = 256, .positions = 32768});
  make_gated(fields, decoder);
  const GatedDeltaNet delta_net = read_delta_net(fields, false);
  return with_mixers(decoder, delta_net, decoder.attention, decoder.mlp, delta_layers(fields, decoder.layers));
}

ModelArchitecture qwen3_5_moe(ConfigFields& fields) {
  Decoder decoder = read_decoder_without_mlp(fields, {.kv_heads = 2, .head_dim = 256, .positions = 32768});
  make_gated(fields, decoder);
  const GatedDeltaNet delta_net = read_delta_net(fields, false);
  const MoeMlp experts = read_gated_experts(fields, decoder, 256, 8);
  return with_mixers(decoder, delta_net, decoder.attention, experts, delta_layers(fields, decoder.layers));
}

// ---- LFM2

// The file gives the size of an MLP with two matrices; with three it becomes two thirds, times a factor, rounded up.
Dim lfm2_intermediate(ConfigFields& fields) {
  const Dim given = fields.size({"block_ff_dim", "intermediate_size"}, limits::kWidth);
  const Dim multiple = fields.size_or({"block_multiple_of"}, limits::kWidth, 256);
  const bool has_factor = !fields.is_null("block_ffn_dim_multiplier");
  const double factor = fields.number_or({"block_ffn_dim_multiplier"}, 1.0);
  if (!fields.flag_or({"block_auto_adjust_ff_dim"}, true)) return given;
  const Dim reduced = 2 * given / 3;
  if (!has_factor) return reduced;
  const double scaled = factor * static_cast<double>(reduced);
  if (!(scaled >= 1.0 && scaled <= static_cast<double>(limits::kWidth.maximum))) {
    fields.inconsistent({"block_ffn_dim_multiplier"}, "intermediate_size");
    return given;
  }
  return divide_up(static_cast<Dim>(scaled), multiple) * multiple;
}

// Layers are convolutions but for those of full_attn_idxs (absent: none are).
std::vector<std::size_t> lfm2_layers(ConfigFields& fields, Dim layers) {
  const auto given = fields.kind_of_layer({"layer_types"}, layers, {"conv", "full_attention"});
  const std::vector<std::int64_t> indices =
      fields.sizes_or_none({"full_attn_idxs"}, {0, limits::kLayers.maximum}, static_cast<std::size_t>(layers));
  if (given) return *given;
  std::vector<std::size_t> kinds(static_cast<std::size_t>(layers), indices.empty() ? kAttention : kOther);
  for (const std::int64_t index : indices) {
    if (index < layers) kinds[static_cast<std::size_t>(index)] = kAttention;
  }
  return kinds;
}

Decoder lfm2_decoder(ConfigFields& fields) {
  Decoder decoder = read_decoder_without_mlp(fields, {.kv_heads = 8, .positions = 128000, .tied = true});
  decoder.attention.qk_norm = QkNorm::head;
  if (fields.flag_or({"conv_bias"}, false)) fields.not_supported({"conv_bias"}, "true");
  return decoder;
}

ModelArchitecture lfm2(ConfigFields& fields) {
  Decoder decoder = lfm2_decoder(fields);
  decoder.mlp.intermediate_size = lfm2_intermediate(fields);
  const ShortConvolution convolution{fields.size_or({"conv_L_cache"}, limits::kWidth, 3)};
  return with_mixers(decoder, convolution, decoder.attention, decoder.mlp, lfm2_layers(fields, decoder.layers));
}

ModelArchitecture lfm2_moe(ConfigFields& fields) {
  Decoder decoder = lfm2_decoder(fields);
  decoder.mlp.intermediate_size = fields.size({"intermediate_size"}, limits::kWidth);
  const ShortConvolution convolution{fields.size_or({"conv_L_cache"}, limits::kWidth, 3)};
  MoeMlp experts = read_experts(fields, decoder, {.experts = 32, .per_token = 4, .intermediate = 1792});
  experts.router_correction_bias = fields.flag_or({"use_expert_bias"}, true);
  const Dim dense = fields.size_or({"num_dense_layers"}, {0, limits::kLayers.maximum}, 2);
  const auto mlps = for_each_layer(decoder.layers, [&](Dim i) { return i >= dense ? kExperts : kDense; });
  return with_mixers_and_mlps(decoder, convolution, decoder.attention, experts, lfm2_layers(fields, decoder.layers),
                              mlps);
}

// ---- Mamba

// A size that may also be "auto" (or absent): then it follows from others.
Dim size_or_automatic(ConfigFields& fields, const char* name, Dim automatic) {
  const Json* value = fields.any(name);
  const bool is_automatic = value != nullptr && value->is_string() && value->get_ref<const std::string&>() == "auto";
  return is_automatic ? automatic : fields.size_or({name}, limits::kWidth, automatic);
}

Mamba2 read_mamba2(ConfigFields& fields, Dim hidden, Dim default_inner) {
  Mamba2 mamba;
  const Dim expand = fields.size_or({"mamba_expand"}, limits::kWidth, 2);
  const Dim inner = default_inner > 0 ? default_inner : expand * hidden;
  mamba.heads = fields.size_or({"mamba_n_heads"}, limits::kHeads, 128);
  mamba.head_dim = size_or_automatic(fields, "mamba_d_head", std::max<Dim>(inner / mamba.heads, 1));
  mamba.groups = fields.size_or({"mamba_n_groups"}, limits::kHeads, 1);
  mamba.state_size = fields.size_or({"mamba_d_state"}, limits::kWidth, 256);
  mamba.conv_kernel = fields.size_or({"mamba_d_conv"}, limits::kWidth, 4);
  mamba.chunk_size = fields.size_or({"mamba_chunk_size"}, limits::kWidth, 256);
  if (fields.flag_or({"mamba_proj_bias"}, false)) fields.not_supported({"mamba_proj_bias"}, "true");
  if (!fields.flag_or({"mamba_conv_bias"}, true)) fields.not_supported({"mamba_conv_bias"}, "false");
  if (fields.clean() && mamba.heads * mamba.head_dim != inner) fields.inconsistent({"mamba_n_heads"}, "mamba_d_head");
  return mamba;
}

// With experts, an MLP for every token stands beside them; without, it is all there is.
ModelArchitecture granitemoehybrid(ConfigFields& fields) {
  Decoder decoder = read_decoder_without_mlp(fields, {});
  read_attention_bias(fields, decoder);
  const Dim shared = fields.size_or({"shared_intermediate_size"}, limits::kWidth, 1024);
  decoder.attention.rotary = fields.text_or({"position_embedding_type"}, "nope") == "rope";
  if (!decoder.attention.rotary) decoder.model.position = PositionType::none;
  const auto given = fields.kind_of_layer({"layer_types", "layers_block_type"}, decoder.layers, {"mamba", "attention"});
  const auto mixers = given ? *given : for_each_layer(decoder.layers, [](Dim) { return kOther; });
  // Granite 4 without state-space layers keeps their sizes in its file, and they need not fit.
  const bool has_mamba = std::find(mixers.begin(), mixers.end(), kOther) != mixers.end();
  const Mamba2 mamba = has_mamba ? read_mamba2(fields, decoder.model.hidden_size, 0) : Mamba2{};
  decoder.mlp.intermediate_size = shared;
  decoder.mlp.fused_gate_up = true;
  if (fields.size_or({"num_local_experts"}, {0, limits::kExperts.maximum}, 8) == 0) {
    return with_mixers(decoder, mamba, decoder.attention, decoder.mlp, mixers);
  }
  decoder.mlp.intermediate_size = fields.size({"intermediate_size"}, limits::kWidth);
  MoeMlp experts = read_experts_of_intermediate_size(fields, decoder, {.experts = 8, .per_token = 2});
  experts.shared_intermediate_size = shared;
  return with_mixers(decoder, mamba, decoder.attention, experts, mixers);
}

Mamba1 read_mamba1(ConfigFields& fields, Dim hidden) {
  Mamba1 mamba;
  mamba.inner = fields.size_or({"mamba_expand"}, limits::kWidth, 2) * hidden;
  mamba.state_size = fields.size_or({"mamba_d_state"}, limits::kWidth, 16);
  mamba.conv_kernel = fields.size_or({"mamba_d_conv"}, limits::kWidth, 4);
  mamba.dt_rank = size_or_automatic(fields, "mamba_dt_rank", divide_up(hidden, 16));
  if (fields.flag_or({"mamba_proj_bias"}, false)) fields.not_supported({"mamba_proj_bias"}, "true");
  if (!fields.flag_or({"mamba_conv_bias"}, true)) fields.not_supported({"mamba_conv_bias"}, "false");
  return mamba;
}

// One layer in every `period`, counted from `offset`.
template <class Kind>
std::vector<std::size_t> periodic(ConfigFields& fields, Dim layers, const char* period_name, Dim period,
                                  const char* offset_name, Dim offset, Kind chosen, Kind others) {
  period = fields.size_or({period_name}, limits::kLayers, period);
  offset = fields.size_or({offset_name}, {0, limits::kLayers.maximum}, offset);
  return for_each_layer(layers, [&](Dim i) { return i % period == offset ? chosen : others; });
}

ModelArchitecture jamba(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.kv_heads = 8, .positions = 262144});
  decoder.attention.rotary = false;
  decoder.model.position = PositionType::none;
  decoder.attention.window = read_window(fields, 0);
  const Mamba1 mamba = read_mamba1(fields, decoder.model.hidden_size);
  const MoeMlp experts = read_experts_of_intermediate_size(fields, decoder, {.experts = 16, .per_token = 2});
  const auto mixers =
      periodic(fields, decoder.layers, "attn_layer_period", 8, "attn_layer_offset", 4, kAttention, kOther);
  const auto mlps =
      periodic(fields, decoder.layers, "expert_layer_period", 2, "expert_layer_offset", 1, kExperts, kDense);
  const bool dense_only = experts.experts == 1;
  return with_mixers_and_mlps(decoder, mamba, decoder.attention, experts, mixers,
                              dense_only ? std::vector<std::size_t>(mlps.size(), kDense) : mlps);
}

// Every layer runs both mixers on the same input and adds their outputs.
ModelArchitecture falcon_h1(ConfigFields& fields) {
  Decoder decoder = read_decoder(fields, {.kv_heads = 8, .positions = 8192});
  read_attention_bias(fields, decoder);
  decoder.mlp.bias = fields.flag_or({"mlp_bias"}, false);
  const Dim inner = fields.is_null("mamba_d_ssm") ? 0 : fields.size_or({"mamba_d_ssm"}, limits::kWidth, 1024);
  Mamba2 mamba = read_mamba2(fields, decoder.model.hidden_size, inner);
  mamba.gated_norm = fields.flag_or({"mamba_rms_norm"}, false);
  if (fields.flag_or({"projectors_bias"}, false)) fields.not_supported({"projectors_bias"}, "true");
  ModelArchitecture model = uniform(decoder);
  model.groups.front().mixers.emplace_back(mamba);
  return model;
}

constexpr Dialect kDialects[] = {
    {"qwen3_next", qwen3_next},
    {"qwen3_5_text", qwen3_5},
    {"qwen3_5_moe_text", qwen3_5_moe},
    {"lfm2", lfm2},
    {"lfm2_moe", lfm2_moe},
    {"granitemoehybrid", granitemoehybrid},
    {"jamba", jamba},
    {"falcon_h1", falcon_h1},
};

}  // namespace

std::span<const Dialect> hybrid_dialects() { return kDialects; }

}  // namespace vramplan::config
