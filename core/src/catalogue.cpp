#include "vramplan/catalogue.hpp"

#include <algorithm>

namespace vramplan {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

template <class Row>
const Row* find_by_id(const std::vector<Row>& rows, std::string_view id) {
  for (const Row& row : rows) {
    if (same_name(row.id, id)) return &row;
  }
  return nullptr;
}

}  // namespace

const ModelCard* find_model(const Catalogue& catalogue, std::string_view id) {
  if (const ModelCard* model = find_by_id(catalogue.models, id)) return model;
  for (const ModelCard& model : catalogue.models) {
    const auto is_id = [id](const std::string& alias) { return same_name(alias, id); };
    if (std::any_of(model.aliases.begin(), model.aliases.end(), is_id)) return &model;
  }
  return nullptr;
}

const Gpu* find_gpu(const Catalogue& catalogue, std::string_view id) { return find_by_id(catalogue.gpus, id); }

const System* find_system(const Catalogue& catalogue, std::string_view id) { return find_by_id(catalogue.systems, id); }

}  // namespace vramplan
