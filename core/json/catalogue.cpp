#include "catalogue.hpp"

#include <utility>

#include "data.hpp"

namespace vramplan {
namespace {

template <class Row>
void read_rows(const Json& values, const std::string& pointer, Result<Row> (*read)(const Json&, const std::string&),
               std::vector<Row>& rows, Problems& problems) {
  if (!values.is_array()) {
    report_wrong_type(problems, pointer, "array", values);
    return;
  }
  rows.reserve(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    Result<Row> row = read(values[i], child_pointer(pointer, i));
    problems.insert(problems.end(), row.problems().begin(), row.problems().end());
    if (row.ok()) rows.push_back(std::move(row).value());
  }
}

// The build has checked that this is JSON.
Json parsed(std::string_view text) { return Json::parse(text, nullptr, false); }

Catalogue read_shipped() {
  Result<Catalogue> catalogue =
      read_catalogue(parsed(data::models_json()), parsed(data::gpus_json()), parsed(data::systems_json()));
  return catalogue.ok() ? std::move(catalogue).value() : Catalogue{};
}

}  // namespace

Result<Catalogue> read_catalogue(const Json& models, const Json& gpus, const Json& systems) {
  Catalogue catalogue;
  Problems problems;
  read_rows(models, "/models", &read_model, catalogue.models, problems);
  read_rows(gpus, "/gpus", &read_gpu, catalogue.gpus, problems);
  read_rows(systems, "/systems", &read_system, catalogue.systems, problems);
  if (!problems.empty()) return problems;
  return catalogue;
}

const Catalogue& shipped_catalogue() {
  static const Catalogue catalogue = read_shipped();
  return catalogue;
}

}  // namespace vramplan
