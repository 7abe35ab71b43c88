// Models of text and vision. Of a tower only the size counts: its weights are loaded, and nothing of a text-only run
// goes through it. Sizes follow the modules of Hugging Face Transformers.
#include "dialects.hpp"

namespace vramplan::config {
namespace {

Params matrix(Dim rows, Dim columns) { return Params(saturating_multiply(rows, columns)); }
Params linear(Dim outputs, Dim inputs) { return matrix(outputs, inputs) + Params(outputs); }

struct Vision {
  Dim hidden = 0, layers = 0, intermediate = 0, patch = 0, channels = 0;
};

Vision read_vision(ConfigFields& vision) {
  return {.hidden = vision.size({"hidden_size"}, limits::kWidth),
          .layers = vision.size({"num_hidden_layers", "depth"}, limits::kLayers),
          .intermediate = vision.size({"intermediate_size"}, limits::kWidth),
          .patch = vision.size_or({"patch_size", "spatial_patch_size"}, {1, 1024}, 14),
          .channels = vision.size_or({"num_channels", "in_channels", "in_chans"}, {1, 64}, 3)};
}

// Attention with biases: q, k, v (in one module or three) and the output.
Params biased_attention(Dim hidden) { return linear(hidden, hidden) * 4; }

// SigLIP without its pooling head; Gemma 3 projects with one matrix after a norm.
Tower siglip(ConfigFields& vision, ConfigFields&, Dim text_hidden_size) {
  const Vision v = read_vision(vision);
  const Dim side = vision.size_or({"image_size"}, {1, 65536}, 224) / v.patch;
  const Params mlp = linear(v.intermediate, v.hidden) + linear(v.hidden, v.intermediate);
  const Params layer = biased_attention(v.hidden) + mlp + Params(4 * v.hidden);
  const Params patches = linear(v.hidden, v.channels * v.patch * v.patch) + matrix(side * side, v.hidden);
  const Params projector = matrix(text_hidden_size, v.hidden) + Params(v.hidden);
  return {"vision", patches + layer * v.layers + Params(2 * v.hidden) + projector};
}

// Pixtral: no biases, RMS norms, gated MLP; Mistral merges squares of patches before it projects.
Tower pixtral(ConfigFields& vision, ConfigFields& outer, Dim text_hidden_size) {
  const Vision v = read_vision(vision);
  const Dim merge = outer.size_or({"spatial_merge_size"}, {1, 64}, 2);
  const bool bias = outer.flag_or({"multimodal_projector_bias"}, false);
  const Params layer = matrix(v.hidden, v.hidden) * 4 + matrix(v.intermediate, v.hidden) * 3 + Params(2 * v.hidden);
  const Params patches = matrix(v.hidden, v.channels * v.patch * v.patch) + Params(v.hidden);
  const Params merger = Params(v.hidden) + matrix(v.hidden, v.hidden) * (merge * merge);
  Params projector = matrix(text_hidden_size, v.hidden) + matrix(text_hidden_size, text_hidden_size);
  if (bias) projector += Params(2 * text_hidden_size);
  return {"vision", patches + layer * v.layers + merger + projector};
}

struct QwenVision {
  Vision common;
  Dim output = 0, merged = 0, frames = 0;
};

QwenVision read_qwen_vision(ConfigFields& vision, Dim text_hidden_size) {
  QwenVision v;
  v.common = read_vision(vision);
  v.output = vision.size_or({"out_hidden_size"}, limits::kWidth, text_hidden_size);
  v.frames = vision.size_or({"temporal_patch_size"}, {1, 64}, 2);
  const Dim merge = vision.size_or({"spatial_merge_size"}, {1, 64}, 2);
  v.merged = v.common.hidden * merge * merge;
  return v;
}

Params qwen_patch_inputs(const QwenVision& v) {
  return Params(v.common.channels * v.frames * v.common.patch * v.common.patch);
}

// Qwen2.5-VL: RMS norms, gated MLP with biases.
Tower qwen2_5_vision(ConfigFields& vision, ConfigFields&, Dim text_hidden_size) {
  const QwenVision v = read_qwen_vision(vision, text_hidden_size);
  const Dim hidden = v.common.hidden;
  const Params mlp = linear(v.common.intermediate, hidden) * 2 + linear(hidden, v.common.intermediate);
  const Params layer = biased_attention(hidden) + mlp + Params(2 * hidden);
  const Params merger = Params(hidden) + linear(v.merged, v.merged) + linear(v.output, v.merged);
  return {"vision", qwen_patch_inputs(v) * hidden + layer * v.common.layers + merger};
}

// LayerNorms, two-matrix MLP, a table of positions, and a merger a depth from which features are taken besides the
// last.
Tower qwen3_vision(ConfigFields& vision, ConfigFields&, Dim text_hidden_size) {
  const QwenVision v = read_qwen_vision(vision, text_hidden_size);
  const Dim hidden = v.common.hidden;
  const Dim positions = vision.size_or({"num_position_embeddings"}, {1, limits::kVocabulary.maximum}, 2304);
  const auto depths = vision.sizes_or_none({"deepstack_visual_indexes"}, {0, limits::kLayers.maximum},
                                           static_cast<std::size_t>(v.common.layers));
  const Params mlp = linear(v.common.intermediate, hidden) + linear(hidden, v.common.intermediate);
  const Params layer = biased_attention(hidden) + mlp + Params(4 * hidden);
  const Params patches = (qwen_patch_inputs(v) + Params(1)) * hidden + matrix(positions, hidden);
  const Params projection = linear(v.merged, v.merged) + linear(v.output, v.merged);
  const Params deep = (projection + Params(2 * v.merged)) * static_cast<Dim>(depths.size());
  return {"vision", patches + layer * v.common.layers + Params(2 * hidden) + projection + deep};
}

constexpr Composite kComposites[] = {
    {"gemma3", "gemma3_text", false, siglip},
    {"mistral3", "mistral", false, pixtral},
    {"qwen2_5_vl", "qwen2_5_vl_text", true, qwen2_5_vision},
    {"qwen3_vl", "qwen3_vl_text", false, qwen3_vision},
    {"qwen3_vl_moe", "qwen3_vl_moe_text", false, qwen3_vision},
    {"qwen3_5", "qwen3_5_text", false, qwen3_vision},
    {"qwen3_5_moe", "qwen3_5_moe_text", false, qwen3_vision},
};

}  // namespace

std::span<const Composite> composites() { return kComposites; }

}  // namespace vramplan::config
