// What visitors have been told about GPUs and systems: C5, C6 and C12 of the articles, with the planner's own numbers.
// (Claims about memory are in claims.cpp, about single cards in hardware.cpp.)
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "support/door.hpp"

using namespace vramplan;
using door::Json;
using door::report;

namespace {

Json seventy(const Json& training, const std::string& gpu, std::int64_t count) {
  Json request = {
      {"model", "meta-llama/Llama-2-70b-hf"}, {"training", training}, {"hardware", {{"gpu", gpu}, {"count", count}}}};
  if (count > 1) request["layout"] = {{"dp", count}, {"zero", 3}};
  return request;
}

std::string verdict(const Json& request) { return report(request).at("fit").at("verdict"); }

// The smallest number of a card that is proposed; 0: none.
std::int64_t smallest_count(const Json& request, const std::string& gpu) {
  const Json r = door::plan(request);
  for (const Json& row : r.at("suggestions").at("systems")) {
    if (row.at("gpu") == gpu) return row.at("count").get<std::int64_t>();
  }
  return 0;
}

const Json kQlora = {{"method", "qlora"}, {"base_weights", "nf4_dq"}, {"sequence_length", 512}};

// Names of all fields, however deep.
void collect_keys(const Json& value, std::vector<std::string>& out) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) {
      out.push_back(key);
      collect_keys(inner, out);
    }
  } else if (value.is_array()) {
    for (const Json& inner : value) collect_keys(inner, out);
  }
}

}  // namespace

TEST_CASE("C5: a 70B model on few GPUs with QLoRA") {
  CHECK(verdict(seventy(kQlora, "rtx-a6000", 1)) == "tight");            // 48 GB
  CHECK(verdict(seventy(kQlora, "h100-sxm-80gb", 1)) == "comfortable");  // 80 GB
  // Two cards of 24 GB hold the halves of 35 GB only with no room to work: with FSDP the weights wait in host memory,
  // as those who showed it first did (AnswerDotAI/fsdp_qlora, CPU offload).
  CHECK(verdict(seventy(kQlora, "rtx-4090", 2)) == "does_not_fit");
  Json offloaded = kQlora;
  offloaded["offload"] = {{"parameters", true}};
  CHECK(verdict(seventy(offloaded, "rtx-4090", 2)) == "comfortable");
}

TEST_CASE("C6: above 13B full fine-tuning mostly needs several GPUs, and 70B with LoRA in BF16 exceeds one of 80 GB") {
  const auto full = [](const char* model) {
    return Json{{"model", model}, {"training", {{"method", "full"}, {"precision", "bf16_amp"}}}};
  };
  for (const char* gpu : {"a100-sxm4-80gb", "h100-sxm-80gb", "h200-sxm-141gb"}) {
    CAPTURE(gpu);
    const std::int64_t thirteen = smallest_count(full("meta-llama/Llama-2-13b-hf"), gpu);
    const std::int64_t seventy_full = smallest_count(full("meta-llama/Llama-2-70b-hf"), gpu);
    CHECK(thirteen > 1);
    CHECK(seventy_full > thirteen);
  }
  const Json lora = {{"model", "meta-llama/Llama-2-70b-hf"},
                     {"training", {{"method", "lora"}, {"base_weights", "bf16"}}}};
  CHECK(verdict(seventy(lora.at("training"), "h100-sxm-80gb", 1)) == "does_not_fit");
  CHECK(smallest_count(lora, "h100-sxm-80gb") > 1);
}

TEST_CASE("C12: no price, in no answer and in no list") {
  Json request = seventy(kQlora, "h100-sxm-80gb", 8);
  const std::array documents{door::plan(request), Json::parse(api::catalogue())};
  std::vector<std::string> keys;
  for (const Json& document : documents) collect_keys(document, keys);
  CHECK(keys.size() > 1000);
  for (const std::string& key : keys) {
    CAPTURE(key);
    for (const char* word : {"price", "cost", "usd", "eur_", "_eur"}) CHECK(key.find(word) == std::string::npos);
  }
  for (const char* language : {"nl", "en"}) {
    const auto path = std::filesystem::path(VRAMPLAN_SOURCE_DIR) / "web/src/i18n" / (std::string(language) + ".json");
    std::ifstream file(path);
    const std::string words{std::istreambuf_iterator<char>(file), {}};
    REQUIRE(words.size() > 1000);
    for (const char* sign : {"\u20ac", "$", "prijs ", "price "}) CHECK(words.find(sign) == std::string::npos);
  }
}
