// Published truth: the parameter totals of every model of the catalogue, text part and active part, to the last
// parameter. `match` in models.json says whether the published figure itself is an exact count or a rounded one;
// `parameters` is the count of the weights that Transformers loads (published less multi-token-prediction modules,
// duplicated heads and buffers).
#include <doctest/doctest.h>

#include <fstream>
#include <string>

#include "catalogue.hpp"
#include "vramplan/parameters.hpp"

namespace vramplan {
namespace {

Json read_table() {
  std::ifstream file(std::string(VRAMPLAN_SOURCE_DIR) + "/tests/tables/models.json");
  return Json::parse(file, nullptr, false);
}

Params text_parameters(const ModelArchitecture& model) {
  ModelArchitecture text = model;
  text.towers.clear();
  return total_parameters(parameter_groups(text));
}

Dim indexer_elements(const std::optional<Indexer>& indexer) { return indexer ? indexer->head_dim : 0; }

// Elements that one token leaves in the cache, written apart from the core: it confirms head counts, which a total does
// not.
Dim cache_elements(const Attention& a) {
  if (a.kv_shared || a.cross) return 0;
  return a.kv_heads * (a.head_dim + v_head_dim_of(a)) + indexer_elements(a.indexer);
}
Dim cache_elements(const LatentAttention& a) {
  return a.kv_lora_rank + a.qk_rope_head_dim + indexer_elements(a.indexer);
}
Dim cache_elements(const CompressedAttention& a) {
  const Dim ratio = a.ratio > 0 ? a.ratio : 1;
  return (a.head_dim + indexer_elements(a.indexer)) / ratio;
}
template <class StateSpace>
Dim cache_elements(const StateSpace&) {
  return 0;
}

Dim cache_elements_of(const ModelArchitecture& model) {
  Dim elements = 0;
  for (const LayerGroup& group : model.groups) {
    for (const Mixer& mixer : group.mixers) {
      elements += group.count * std::visit([](const auto& kind) { return cache_elements(kind); }, mixer);
    }
  }
  return elements;
}

TEST_CASE("every model of the catalogue has its published total") {
  const Json table = read_table();
  REQUIRE(table.is_array());
  REQUIRE(table.size() == shipped_catalogue().models.size());
  int exact = 0;
  int published = 0;
  for (const Json& row : table) {
    const auto id = row.at("id").get<std::string>();
    CAPTURE(id);
    const ModelCard* card = find_model(shipped_catalogue(), id);
    REQUIRE(card != nullptr);
    REQUIRE(card->id == id);
    const std::vector<ParameterGroup> groups = parameter_groups(card->architecture);
    const auto expected = row.at("parameters").get<std::int64_t>();
    CHECK(total_parameters(groups).value == expected);
    CHECK(text_parameters(card->architecture).value == row.at("text_parameters").get<std::int64_t>());
    if (row.contains("active_parameters")) {
      CHECK(active_parameters(groups).value == row.at("active_parameters").get<std::int64_t>());
    } else {
      CHECK(active_parameters(groups).value == expected);
    }
    CHECK(cache_elements_of(card->architecture) == row.at("kv_cache_elements_per_token").get<std::int64_t>());
    exact += total_parameters(groups).value == expected ? 1 : 0;
    published += row.at("match") == "exact" ? 1 : 0;
  }
  MESSAGE(exact << " of " << table.size() << " totals exact; " << published << " of them published as exact counts");
}

}  // namespace
}  // namespace vramplan
