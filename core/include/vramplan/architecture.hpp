// From a request to the shape of a model: a catalogue id (with overrides), an imported config.json, or a bare
// parameter count from which a typical dense architecture is inferred.
#pragma once

#include <string>
#include <vector>

#include "vramplan/catalogue.hpp"
#include "vramplan/model.hpp"
#include "vramplan/request.hpp"
#include "vramplan/result.hpp"

namespace vramplan {

struct ResolvedModel {
  std::string id;     // catalogue id, or "" for an imported or inferred model
  std::string label;  // catalogue label, model_type of a config, or ""
  std::string model_type;
  Confidence confidence = Confidence::high;
  std::string source;
  bool inferred = false;  // from a bare parameter count
  ModelArchitecture architecture;
};

// Problems: unknown_model at /model (or /model/id), inconsistent or out_of_range at /model/overrides/<field>.
//
// An override changes what it names and nothing that config.json states apart: hidden_size leaves head_dim alone. Where
// layers differ, they keep their proportion. num_key_value_heads follows num_attention_heads while both are equal. With
// num_hidden_layers the few leading dense layers of a mixture of experts stay and the other groups are scaled.
[[nodiscard]] Result<ResolvedModel> resolve_model(const ModelChoice& choice, const Catalogue& catalogue);

// A typical Llama-shaped dense decoder with this many parameters, to within half a percent. Depth, width and vocabulary
// are those of the nearest well-known model (32,000 rows for Llama 2's sizes, 128,256 for Llama 3's, fewer below 20
// million parameters); the MLP, and where needed the depth, make up the difference.
[[nodiscard]] ModelArchitecture infer_architecture(Params parameters);

// Everything that a hand-made or imported shape can get wrong; pointers are `prefix` and the field's name of
// config.json. A shape must pass before anything else looks at it: only then are its sizes small enough to be
// multiplied.
[[nodiscard]] Problems check_architecture(const ModelArchitecture& model, const std::string& prefix);

}  // namespace vramplan
