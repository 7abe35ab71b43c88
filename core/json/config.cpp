#include "config.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <utility>

#include "config/dialects.hpp"
#include "config/fields.hpp"
#include "vramplan/architecture.hpp"

namespace vramplan {
namespace {

using config::Composite;
using config::ConfigFields;
using config::Dialect;

std::array<std::span<const Dialect>, 6> families() {
  return {config::llama_dialects(),  config::gemma_dialects(),  config::gpt_dialects(),
          config::expert_dialects(), config::latent_dialects(), config::hybrid_dialects()};
}

const Dialect* find_dialect(std::string_view model_type) {
  for (const std::span<const Dialect> family : families()) {
    const auto found =
        std::find_if(family.begin(), family.end(), [&](const Dialect& d) { return d.model_type == model_type; });
    if (found != family.end()) return &*found;
  }
  return nullptr;
}

const Composite* find_composite(std::string_view model_type) {
  const std::span<const Composite> all = config::composites();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Composite& c) { return c.model_type == model_type; });
  return found != all.end() ? &*found : nullptr;
}

// A JSON object that holds none of these describes something else.
bool looks_like_config(const Json& object) {
  constexpr std::array kTelling = {
      "model_type", "architectures", "text_config",       "hidden_size", "n_embd",
      "d_model",    "vocab_size",    "num_hidden_layers", "n_layer",     "num_attention_heads"};
  return std::any_of(kTelling.begin(), kTelling.end(), [&](const char* name) { return object.contains(name); });
}

// Implementations that join the rotated and the unrotated part of each head.
bool joins_rotary_parts(std::string_view model_type) {
  constexpr std::array<std::string_view, 10> kTypes = {"phi",      "phi3",     "glm",      "glm4",       "glm4_moe",
                                                       "gpt_neox", "stablelm", "nemotron", "qwen3_next", "minimax_m2"};
  return std::find(kTypes.begin(), kTypes.end(), model_type) != kTypes.end();
}

ModelArchitecture with_partial_rotary(ModelArchitecture model) {
  for (LayerGroup& group : model.groups) {
    for (Mixer& mixer : group.mixers) {
      if (auto* attention = std::get_if<Attention>(&mixer)) attention->partial_rotary = true;
    }
  }
  return model;
}

ModelArchitecture read_dialect(std::string_view model_type, ConfigFields& fields) {
  if (const Dialect* dialect = find_dialect(model_type)) {
    ModelArchitecture model = dialect->read(fields);
    return joins_rotary_parts(model_type) ? with_partial_rotary(std::move(model)) : model;
  }
  report(fields.problems(), ProblemCode::unknown_dialect, fields.pointer_to({"model_type"}),
         {{"value", shortened(model_type)}});
  return {};
}

// The text model says itself whether its embeddings are tied, or the file around it does.
void read_outer_tie(ConfigFields& outer, ConfigFields& text, ModelArchitecture& model) {
  if (text.has({"tie_word_embeddings"})) return;
  model.tie_word_embeddings = outer.flag_or({"tie_word_embeddings"}, model.tie_word_embeddings);
}

ModelArchitecture read_text(const Composite& composite, ConfigFields& outer, const Json& text) {
  ConfigFields fields(text, outer.pointer_to({"text_config"}), outer.problems());
  const std::string model_type = fields.text_or({"model_type"}, std::string(composite.text_type));
  ModelArchitecture model = read_dialect(model_type, fields);
  read_outer_tie(outer, fields, model);
  return model;
}

ModelArchitecture read_composite(const Composite& composite, ConfigFields& outer) {
  const bool is_flat = composite.flat && !outer.has({"text_config"});
  const Json* text = is_flat ? nullptr : outer.object("text_config", Need::required);
  const Json* vision = outer.object("vision_config", Need::required);
  ModelArchitecture model;
  if (is_flat) {
    model = read_dialect(composite.text_type, outer);
  } else if (text != nullptr) {
    model = read_text(composite, outer, *text);
  }
  if (vision == nullptr) return model;
  ConfigFields fields(*vision, outer.pointer_to({"vision_config"}), outer.problems());
  model.towers.push_back(composite.read_tower(fields, outer, model.hidden_size));
  return model;
}

ModelArchitecture read_any(ConfigFields& fields) {
  if (!fields.has({"model_type"})) {
    report(fields.problems(), ProblemCode::missing_field, fields.pointer_to({"model_type"}));
    return {};
  }
  const std::size_t before = fields.problems().size();
  const std::string model_type = fields.text_or({"model_type"}, "");
  if (fields.problems().size() > before) return {};
  if (const Composite* composite = find_composite(model_type)) return read_composite(*composite, fields);
  return read_dialect(model_type, fields);
}

// A field that is read twice, by a dialect and by what it builds on, is wrong once.
void drop_repeated(Problems& problems) {
  Problems once;
  for (Problem& problem : problems) {
    const bool repeated = std::any_of(once.begin(), once.end(), [&](const Problem& earlier) {
      return earlier.code == problem.code && earlier.pointer == problem.pointer;
    });
    if (!repeated) once.push_back(std::move(problem));
  }
  problems = std::move(once);
}

}  // namespace

Result<ModelArchitecture> read_config(const Json& config, const std::string& pointer) {
  Problems problems;
  if (!config.is_object()) {
    report_wrong_type(problems, pointer, "object", config);
    return problems;
  }
  if (!looks_like_config(config)) return Problem{ProblemCode::not_a_config, pointer, {}};
  ConfigFields fields(config, pointer, problems);
  ModelArchitecture model = read_any(fields);
  if (problems.empty()) problems = check_architecture(model, pointer);
  if (problems.empty()) return model;
  drop_repeated(problems);
  return problems;
}

std::vector<std::string_view> config_dialects() {
  std::vector<std::string_view> names;
  for (const std::span<const Dialect> family : families()) {
    for (const Dialect& dialect : family) names.push_back(dialect.model_type);
  }
  for (const Composite& composite : config::composites()) names.push_back(composite.model_type);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace vramplan
