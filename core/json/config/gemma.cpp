// Gemma 1 to 3: wide heads of a fixed size, tied embeddings, norms that scale by 1 + weight.
#include "decoder.hpp"
#include "dialects.hpp"

namespace vramplan::config {
namespace {

// hidden_act holds what the first release was trained with by mistake; only hidden_activation counts.
Decoder gemma_decoder(ConfigFields& fields, Defaults defaults) {
  defaults.tied = true;
  defaults.head_dim = 256;
  defaults.activation = "gelu_pytorch_tanh";
  Decoder decoder = read_decoder(fields, defaults);
  decoder.mlp.activation = activation_of(fields, {"hidden_activation"}, defaults.activation);
  read_attention_bias(fields, decoder);
  decoder.model.norm.unit_offset = true;
  return decoder;
}

ModelArchitecture gemma(ConfigFields& fields) {
  return uniform(gemma_decoder(fields, {.kv_heads = 16, .vocab = 256000, .positions = 8192}));
}

// Norms before and after each branch; local and global layers in turn.
ModelArchitecture sandwiched(ConfigFields& fields, Decoder decoder, Dim period) {
  decoder.norms = 4;
  decoder.model.norm_placement = NormPlacement::sandwich;
  Attention sliding = decoder.attention;
  sliding.window = read_window(fields, 4096);
  return with_windows(decoder, sliding, decoder.attention, decoder.mlp, sliding_layers(fields, decoder.layers, period));
}

double softcap(ConfigFields& fields, const char* name, double otherwise) {
  return fields.is_null(name) ? 0 : fields.number_or({name}, otherwise);
}

ModelArchitecture gemma2(ConfigFields& fields) {
  Decoder decoder = gemma_decoder(fields, {.kv_heads = 4, .vocab = 256000, .positions = 8192});
  decoder.attention.softcap = softcap(fields, "attn_logit_softcapping", 50);
  decoder.model.final_softcap = softcap(fields, "final_logit_softcapping", 30);
  return sandwiched(fields, std::move(decoder), 2);
}

// The files of Gemma 3 leave out what equals the class's defaults, head counts and vocabulary included.
ModelArchitecture gemma3(ConfigFields& fields) {
  Decoder decoder = gemma_decoder(fields, {.heads = 8, .kv_heads = 4, .vocab = 262208, .positions = 131072});
  decoder.attention.qk_norm = QkNorm::head;
  decoder.model.final_softcap = softcap(fields, "final_logit_softcapping", 0);
  const Dim period = fields.size_or({"sliding_window_pattern", "_sliding_window_pattern"}, limits::kLayers, 6);
  return sandwiched(fields, std::move(decoder), period);
}

constexpr Dialect kDialects[] = {{"gemma", gemma}, {"gemma2", gemma2}, {"gemma3_text", gemma3}};

}  // namespace

std::span<const Dialect> gemma_dialects() { return kDialects; }

}  // namespace vramplan::config
