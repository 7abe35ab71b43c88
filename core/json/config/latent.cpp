// Multi-head latent attention: DeepSeek-V2 (arXiv:2405.04434) and those after it, nearly always with DeepSeek's
// experts.
#include "decoder.hpp"
#include "dialects.hpp"

namespace vramplan::config {
namespace {

struct LatentDefaults {
  Dim q_lora_rank = 1536;
  Dim qk_nope_head_dim = 128;
  Dim v_head_dim = 128;
};

LatentAttention read_latent(ConfigFields& fields, const Decoder& decoder, const LatentDefaults& defaults) {
  LatentAttention latent;
  latent.heads = decoder.attention.heads;
  // Null: queries are projected in one step.
  const bool full_queries = fields.is_null("q_lora_rank");
  latent.q_lora_rank = full_queries ? 0 : fields.size_or({"q_lora_rank"}, limits::kWidth, defaults.q_lora_rank);
  latent.kv_lora_rank = fields.size_or({"kv_lora_rank"}, limits::kWidth, 512);
  latent.qk_nope_head_dim = fields.size_or({"qk_nope_head_dim"}, limits::kWidth, defaults.qk_nope_head_dim);
  latent.qk_rope_head_dim = fields.size_or({"qk_rope_head_dim"}, limits::kWidth, 64);
  latent.v_head_dim = fields.size_or({"v_head_dim"}, limits::kWidth, defaults.v_head_dim);
  latent.qkv_bias = latent.o_bias = fields.flag_or({"attention_bias"}, false);
  return latent;
}

// Head sizes are those above: the common head_dim is not read from hidden_size, which need not divide.
Decoder read_latent_decoder(ConfigFields& fields) { return read_decoder(fields, {.head_dim = 1}); }

struct ExpertRule {
  ExpertDefaults experts;
  Dim shared = 0;
  Dim dense_layers = 0;
  bool correction_bias = true;
};

ModelArchitecture with_latent(ConfigFields& fields, const Decoder& decoder, const LatentAttention& latent,
                              const ExpertRule& rule) {
  MoeMlp experts = read_experts(fields, decoder, rule.experts);
  experts.router_correction_bias = rule.correction_bias;
  add_shared_experts(fields, experts, rule.shared);
  return with_experts(decoder, latent, experts, dense_then_experts(fields, decoder.layers, rule.dense_layers));
}

ModelArchitecture deepseek_v2(ConfigFields& fields) {
  const Decoder decoder = read_latent_decoder(fields);
  const LatentAttention latent = read_latent(fields, decoder, {});
  const ExpertRule rule{.experts = {.experts = 64, .intermediate = 1407}, .shared = 2, .correction_bias = false};
  return with_latent(fields, decoder, latent, rule);
}

constexpr ExpertRule kDeepSeekV3{
    .experts = {.experts = 256, .per_token = 8, .intermediate = 2048}, .shared = 1, .dense_layers = 3};

ModelArchitecture deepseek_v3(ConfigFields& fields) {
  const Decoder decoder = read_latent_decoder(fields);
  return with_latent(fields, decoder, read_latent(fields, decoder, {}), kDeepSeekV3);
}

ModelArchitecture deepseek_v32(ConfigFields& fields) {
  const Decoder decoder = read_latent_decoder(fields);
  LatentAttention latent = read_latent(fields, decoder, {});
  latent.indexer = Indexer{.heads = fields.size_or({"index_n_heads"}, limits::kHeads, 64),
                           .head_dim = fields.size_or({"index_head_dim"}, limits::kWidth, 128),
                           .query_input = latent.q_lora_rank > 0 ? latent.q_lora_rank : decoder.model.hidden_size};
  return with_latent(fields, decoder, latent, kDeepSeekV3);
}

ModelArchitecture glm4_moe_lite(ConfigFields& fields) {
  const Decoder decoder = read_latent_decoder(fields);
  const LatentDefaults sizes{.q_lora_rank = 768, .qk_nope_head_dim = 192, .v_head_dim = 256};
  const ExpertRule rule{
      .experts = {.experts = 64, .per_token = 4, .intermediate = 1536}, .shared = 1, .dense_layers = 1};
  return with_latent(fields, decoder, read_latent(fields, decoder, sizes), rule);
}

constexpr Dialect kDialects[] = {
    {"deepseek_v2", deepseek_v2},   {"deepseek_v3", deepseek_v3},     {"kimi_k2", deepseek_v3},
    {"deepseek_v32", deepseek_v32}, {"glm4_moe_lite", glm4_moe_lite},
};

}  // namespace

std::span<const Dialect> latent_dialects() { return kDialects; }

}  // namespace vramplan::config
