// One row a dialect: the model_type of a config.json and the function that reads it. A new dialect is a function in the
// file of its family, a row in that file's table, and a published model in tests/tables/configs.json.
#pragma once

#include <span>
#include <string_view>

#include "fields.hpp"
#include "vramplan/model.hpp"

namespace vramplan::config {

struct Dialect {
  std::string_view model_type;
  ModelArchitecture (*read)(ConfigFields&);
};

// By family.
[[nodiscard]] std::span<const Dialect> llama_dialects();   // dense, RMS norm, gated MLP
[[nodiscard]] std::span<const Dialect> gemma_dialects();   // Gemma 1 to 3
[[nodiscard]] std::span<const Dialect> gpt_dialects();     // LayerNorm, mostly with biases
[[nodiscard]] std::span<const Dialect> expert_dialects();  // mixtures of experts with ordinary attention
[[nodiscard]] std::span<const Dialect> latent_dialects();  // multi-head latent attention
[[nodiscard]] std::span<const Dialect> hybrid_dialects();  // attention beside state-space or convolution layers

// A model of text and vision: a `text_config` in one of the dialects above, and towers.
struct Composite {
  std::string_view model_type;
  std::string_view text_type;  // when text_config does not say
  bool flat = false;           // may hold the fields of the text model itself
  // The vision tower and its projector, from `vision_config` (and the outer config).
  Tower (*read_tower)(ConfigFields& vision, ConfigFields& outer, Dim text_hidden_size);
};
[[nodiscard]] std::span<const Composite> composites();

}  // namespace vramplan::config
