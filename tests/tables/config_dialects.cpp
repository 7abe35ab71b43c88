// Every dialect of config.json against published models: importing the facts of a model's own config must give exactly
// its published parameter count. configs.json holds those facts in the field names of the dialect, not copies of files.
// `published` is "exact" where the source gives an integer, "rounded" where it gives a figure such as 8.3B.
#include <doctest/doctest.h>
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "config.hpp"
#include "vramplan/parameters.hpp"

namespace vramplan {
namespace {

Json rows() {
  std::ifstream file(VRAMPLAN_SOURCE_DIR "/tests/tables/configs.json");
  REQUIRE(file.good());
  return Json::parse(file);
}

void collect_dialects(const Json& config, std::set<std::string>& seen) {
  seen.insert(config.at("model_type").get<std::string>());
  if (!config.contains("text_config")) return;
  const Json& text = config.at("text_config");
  if (text.contains("model_type")) seen.insert(text.at("model_type").get<std::string>());
}

std::string described(const Problems& problems) {
  std::string text;
  for (const Problem& problem : problems) text += std::string(name_of(problem.code)) + " at " + problem.pointer + "; ";
  return text;
}

TEST_CASE("a config.json gives the published parameter count") {
  for (const Json& row : rows()) {
    const std::string model = row.at("model");
    CAPTURE(model);
    const Result<ModelArchitecture> read = read_config(row.at("config"), "/model/config");
    CHECK_MESSAGE(read.ok(), described(read.problems()));
    if (!read.ok()) continue;
    CHECK(total_parameters(parameter_groups(read.value())).value == row.at("parameters").get<std::int64_t>());
  }
}

TEST_CASE("dropout is what config.json publishes, or what the class has") {
  Json config = {{"model_type", "gpt2"}, {"n_embd", 768}, {"n_layer", 12}, {"n_head", 12}};
  const auto read = [&] {
    const Result<ModelArchitecture> model = read_config(config, "/model/config");
    REQUIRE_MESSAGE(model.ok(), described(model.problems()));
    return model.value().dropout;
  };
  CHECK(read().embedding == 0.1);
  CHECK(read().attention == 0.1);
  CHECK(read().residual == 0.1);
  config["embd_pdrop"] = 0;
  config["attn_pdrop"] = 0.2;
  config["resid_pdrop"] = 0.3;
  CHECK(read().embedding == 0);
  CHECK(read().attention == 0.2);
  CHECK(read().residual == 0.3);
}

TEST_CASE("every dialect is proven by a model") {
  // The same class as another dialect, so that its models prove both: Granite 3 with shared experts; the text part of
  // Qwen2.5-VL, which its own files leave flat.
  std::set<std::string> seen = {"granitemoeshared", "qwen2_5_vl_text"};
  for (const Json& row : rows()) collect_dialects(row.at("config"), seen);
  for (const std::string_view dialect : config_dialects()) {
    CAPTURE(dialect);
    CHECK(seen.contains(std::string(dialect)));
  }
}

// The layers that a published file spells out are those that the default rule of the dialect would make.
TEST_CASE("a pattern of layers can be left to the dialect") {
  for (Json row : rows()) {
    const std::string model = row.at("model");
    if (model != "allenai/Olmo-3-1025-7B" && model != "openai/gpt-oss-20b") continue;
    CAPTURE(model);
    const Result<ModelArchitecture> given = read_config(row.at("config"), "");
    row.at("config").erase("layer_types");
    const Result<ModelArchitecture> implied = read_config(row.at("config"), "");
    REQUIRE(given.ok());
    REQUIRE(implied.ok());
    REQUIRE(given.value().groups.size() == implied.value().groups.size());
    for (std::size_t i = 0; i < given.value().groups.size(); ++i) {
      CHECK(given.value().groups[i].count == implied.value().groups[i].count);
    }
  }
}

}  // namespace
}  // namespace vramplan
