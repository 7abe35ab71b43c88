#include <doctest/doctest.h>
#include <cstdlib>

#include <algorithm>
#include <string>

#include "catalogue.hpp"
#include "vramplan/architecture.hpp"
#include "vramplan/parameters.hpp"

namespace vramplan {
namespace {

Result<ResolvedModel> resolve(const std::string& id, const ModelOverrides& overrides = {}) {
  return resolve_model(ModelById{id, overrides}, shipped_catalogue());
}

ModelArchitecture shape(const std::string& id, const ModelOverrides& overrides = {}) {
  const Result<ResolvedModel> model = resolve(id, overrides);
  REQUIRE(model.ok());
  return model.value().architecture;
}

std::int64_t total(const ModelArchitecture& model) { return total_parameters(parameter_groups(model)).value; }

std::vector<Dim> counts(const ModelArchitecture& model) {
  std::vector<Dim> layers;
  for (const LayerGroup& group : model.groups) layers.push_back(group.count);
  return layers;
}

bool has(const Problems& problems, ProblemCode code, const std::string& pointer) {
  return std::any_of(problems.begin(), problems.end(),
                     [&](const Problem& problem) { return problem.code == code && problem.pointer == pointer; });
}

std::string text(const Problem& problem, const std::string& name) {
  for (const ProblemArgument& argument : problem.arguments) {
    if (argument.name == name && std::holds_alternative<std::string>(argument.value)) {
      return std::get<std::string>(argument.value);
    }
  }
  return "?";
}

TEST_CASE("a model is found by its id, by an alias and in any letter case") {
  const Result<ResolvedModel> model = resolve("meta-llama/Llama-3.1-8B");
  REQUIRE(model.ok());
  CHECK(model.value().id == "meta-llama/Llama-3.1-8B");
  CHECK(model.value().label == "Llama 3.1 8B");
  CHECK(model.value().model_type == "llama");
  CHECK_FALSE(model.value().inferred);
  CHECK(resolve("META-LLAMA/llama-3.1-8b").ok());
  const Result<ResolvedModel> alias = resolve("meta-llama/Llama-3.1-8B-Instruct");
  REQUIRE(alias.ok());
  CHECK(alias.value().id == "meta-llama/Llama-3.1-8B");
}

TEST_CASE("no two models share a name") {
  for (const ModelCard& card : shipped_catalogue().models) {
    CHECK(find_model(shipped_catalogue(), card.id) == &card);
    for (const std::string& alias : card.aliases) CHECK(find_model(shipped_catalogue(), alias) == &card);
  }
}

TEST_CASE("an unknown model is answered with the nearest one") {
  const auto closest_to = [](const std::string& id) {
    const Result<ResolvedModel> model = resolve(id);
    REQUIRE_FALSE(model.ok());
    REQUIRE(model.problems().size() == 1);
    CHECK(model.problems()[0].code == ProblemCode::unknown_model);
    CHECK(model.problems()[0].pointer == "/model");
    return text(model.problems()[0], "closest");
  };
  CHECK(closest_to("meta-lama/Llama-3.1-8B") == "meta-llama/Llama-3.1-8B");
  CHECK(closest_to("llama-3.1-8b") == "meta-llama/Llama-3.1-8B");
  CHECK(closest_to("Qwen3 8B") == "Qwen/Qwen3-8B");
  CHECK(closest_to("no such thing at all, really").empty());
  CHECK(closest_to("").empty());
  CHECK(closest_to(std::string(100'000, 'x')).empty());
  const Result<ResolvedModel> overridden = resolve("meta-lama/Llama-3.1-8B", {.num_hidden_layers = 2});
  REQUIRE_FALSE(overridden.ok());
  CHECK(overridden.problems()[0].pointer == "/model/id");
}

TEST_CASE("overrides change what they name") {
  const std::string id = "meta-llama/Llama-3.1-8B";
  const std::int64_t layer = 4096 * 4096 * 2 + 4096 * 1024 * 2 + 3 * 4096 * 14336 + 2 * 4096;
  const std::int64_t outside = 2LL * 128256 * 4096 + 4096;
  CHECK(total(shape(id, {.num_hidden_layers = 12})) == outside + 12 * layer);
  CHECK(total(shape(id, {.tie_word_embeddings = true})) == outside - 128256LL * 4096 + 32 * layer);
  CHECK(total(shape(id, {.vocab_size = 32000})) == 2LL * 32000 * 4096 + 4096 + 32 * layer);
  CHECK(total(shape(id, {.intermediate_size = 14337})) == outside + 32 * (layer + 3 * 4096));
  CHECK(total(shape(id, {.num_key_value_heads = 4})) == outside + 32 * (layer - 4096 * 1024));
  CHECK(total(shape(id, {.num_attention_heads = 16})) == outside + 32 * (layer - 4096 * 4096));
  CHECK(total(shape(id, {.head_dim = 64})) == outside + 32 * (layer - 4096 * 4096 - 4096 * 1024));
  CHECK(shape(id, {.max_position_embeddings = 8192}).max_position_embeddings == 8192);
  const ModelArchitecture narrow = shape(id, {.hidden_size = 2048});
  CHECK(total(narrow) == 2LL * 128256 * 2048 + 2048 + 32 * layer / 2);
}

TEST_CASE("multi-head attention stays multi-head") {
  const ModelArchitecture model = shape("meta-llama/Llama-2-7b-hf", {.num_attention_heads = 16});
  CHECK(std::get<Attention>(model.groups[0].mixers[0]).kv_heads == 16);
  const ModelArchitecture grouped =
      shape("meta-llama/Llama-2-7b-hf", {.num_attention_heads = 16, .num_key_value_heads = 4});
  CHECK(std::get<Attention>(grouped.groups[0].mixers[0]).kv_heads == 4);
}

TEST_CASE("layers: leading dense layers stay, the rest keeps its mix by largest remainder") {
  CHECK(counts(shape("deepseek-ai/DeepSeek-V3", {.num_hidden_layers = 20})) == std::vector<Dim>{3, 17});
  CHECK(counts(shape("deepseek-ai/DeepSeek-V3", {.num_hidden_layers = 2})) == std::vector<Dim>{2});
  CHECK(counts(shape("google/gemma-3-27b-pt", {.num_hidden_layers = 31})) == std::vector<Dim>{26, 5});
  CHECK(counts(shape("google/gemma-2-9b", {.num_hidden_layers = 7})) == std::vector<Dim>{4, 3});
  CHECK(counts(shape("google/gemma-2-9b", {.num_hidden_layers = 1})) == std::vector<Dim>{1});
  CHECK(counts(shape("ai21labs/Jamba-v0.1", {.num_hidden_layers = 16})) == std::vector<Dim>{6, 8, 2});
  for (const ModelCard& card : shipped_catalogue().models) {
    CAPTURE(card.id);
    for (const Dim layers : {1, 2, 7, 24, 93, 1000}) {
      CHECK(layers_of(shape(card.id, {.num_hidden_layers = layers})) == layers);
    }
    const ModelArchitecture same = shape(card.id, {.num_hidden_layers = layers_of(card.architecture)});
    CHECK(total(same) == total(card.architecture));
    CHECK(counts(same) == counts(card.architecture));
  }
}

TEST_CASE("sizes that stand in several places follow together") {
  // Local layers have 96 query heads where full ones have 64.
  const ModelArchitecture step = shape("stepfun-ai/Step-3.5-Flash", {.num_attention_heads = 32});
  CHECK(std::get<Attention>(step.groups.front().mixers[0]).heads == 32);
  CHECK(std::get<Attention>(step.groups[1].mixers[0]).heads == 48);
  const std::string gemma = "google/gemma-4-E2B";
  const ModelArchitecture fewer = shape(gemma, {.num_hidden_layers = 7});
  CHECK(fewer.extras[0].shape == std::vector<Dim>{262144, 7, 256});
  CHECK(fewer.extras[1].shape == std::vector<Dim>{7, 256, 1536});
  const ModelArchitecture wider = shape(gemma, {.hidden_size = 2048, .vocab_size = 1000});
  CHECK(wider.extras[0].shape == std::vector<Dim>{1000, 35, 256});
  CHECK(wider.extras[1].shape == std::vector<Dim>{35, 256, 2048});
  const ModelArchitecture vision = shape("meta-llama/Llama-3.2-11B-Vision", {.vocab_size = 1008});
  CHECK(vision.head_rows == 1000);
}

TEST_CASE("an override that the model has no place for, or that breaks it, is a problem with its pointer") {
  const auto problems = [](const std::string& id, const ModelOverrides& overrides) {
    const Result<ResolvedModel> model = resolve(id, overrides);
    CHECK_FALSE(model.ok());
    return model.problems();
  };
  const std::string llama = "meta-llama/Llama-3.1-8B";
  CHECK(has(problems(llama, {.num_experts = 8}), ProblemCode::inconsistent, "/model/overrides/num_experts"));
  CHECK(has(problems(llama, {.num_key_value_heads = 3}), ProblemCode::inconsistent,
            "/model/overrides/num_key_value_heads"));
  CHECK(has(problems(llama, {.hidden_size = 0}), ProblemCode::out_of_range, "/model/overrides/hidden_size"));
  CHECK(has(problems("deepseek-ai/DeepSeek-V3", {.head_dim = 64}), ProblemCode::inconsistent,
            "/model/overrides/head_dim"));
  CHECK(has(problems("mistralai/Mixtral-8x7B-v0.1", {.num_experts = 1}), ProblemCode::inconsistent,
            "/model/overrides/num_experts"));
  CHECK(has(problems("mistralai/Mixtral-8x7B-v0.1", {.intermediate_size = 64}), ProblemCode::inconsistent,
            "/model/overrides/intermediate_size"));
  const Problems both = problems(llama, {.num_experts = 8, .moe_intermediate_size = 64});
  CHECK(both.size() == 2);
  const ModelOverrides huge = {.num_hidden_layers = 10'000, .hidden_size = 1'048'576, .intermediate_size = 1'048'576};
  CHECK(has(problems(llama, huge), ProblemCode::too_large, "/model/overrides"));
}

TEST_CASE("a bare parameter count looks like the models that people know") {
  const auto inferred = [](std::int64_t parameters) {
    const Result<ResolvedModel> model = resolve_model(ModelBySize{Params(parameters)}, shipped_catalogue());
    REQUIRE(model.ok());
    CHECK(model.value().inferred);
    CHECK(model.value().id.empty());
    return model.value().architecture;
  };
  const ModelArchitecture seven = inferred(7'000'000'000);
  CHECK(seven.hidden_size == 4096);
  CHECK(layers_of(seven) == 32);
  CHECK(std::abs(seven.vocab_size - 32000) < 320);
  CHECK(std::abs(total(seven) - 7'000'000'000) <= seven.hidden_size);  // half a row of embedding and head
  CHECK(total(inferred(8'000'000'000)) == 8'030'261'248);              // Llama 3.1 8B
  CHECK(total(inferred(13'000'000'000)) == 13'015'864'320);            // Llama 2 13B
  const ModelArchitecture seventy = inferred(70'000'000'000);
  CHECK(seventy.hidden_size == 8192);
  CHECK(layers_of(seventy) == 80);
  CHECK(std::get<Attention>(seventy.groups[0].mixers[0]).kv_heads == 8);
}

TEST_CASE("any parameter count comes out within half a percent, in a shape that passes its own check") {
  std::int64_t worst = 0;
  for (std::int64_t target = limits::kParameters.minimum; target <= limits::kParameters.maximum;
       target += target / 37) {
    CAPTURE(target);
    const ModelArchitecture model = infer_architecture(Params(target));
    const std::int64_t found = total(model);
    const std::int64_t difference = found > target ? found - target : target - found;
    CHECK(difference * 200 <= target);
    CHECK(check_architecture(model, "").empty());
    const auto& mlp = std::get<DenseMlp>(model.groups[0].mlps[0]);
    CHECK(mlp.intermediate_size >= model.hidden_size);
    CHECK(mlp.intermediate_size <= 9 * model.hidden_size);
    worst = std::max(worst, difference * 10'000 / target);
  }
  CHECK(worst <= 50);
}

TEST_CASE("a size outside the limits is refused") {
  const Result<ResolvedModel> model = resolve_model(ModelBySize{Params(10)}, shipped_catalogue());
  REQUIRE_FALSE(model.ok());
  CHECK(has(model.problems(), ProblemCode::out_of_range, "/model/parameters"));
}

TEST_CASE("an imported shape is checked whole, each problem once") {
  ModelByConfig choice;
  choice.model_type = "llama";
  choice.architecture = shape("google/gemma-2-9b");
  CHECK(resolve_model(choice, shipped_catalogue()).ok());
  for (LayerGroup& group : choice.architecture.groups) {
    std::get<Attention>(group.mixers[0]).kv_heads = 0;
    std::get<DenseMlp>(group.mlps[0]).intermediate_size = -1;
  }
  choice.architecture.vocab_size = 0;
  const Result<ResolvedModel> model = resolve_model(choice, shipped_catalogue());
  REQUIRE_FALSE(model.ok());
  CHECK(model.problems().size() == 3);
  CHECK(has(model.problems(), ProblemCode::out_of_range, "/model/config/num_key_value_heads"));
  CHECK(has(model.problems(), ProblemCode::out_of_range, "/model/config/intermediate_size"));
  CHECK(has(model.problems(), ProblemCode::out_of_range, "/model/config/vocab_size"));
  choice.architecture.groups.clear();
  CHECK_FALSE(resolve_model(choice, shipped_catalogue()).ok());
}

}  // namespace
}  // namespace vramplan
