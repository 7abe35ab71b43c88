#include "vramplan/architecture.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "architecture/overrides.hpp"
#include "vramplan/closest.hpp"

namespace vramplan {
namespace {

bool any(const ModelOverrides& o) {
  return o.num_hidden_layers || o.hidden_size || o.intermediate_size || o.num_attention_heads ||
         o.num_key_value_heads || o.head_dim || o.vocab_size || o.num_experts || o.moe_intermediate_size ||
         o.max_position_embeddings || o.tie_word_embeddings;
}

// The id whose own name, short name, label or alias is nearest to what was asked for.
std::string closest_model(std::string_view name, const Catalogue& catalogue) {
  std::vector<std::string_view> names;
  std::vector<const ModelCard*> cards;
  const auto offer = [&](std::string_view candidate, const ModelCard& card) {
    names.push_back(candidate);
    cards.push_back(&card);
  };
  for (const ModelCard& card : catalogue.models) offer(card.id, card);
  for (const ModelCard& card : catalogue.models) {
    offer(std::string_view(card.id).substr(card.id.find('/') + 1), card);
    offer(card.label, card);
    for (const std::string& alias : card.aliases) offer(alias, card);
  }
  const std::string_view found = closest(name, names);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!found.empty() && names[i].data() == found.data() && names[i].size() == found.size()) return cards[i]->id;
  }
  return {};
}

// Long names are cut: what comes from outside is repeated, not trusted.
std::string echo(const std::string& name) {
  constexpr std::size_t kLongest = 120;
  std::size_t end = std::min(name.size(), kLongest);
  while (end < name.size() && end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0U) == 0x80U) --end;
  return name.substr(0, end);
}

Result<ResolvedModel> resolve(const ModelById& choice, const Catalogue& catalogue) {
  const ModelCard* card = find_model(catalogue, choice.id);
  if (card == nullptr) {
    const char* pointer = any(choice.overrides) ? "/model/id" : "/model";
    return Problem{ProblemCode::unknown_model,
                   pointer,
                   {{"value", echo(choice.id)}, {"closest", closest_model(choice.id, catalogue)}}};
  }
  ResolvedModel model;
  model.id = card->id;
  model.label = card->label;
  model.model_type = card->model_type;
  model.confidence = card->confidence;
  model.source = card->source;
  model.architecture = card->architecture;
  const std::string prefix = "/model/overrides";
  Problems problems;
  apply_overrides(choice.overrides, prefix, model.architecture, problems);
  if (problems.empty() && any(choice.overrides)) problems = check_architecture(model.architecture, prefix);
  if (!problems.empty()) return problems;
  return model;
}

Result<ResolvedModel> resolve(const ModelBySize& choice, const Catalogue&) {
  constexpr IntegerRange kRange = limits::kParameters;
  const std::int64_t value = choice.parameters.value;
  if (value < kRange.minimum || value > kRange.maximum) {
    return Problem{ProblemCode::out_of_range,
                   "/model/parameters",
                   {{"value", value}, {"minimum", kRange.minimum}, {"maximum", kRange.maximum}}};
  }
  ResolvedModel model;
  model.model_type = "llama";
  model.confidence = Confidence::low;
  model.inferred = true;
  model.architecture = infer_architecture(choice.parameters);
  return model;
}

Result<ResolvedModel> resolve(const ModelByConfig& choice, const Catalogue&) {
  Problems problems = check_architecture(choice.architecture, "/model/config");
  if (!problems.empty()) return problems;
  ResolvedModel model;
  model.label = choice.model_type;
  model.model_type = choice.model_type;
  model.architecture = choice.architecture;
  return model;
}

}  // namespace

Result<ResolvedModel> resolve_model(const ModelChoice& choice, const Catalogue& catalogue) {
  return std::visit([&](const auto& kind) { return resolve(kind, catalogue); }, choice);
}

}  // namespace vramplan
