#include <doctest/doctest.h>
#include <algorithm>
#include <array>
#include <string>
#include <variant>
#include <vector>

#include "parse.hpp"
#include "request.hpp"

namespace vramplan {
namespace {

Json parsed(std::string_view text) {
  const Result<Json> read = parse_document(text);
  REQUIRE(read.ok());
  return read.value();
}

// A small request that has no problem; tests spoil one field of it.
Json sound() {
  return parsed(R"({
    "model": "meta-llama/Llama-3.1-8B",
    "training": {"method": "lora", "lora": {"rank": 8}, "sequence_length": 1024, "micro_batch": 2},
    "hardware": {"gpu": "h100-sxm-80gb", "count": 2},
    "layout": {"dp": 2, "zero": 3}})");
}

Json with(std::string_view pointer, const Json& value) {
  Json request = sound();
  request[Json::json_pointer(std::string(pointer))] = value;
  return request;
}

std::vector<std::string> listed(const Problems& problems) {
  std::vector<std::string> lines;
  for (const Problem& problem : problems) lines.push_back(std::string(name_of(problem.code)) + " " + problem.pointer);
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::vector<std::string> problems_of(const Json& request) { return listed(read_request(request).problems()); }

using Lines = std::vector<std::string>;

std::string argument(const Problem& problem, std::string_view name) {
  for (const ProblemArgument& a : problem.arguments) {
    if (a.name != name) continue;
    if (const auto* text = std::get_if<std::string>(&a.value)) return *text;
    if (const auto* number = std::get_if<std::int64_t>(&a.value)) return std::to_string(*number);
    return std::to_string(std::get<double>(a.value));
  }
  return "(none)";
}

Problem problem_of(const Json& request) {
  const Result<PlanRequest> read = read_request(request);
  REQUIRE(read.problems().size() == 1);
  return read.problems().front();
}

const char* const kLlama =
    R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                               "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100})";

Json with_config(std::string_view field, const Json& value) {
  Json config = parsed(kLlama);
  config[std::string(field)] = value;
  return with("/model", {{"config", config}});
}

Json without_config(std::string_view field) {
  Json config = parsed(kLlama);
  config.erase(std::string(field));
  return with("/model", {{"config", config}});
}

// ---- what reads well

TEST_CASE("the request of the contract reads, once what is not modelled yet is replaced") {
  const Json request = parsed(R"({
    "model": "meta-llama/Llama-3.1-8B",
    "training": {
      "objective": "sft", "method": "qlora", "framework": "transformers", "precision": "bf16_amp",
      "base_weights": "nf4_dq",
      "optimizer": {"name": "adamw", "states": "fp32", "paged": false, "foreach": false, "in_backward": false},
      "lora": {"rank": 16, "targets": ["all-linear"], "dropout": 0.0},
      "sequence_length": 2048, "micro_batch": 1, "global_batch": 16, "packing": true, "recompute": "full",
      "attention": "flash", "cross_entropy": "full_logits", "kernels": "eager", "kbit_upcast": true, "compile": false,
      "trainable_layers": null, "offload": {"optimizer": false, "parameters": false, "activations": false},
      "tokens": 1e8},
    "hardware": {"gpu": "h100-sxm-80gb", "count": 8, "per_node": 8},
    "layout": {"dp": 8, "zero": 3, "tp": 1, "sp": false, "pp": 1, "vpp": 1, "cp": 1, "ep": 1}})");
  const Result<PlanRequest> read = read_request(request);
  CHECK(listed(read.problems()) == Lines{});
  REQUIRE(read.ok());
  const TrainingChoice& t = read.value().training;
  CHECK(std::get<ModelById>(read.value().model).id == "meta-llama/Llama-3.1-8B");
  CHECK(t.method == Method::qlora);
  CHECK(t.base_weights == WeightFormat::nf4_dq);
  CHECK(t.optimizer.states == StateFormat::fp32);
  CHECK(t.optimizer.foreach == false);
  CHECK(t.lora.targets == Lines{"all-linear"});
  CHECK(t.global_batch == 16);
  CHECK(t.attention == AttentionKernel::flash);
  CHECK(!t.trainable_layers);
  CHECK(t.tokens == 1e8);
  CHECK(read.value().hardware->per_node == 8);
  CHECK(read.value().layout->zero == 3);
}

TEST_CASE("the optimizer's details read") {
  const Result<PlanRequest> read = read_request(parsed(R"({"model": "x", "training": {"method": "full", "ema": true,
    "optimizer": {"name": "galore", "rank": 64, "fused": false, "momentum": true, "master_weights": true}}})"));
  REQUIRE(read.ok());
  const OptimizerChoice& o = read.value().training.optimizer;
  CHECK(o.rank == 64);
  CHECK(o.fused == false);
  CHECK(o.momentum);
  CHECK(o.master_weights);
  CHECK(read.value().training.ema);
}

Json with_training(std::string_view training) { return {{"model", "x"}, {"training", parsed(training)}}; }

TEST_CASE("an update in backward leaves no gradient to accumulate") {
  const Json request = with_training(R"({"method": "full", "micro_batch": 2, "global_batch": 4,
                                         "optimizer": {"in_backward": true}})");
  CHECK(problems_of(request) == Lines{"inconsistent /training/optimizer/in_backward"});
  CHECK(argument(problem_of(request), "other") == "global_batch");
  CHECK(problems_of(with_training(R"({"method": "lomo", "micro_batch": 2, "global_batch": 4})")) ==
        Lines{"inconsistent /training/optimizer/name"});
  CHECK(problems_of(with_training(R"({"method": "lomo", "micro_batch": 4, "global_batch": 4})")) == Lines{});
}

TEST_CASE("optimizers and what does not go with them") {
  CHECK(problems_of(with_training(R"({"method": "lora", "optimizer": {"in_backward": true}})")) ==
        Lines{"inconsistent /training/optimizer/in_backward"});
  CHECK(problems_of(with_training(R"({"method": "lora", "optimizer": {"name": "galore"}})")) ==
        Lines{"inconsistent /training/optimizer/name"});
  CHECK(problems_of(with_training(R"({"method": "galore", "optimizer": {"name": "muon"}})")) ==
        Lines{"inconsistent /training/optimizer/name"});
  CHECK(problems_of(with_training(R"({"method": "lomo", "optimizer": {"name": "adalomo"}})")) == Lines{});
  CHECK(problems_of(with_training(R"({"method": "full", "optimizer": {"name": "muon", "paged": true}})")) ==
        Lines{"inconsistent /training/optimizer/paged"});
  CHECK(problems_of(with_training(R"({"method": "full", "optimizer": {"states": "bf16", "paged": true}})")) ==
        Lines{"inconsistent /training/optimizer/paged"});
  CHECK(problems_of(with_training(R"({"method": "full", "optimizer": {"foreach": true, "fused": true}})")) ==
        Lines{"inconsistent /training/optimizer/fused"});
  CHECK(problems_of(with_training(R"({"method": "full", "optimizer": {"rank": 8}})")) ==
        Lines{"inconsistent /training/optimizer/rank"});
  CHECK(problems_of(with_training(R"({"method": "full", "optimizer": {"name": "muon", "states": "int8"}})")) ==
        Lines{"not_supported /training/optimizer/states"});
}

TEST_CASE("engines that step by themselves take neither updates in backward nor optimizers that know the model") {
  for (const std::string framework : {"deepspeed", "litgpt"}) {
    CHECK(problems_of(with_training(R"({"method": "full", "framework": ")" + framework +
                                    R"(", "optimizer": {"in_backward": true}})")) ==
          Lines{"not_supported /training/optimizer/in_backward"});
    CHECK(problems_of(with_training(R"({"method": "full", "framework": ")" + framework +
                                    R"(", "optimizer": {"name": "muon"}})")) ==
          Lines{"not_supported /training/optimizer/name"});
    CHECK(problems_of(with_training(R"({"method": "galore", "framework": ")" + framework + R"("})")) ==
          Lines{"not_supported /training/method"});
  }
}

TEST_CASE("a model alone is a request") {
  const Result<PlanRequest> read = read_request(parsed(R"({"model": "x"})"));
  REQUIRE(read.ok());
  CHECK(!read.value().hardware);
  CHECK(!read.value().layout);
  CHECK(read.value().training.lora.rank == 16);
}

TEST_CASE("a model by id with overrides, by size, by config") {
  const Json by_id = {{"id", "x"}, {"overrides", {{"num_hidden_layers", 12}, {"tie_word_embeddings", true}}}};
  const Result<PlanRequest> overridden = read_request(with("/model", by_id));
  REQUIRE(overridden.ok());
  const auto& model = std::get<ModelById>(overridden.value().model);
  CHECK(model.overrides.num_hidden_layers == 12);
  CHECK(model.overrides.tie_word_embeddings == true);
  CHECK(!model.overrides.hidden_size);

  const Result<PlanRequest> sized = read_request(with("/model", parsed(R"({"parameters": 7e9})")));
  REQUIRE(sized.ok());
  CHECK(std::get<ModelBySize>(sized.value().model).parameters == Params(7'000'000'000));

  const Result<PlanRequest> imported = read_request(with("/model", {{"config", parsed(kLlama)}}));
  REQUIRE(imported.ok());
  CHECK(std::get<ModelByConfig>(imported.value().model).model_type == "llama");
  CHECK(std::get<ModelByConfig>(imported.value().model).architecture.hidden_size == 64);
}

TEST_CASE("adapter targets are read as people write them") {
  const auto targets_of = [](const Json& targets) {
    const Result<PlanRequest> read = read_request(with("/training/lora/targets", targets));
    REQUIRE(read.ok());
    return read.value().training.lora.targets;
  };
  CHECK(targets_of("all-linear") == Lines{"all-linear"});
  CHECK(targets_of({"q", "v"}) == Lines{"q", "v"});
  CHECK(targets_of({"q_proj", "v_proj", "q"}) == Lines{"q", "v"});
  CHECK(targets_of({"linear_qkv", "linear_proj"}) == Lines{"q", "k", "v", "qkv", "o"});
  CHECK(targets_of({"decoder.layers.0.mlp.linear_fc1", "linear_fc2"}) == Lines{"gate", "up", "gate_up", "down"});
  CHECK(targets_of("q, v,o,mlp") == Lines{"q", "v", "o", "gate", "up", "down", "gate_up"});
  CHECK(targets_of({"q,k,v,o,mlp,lm_head"}).back() == "head");
  CHECK(targets_of({"query_key_value"}) == Lines{"qkv"});
  CHECK(targets_of({"Wqkv"}) == Lines{"qkv"});
  CHECK(targets_of({"c_attn", "attn.c_proj"}) == Lines{"qkv", "o"});
  CHECK(targets_of({"transformer.h.3.mlp.c_proj"}) == Lines{"down"});
  CHECK(targets_of({"c_proj"}) == Lines{"o", "down"});
  CHECK(targets_of({"model.embed_tokens"}) == Lines{"embedding"});
  CHECK(targets_of({"kv_a_proj_with_mqa"}) == Lines{"kv_a"});
}

// ---- each code

TEST_CASE("the document is an object with a model") {
  CHECK(problems_of(Json::array()) == Lines{"wrong_type "});
  CHECK(problems_of(Json::object()) == Lines{"missing_field /model"});
  CHECK(problems_of(with("/model", nullptr)) == Lines{"wrong_type /model"});
  CHECK(problems_of(with("/model", 7)) == Lines{"wrong_type /model"});
  CHECK(problems_of(with("/model", Json::object())) == Lines{"missing_field /model/id"});
  CHECK(problems_of(with("/training", "lora")) == Lines{"wrong_type /training"});
}

TEST_CASE("an unknown field names the closest known one") {
  const Problem problem = problem_of(with("/training/sequence_lenght", 5));
  CHECK(problem.code == ProblemCode::unknown_field);
  CHECK(problem.pointer == "/training/sequence_lenght");
  CHECK(argument(problem, "closest") == "sequence_length");
}

TEST_CASE("a flood of faults is answered with some of them") {
  Json request = sound();
  for (int i = 0; i < 100'000; ++i) request[std::to_string(i)] = i;
  CHECK(problems_of(request).size() == 100);
  Json config = parsed(kLlama);
  config["model_type"] = "olmo3";
  config["num_hidden_layers"] = 10'000;
  config["layer_types"] = std::vector<int>(10'000, 1);
  CHECK(problems_of(with("/model", {{"config", config}})).size() <= 32);
}

TEST_CASE("numbers are whole where whole is wanted, and in range") {
  CHECK(problems_of(with("/training/micro_batch", 1.5)) == Lines{"not_an_integer /training/micro_batch"});
  CHECK(problems_of(with("/training/micro_batch", 0)) == Lines{"out_of_range /training/micro_batch"});
  CHECK(problems_of(with("/training/micro_batch", -1)) == Lines{"out_of_range /training/micro_batch"});
  CHECK(problems_of(with("/training/sequence_length", 1e30)) == Lines{"out_of_range /training/sequence_length"});
  CHECK(problems_of(with("/training/sequence_length", "1024")) == Lines{"wrong_type /training/sequence_length"});
  CHECK(problems_of(with("/training/sequence_length", true)) == Lines{"wrong_type /training/sequence_length"});
  CHECK(problems_of(with("/training/lora/dropout", 1.5)) == Lines{"out_of_range /training/lora/dropout"});
  CHECK(problems_of(with("/training/lora/rank", 0)) == Lines{"out_of_range /training/lora/rank"});
  CHECK(problems_of(with("/training/tokens", -5)) == Lines{"out_of_range /training/tokens"});
  CHECK(problems_of(with("/layout/zero", 4)) == Lines{"out_of_range /layout/zero"});
  CHECK(problems_of(with("/hardware/count", 1'000'000)) == Lines{"out_of_range /hardware/count"});
  CHECK(problems_of(with("/model", {{"parameters", 5}})) == Lines{"out_of_range /model/parameters"});
  CHECK(read_request(with("/training/sequence_length", 2048.0)).ok());
}

TEST_CASE("null is the default") {
  for (const char* pointer : {"/training/lora/dropout", "/training/lora/targets", "/training/base_weights",
                              "/training/optimizer", "/training/optimizer/foreach", "/hardware", "/layout"}) {
    CAPTURE(pointer);
    CHECK(problems_of(with(pointer, nullptr)) == Lines{});
  }
}

TEST_CASE("an unknown value says what is allowed") {
  const Problem problem = problem_of(with("/training/method", "LoRA"));
  CHECK(problem.code == ProblemCode::unknown_value);
  CHECK(argument(problem, "value") == "LoRA");
  CHECK(argument(problem, "allowed").find("qlora") != std::string::npos);
  CHECK(problems_of(with("/training/lora/targets", {"q", "nose"})) == Lines{"unknown_value /training/lora/targets/1"});
  CHECK(problems_of(with("/training/lora/targets", "")) == Lines{"unknown_value /training/lora/targets"});
  CHECK(problems_of(with("/training/lora/targets", Json::array())) == Lines{"out_of_range /training/lora/targets"});
  CHECK(problems_of(with("/training/lora/targets", Json(std::vector<int>(1000, 1)))) ==
        Lines{"out_of_range /training/lora/targets"});
}

TEST_CASE("a model is given in one way") {
  CHECK(problems_of(with("/model", {{"id", "x"}, {"parameters", 7e9}})) == Lines{"inconsistent /model/id"});
  CHECK(problems_of(with("/model", {{"parameters", 7e9}, {"overrides", Json::object()}})) ==
        Lines{"inconsistent /model/overrides"});
  CHECK(problems_of(with("/model", {{"id", "x"}, {"overrides", {{"num_layers", 3}, {"head_dim", 0}}}})) ==
        Lines{"out_of_range /model/overrides/head_dim", "unknown_field /model/overrides/num_layers"});
}

TEST_CASE("references and answers belong to objectives that have them") {
  const auto training = [](Json fields) {
    fields["method"] = fields.value("method", "lora");
    return with("/training", std::move(fields));
  };
  CHECK(problems_of(training({{"objective", "sft"}, {"reference", "model"}})) ==
        Lines{"inconsistent /training/reference"});
  CHECK(problems_of(training({{"objective", "grpo"}, {"reference", "precomputed"}})) ==
        Lines{"inconsistent /training/reference"});
  CHECK(problems_of(training({{"objective", "dpo"}, {"method", "full"}, {"reference", "adapters_off"}})) ==
        Lines{"inconsistent /training/reference"});
  CHECK(problems_of(training({{"objective", "dpo"}, {"generation", Json::object()}})) ==
        Lines{"inconsistent /training/generation"});
  CHECK(problems_of(training(
            {{"objective", "grpo"}, {"sequence_length", 512}, {"generation", {{"completion_length", 513}}}})) ==
        Lines{"inconsistent /training/generation/completion_length"});
  CHECK(problems_of(training({{"objective", "grpo"}, {"micro_batch", 4}, {"generation", {{"generations", 3}}}})) ==
        Lines{"inconsistent /training/generation/generations"});
  CHECK(problems_of(training({{"objective", "grpo"}, {"generation", {{"engine_share", 1.5}, {"tokens", 3}}}})) ==
        Lines{"out_of_range /training/generation/engine_share", "unknown_field /training/generation/tokens"});
  for (const char* reference : {"model", "adapters_off"}) {
    CHECK(problems_of(training({{"objective", "grpo"}, {"reference", reference}})).empty());
    CHECK(problems_of(training({{"objective", "dpo"}, {"reference", reference}})).empty());
  }
  CHECK(problems_of(training({{"objective", "dpo"}, {"framework", "torchtune"}})) ==
        Lines{"not_supported /training/objective"});
}

TEST_CASE("PPO's models, and what does not go with them") {
  const auto ppo = [](Json fields) {
    fields["objective"] = fields.value("objective", "ppo");
    fields["method"] = fields.value("method", "lora");
    Json request = with("/training", std::move(fields));
    request["layout"] = {{"dp", 2}};
    return problems_of(request);
  };
  CHECK(ppo({{"value_model", "full"}, {"reward_model", "external"}, {"reference", "model"}}).empty());
  CHECK(ppo({{"method", "qlora"}, {"value_model", "adapters"}}).empty());
  CHECK(ppo({{"method", "full"}, {"generation", {{"completion_length", 128}, {"generations", 1}}}}).empty());
  CHECK(ppo({{"objective", "grpo"}, {"reward_model", "model"}}).empty());
  CHECK(ppo({{"objective", "dpo"}, {"value_model", "full"}}) == Lines{"inconsistent /training/value_model"});
  CHECK(ppo({{"objective", "sft"}, {"reward_model", "model"}}) == Lines{"inconsistent /training/reward_model"});
  CHECK(ppo({{"method", "full"}, {"value_model", "adapters"}}) == Lines{"inconsistent /training/value_model"});
  CHECK(ppo({{"method", "qlora"}, {"value_model", "full"}}) == Lines{"inconsistent /training/value_model"});
  CHECK(ppo({{"value_model", "half"}}) == Lines{"unknown_value /training/value_model"});
  CHECK(ppo({{"reference", "precomputed"}}) == Lines{"inconsistent /training/reference"});
  CHECK(ppo({{"cross_entropy", "chunked"}}) == Lines{"not_supported /training/cross_entropy"});
  CHECK(ppo({{"generation", {{"engine_share", 0.3}}}}) == Lines{"inconsistent /training/generation/engine_share"});
  CHECK(ppo({{"generation", {{"generations", 2}}}}) == Lines{"inconsistent /training/generation/generations"});
  CHECK(ppo({{"method", "lomo"}}) == Lines{"inconsistent /training/optimizer/name"});
  CHECK(ppo({{"offload", {{"activations", true}}}}) == Lines{"inconsistent /training/offload/activations"});
  CHECK(problems_of(with("/training", {{"objective", "ppo"}, {"method", "lora"}})) ==
        Lines{"inconsistent /layout/zero"});
}

TEST_CASE("BAdam chooses the layers of a whole model on one GPU") {
  const auto badam = [](Json training, const Json& layout) {
    training["optimizer"]["name"] = "badam";
    Json request = with("/training", std::move(training));
    request["layout"] = layout;
    return problems_of(request);
  };
  const Json one = {{"dp", 1}};
  Json alone = with("/training", {{"method", "full"}, {"optimizer", {{"name", "badam"}}}});
  alone["hardware"]["count"] = 1;
  alone["layout"] = one;
  CHECK(problems_of(alone).empty());
  CHECK(badam({{"method", "full"}}, {{"dp", 2}}) == Lines{"inconsistent /training/optimizer/name"});
  CHECK(badam({{"method", "lora"}}, {{"dp", 2}}) ==
        Lines{"inconsistent /training/optimizer/name", "inconsistent /training/optimizer/name"});
  CHECK(badam({{"method", "full"}, {"framework", "torchtune"}}, {{"dp", 2}}) ==
        Lines{"inconsistent /training/optimizer/name", "not_supported /training/optimizer/name"});
  alone["training"]["optimizer"]["in_backward"] = true;
  CHECK(problems_of(alone) == Lines{"inconsistent /training/optimizer/in_backward"});
}

TEST_CASE("FSDP of the first generation takes no integers") {
  const auto int8 = [](std::string_view framework, std::int64_t gpus, Json layout) {
    Json request = with("/training", {{"method", "lora"}, {"framework", framework}, {"base_weights", "int8"}});
    request["hardware"] = {{"gpu", "a100-sxm4-80gb"}, {"count", gpus}};
    layout["dp"] = gpus;
    request["layout"] = layout;
    return problems_of(request);
  };
  const Lines refused{"inconsistent /layout/zero"};
  CHECK(int8("transformers", 4, {{"zero", 3}}) == refused);
  CHECK(int8("transformers", 4, {{"zero", 2}, {"fsdp", 1}}) == refused);
  CHECK(int8("transformers", 4, {{"zero", 3}, {"fsdp", 2}}).empty());
  CHECK(int8("transformers", 4, {{"zero", 1}}).empty());
  CHECK(int8("transformers", 1, {{"zero", 3}}).empty());  // nothing is divided
  CHECK(int8("deepspeed", 4, {{"zero", 3}}).empty());
}

TEST_CASE("modules that PEFT saves are the embedding and the head") {
  const auto saved = [](const Json& modules) {
    return problems_of(
        with("/training", {{"method", "lora"}, {"lora", {{"modules_to_save", modules}, {"rslora", true}}}}));
  };
  CHECK(saved({"embedding", "head", "head"}).empty());
  CHECK(saved({"norm"}) == Lines{"unknown_value /training/lora/modules_to_save/0"});
  CHECK(saved("head") == Lines{"wrong_type /training/lora/modules_to_save"});
  CHECK(
      problems_of(with("/training",
                       {{"method", "lora"}, {"framework", "torchtune"}, {"lora", {{"modules_to_save", {"head"}}}}})) ==
      Lines{"not_supported /training/lora/modules_to_save"});
}

TEST_CASE("recompute by module, tokens of experts and the exchange of context parallelism are Megatron's") {
  const auto megatron = [](Json more) {
    more["framework"] = "megatron";
    more["method"] = "full";
    Json request = with("/training", more);
    request["layout"] = {{"dp", 2}, {"zero", 1}};
    return problems_of(request);
  };
  CHECK(megatron({{"recompute", "selective"}, {"recompute_modules", {"core_attn", "mlp", "mlp"}}}).empty());
  CHECK(megatron({{"recompute", "selective"}, {"recompute_modules", {"attention"}}}) ==
        Lines{"unknown_value /training/recompute_modules/0"});
  CHECK(megatron({{"recompute", "full"}, {"recompute_modules", {"mlp"}}}) ==
        Lines{"inconsistent /training/recompute_modules"});
  CHECK(megatron({{"moe", {{"imbalance", 1.2}, {"capacity_factor", 1}}}}).empty());
  CHECK(megatron({{"moe", {{"imbalance", 0.5}}}}) == Lines{"out_of_range /training/moe/imbalance"});
  CHECK(megatron({{"recompute", "selective"}, {"cross_entropy", "chunked"}}) ==
        Lines{"not_supported /training/cross_entropy"});
  CHECK(megatron({{"precision", "fp8"}, {"fp8_parameters", true}, {"fp32_gradients", false}}).empty());
  CHECK(megatron({{"fp8_parameters", true}}) == Lines{"inconsistent /training/fp8_parameters"});
  CHECK(problems_of(with("/training", {{"fp32_gradients", true}})) == Lines{"not_supported /training/fp32_gradients"});
  CHECK(megatron({{"attention", "eager"}, {"kernels", "eager"}, {"precision", "fp16_amp"}}).empty());
  CHECK(megatron({{"precision", "fp16_amp"}, {"base_weights", "bf16"}}) ==
        Lines{"not_supported /training/base_weights"});
  CHECK(megatron({{"mtp_layers", 2}}).empty());
  CHECK(megatron({{"mtp_layers", 5}}) == Lines{"out_of_range /training/mtp_layers"});
  CHECK(megatron({{"mtp_layers", -1}}) == Lines{"out_of_range /training/mtp_layers"});
  CHECK(problems_of(with("/training", {{"mtp_layers", 1}})) == Lines{"not_supported /training/mtp_layers"});
  CHECK(problems_of(with("/training", {{"mtp_layers", 0}})).empty());
  CHECK(problems_of(with("/layout/cp_exchange", "ring")).empty());
  CHECK(problems_of(with("/layout/cp_exchange", "bus")) == Lines{"unknown_value /layout/cp_exchange"});
}

namespace {

Lines problems_on_eight(const Json& training, const Json& layout) {
  Json request = sound();
  request["training"] = training;
  request["layout"] = layout;
  request["hardware"]["count"] = 8;
  return problems_of(request);
}

}  // namespace

TEST_CASE("Megatron takes LoRA alone of what adapts, at a rank that the ranks of tensor parallelism divide") {
  const auto megatron = [](Json training, Json layout) {
    training.update({{"framework", "megatron"}, {"sequence_length", 2048}});
    return problems_on_eight(training, layout);
  };
  const Json tensor = {{"dp", 2}, {"zero", 1}, {"tp", 4}, {"sp", true}};
  CHECK(megatron({{"method", "lora"}}, tensor).empty());
  CHECK(megatron({{"method", "lora"}, {"lora", {{"rank", 8}}}}, tensor).empty());
  CHECK(megatron({{"method", "lora"}, {"lora", {{"rank", 6}}}}, tensor) == Lines{"inconsistent /training/lora/rank"});
  CHECK(megatron({{"method", "full"}, {"lora", {{"rank", 6}}}}, tensor).empty());
  const Json experts = {{"dp", 4}, {"zero", 1}, {"tp", 2}, {"etp", 4}};
  CHECK(megatron({{"method", "lora"}, {"lora", {{"rank", 6}}}}, experts) == Lines{"inconsistent /training/lora/rank"});
  CHECK(megatron({{"method", "lora"}, {"mtp_layers", 1}}, tensor) == Lines{"inconsistent /training/mtp_layers"});
  CHECK(megatron({{"method", "dora"}}, tensor) == Lines{"not_supported /training/method"});
  CHECK(megatron({{"method", "qlora"}, {"base_weights", "nf4"}}, tensor) ==
        Lines{"not_supported /training/base_weights", "not_supported /training/method"});
  CHECK(megatron({{"method", "lora"}, {"lora", {{"modules_to_save", {"head"}}}}}, tensor) ==
        Lines{"not_supported /training/lora/modules_to_save"});
}

TEST_CASE("the ends of a pipeline may have a number of layers of their own") {
  const auto problems_with = [](Json layout) {
    Json training = sound().at("training");
    training.update({{"framework", "megatron"}, {"method", "full"}});
    layout.update({{"dp", 4}, {"zero", 1}, {"pp", 2}});
    return problems_on_eight(training, layout);
  };
  CHECK(problems_with({{"first_stage_layers", 14}, {"last_stage_layers", 18}}).empty());
  CHECK(problems_with({{"first_stage_layers", 0}}) == Lines{"out_of_range /layout/first_stage_layers"});
  CHECK(problems_with({{"last_stage_layers", "few"}}) == Lines{"wrong_type /layout/last_stage_layers"});
}

TEST_CASE("Scaling trains whole models in 16 bits, over data, tensors and stages") {
  const auto problems_with = [](Json training, Json layout) {
    training.update({{"framework", "scaling"}, {"sequence_length", 2048}});
    if (!training.contains("method")) training["method"] = "full";
    return problems_on_eight(training, layout);
  };
  const Json all = {{"dp", 2}, {"zero", 1}, {"tp", 2}, {"sp", true}, {"pp", 2}};
  CHECK(problems_with({{"attention", "eager"}}, all).empty());
  CHECK(problems_with({{"attention", "flash"}, {"kernels", "fused"}, {"precision", "fp16_amp"}}, all).empty());
  CHECK(problems_with({{"attention", "sdpa"}}, all) == Lines{"not_supported /training/attention"});
  CHECK(problems_with({{"attention", "flash"}, {"method", "lora"}}, all) == Lines{"not_supported /training/method"});
  CHECK(problems_with({{"attention", "flash"}, {"precision", "bf16"}}, all) ==
        Lines{"not_supported /training/precision"});
  CHECK(problems_with({{"attention", "flash"}, {"cross_entropy", "chunked"}}, all) ==
        Lines{"not_supported /training/cross_entropy"});
  CHECK(problems_with({{"attention", "flash"}, {"optimizer", {{"name", "lion"}}}}, all) ==
        Lines{"not_supported /training/optimizer/name"});
  CHECK(problems_with({{"attention", "flash"}}, {{"dp", 4}, {"zero", 2}, {"cp", 2}}) ==
        Lines{"not_supported /layout/cp", "not_supported /layout/zero"});
  CHECK(problems_with({{"attention", "flash"}}, {{"dp", 4}, {"zero", 1}, {"pp", 2}, {"vpp", 2}}) ==
        Lines{"not_supported /layout/vpp"});
}

TEST_CASE("ranks may each compute the whole loss, where tensor parallelism and the loss allow it") {
  const auto problems_with = [](Json training, Json layout) {
    training.update({{"method", "full"}, {"sequence_length", 2048}});
    return problems_on_eight(training, layout);
  };
  Json whole = {{"dp", 4}, {"zero", 3}, {"tp", 2}, {"loss_parallel", false}};
  CHECK(problems_with({{"framework", "torchtitan"}}, whole).empty());
  CHECK(problems_with({{"framework", "torchtitan"}, {"cross_entropy", "chunked"}}, whole) ==
        Lines{"inconsistent /layout/loss_parallel"});
  whole["zero"] = 1;
  CHECK(problems_with({{"framework", "megatron"}}, whole) == Lines{"not_supported /layout/loss_parallel"});
  CHECK(problems_with({{"framework", "transformers"}}, {{"dp", 8}, {"zero", 3}, {"loss_parallel", false}}) ==
        Lines{"not_supported /layout/loss_parallel"});
  CHECK(problems_with({{"framework", "megatron"}, {"attention", "eager"}}, {{"dp", 4}, {"zero", 1}, {"cp", 2}}) ==
        Lines{"inconsistent /training/attention"});
}

TEST_CASE("the contract's values that are not modelled are known and refused by name") {
  struct Row {
    const char* pointer;
    Json value;
  };
  const Row rows[] = {
      {"/training/precision", "fp8"},
      {"/training/precision", "fp16"},
      {"/training/base_weights", "mxfp4"},
      {"/training/base_weights", "fp8"},
      {"/training/optimizer/states", "factored"},
      {"/training/recompute", "selective"},
      {"/training/attention", "flex"},
      {"/training/compile", true},
      {"/training/offload/optimizer", true},
      {"/layout/sp", true},
      {"/layout/vpp", 2},
      {"/layout/ep", 2},
  };
  for (const Row& row : rows) {
    CAPTURE(row.pointer);
    CAPTURE(row.value.dump());
    Json request = with(row.pointer, row.value);
    if (row.pointer == std::string_view("/training/framework")) request.erase("layout");  // each has stages of its own
    const Problem problem = problem_of(request);
    CHECK(problem.code == ProblemCode::not_supported);
    CHECK(problem.pointer == row.pointer);
    CHECK(argument(problem, "field") == std::string(row.pointer).substr(std::string(row.pointer).rfind('/') + 1));
    CHECK(argument(problem, "value") == (row.value.is_string() ? row.value.get<std::string>() : row.value.dump()));
  }
}

TEST_CASE("what a framework of fused kernels cannot do is refused by name") {
  struct Row {
    const char* framework;
    const char* pointer;
    Json value;
    bool refused;
  };
  const Row rows[] = {
      {"liger", "/training/kernels", "eager", true},
      {"liger", "/training/kernels", "fused", false},
      {"liger", "/training/cross_entropy", "fused", false},
      {"liger", "/training/method", "full", false},
      {"unsloth", "/training/kernels", "eager", true},
      {"unsloth", "/training/method", "full", true},
      {"unsloth", "/training/base_weights", "int8", true},
      {"unsloth", "/training/base_weights", "bf16", false},
      {"unsloth", "/training/kbit_upcast", true, true},
      {"unsloth", "/training/offload/activations", true, false},
      {"liger", "/training/offload/activations", true, false},
      {"torchtune", "/training/cross_entropy", "fused", true},
      {"torchtune", "/training/kernels", "fused", true},
      {"liger", "/training/compile", true, true},
      {"liger", "/training/recurrence", "composite", false},
      {"liger", "/training/recurrence", "fused", false},
      {"unsloth", "/training/recurrence", "composite", true},
      {"torchtune", "/training/recurrence", "fused", true},
      {"liger", "/training/trainer", "trl", false},
      {"unsloth", "/training/trainer", "trl", true},
  };
  for (const Row& row : rows) {
    CAPTURE(row.framework);
    CAPTURE(row.pointer);
    Json request = with(row.pointer, row.value);
    request["training"]["framework"] = row.framework;
    const Lines problems = problems_of(request);
    CHECK(problems == (row.refused ? Lines{std::string("not_supported ") + row.pointer} : Lines{}));
  }
}

TEST_CASE("method and base weights agree") {
  const auto problems_with = [](const char* method, const char* weights) {
    Json request = with("/training/method", method);
    request["training"]["base_weights"] = weights;
    return problems_of(request);
  };
  const Lines mismatch = {"method_mismatch /training/base_weights"};
  CHECK(problems_with("qlora", "bf16") == mismatch);
  CHECK(problems_with("full", "nf4") == mismatch);
  CHECK(problems_with("full", "bf16") == Lines{});
  CHECK(problems_with("full", "fp16") == Lines{"not_supported /training/base_weights"});
  CHECK(problems_with("lora", "fp16") == Lines{});
  CHECK(problems_with("lora", "fp4") == Lines{});
  CHECK(problems_with("qlora", "nf4_dq") == Lines{});
  CHECK(problems_of(with("/training/method", "qlora")) == Lines{});
  CHECK(problems_of(with("/training/method", "freeze")) == Lines{"missing_field /training/trainable_layers"});
}

TEST_CASE("how FSDP runs is read, and refused where nothing is sharded by it") {
  Json request = sound();
  request["layout"].update({{"fsdp", 2}, {"reshard", false}, {"no_sync", true}});
  const Result<PlanRequest> read = read_request(request);
  REQUIRE(read.ok());
  CHECK(read.value().layout->fsdp == 2);
  CHECK(read.value().layout->reshard == false);
  CHECK(read.value().layout->no_sync == true);
  CHECK(problems_of(with("/layout/fsdp", 3)) == Lines{"out_of_range /layout/fsdp"});

  request["layout"]["zero"] = 1;
  CHECK(problems_of(request) ==
        Lines{"inconsistent /layout/fsdp", "inconsistent /layout/no_sync", "inconsistent /layout/reshard"});
  request = with("/training/framework", "deepspeed");
  request["layout"]["fsdp"] = 1;
  const Problem problem = problem_of(request);
  CHECK(problem.pointer == "/layout/fsdp");
  CHECK(argument(problem, "other") == "framework");
}

TEST_CASE("only what is divided can be offloaded") {
  const auto problems_with = [](const char* framework, std::int64_t zero, const char* what) {
    Json request = with("/training/framework", framework);
    request["layout"]["zero"] = zero;
    request["training"]["offload"] = {{what, true}};
    return problems_of(request);
  };
  CHECK(problems_with("transformers", 3, "parameters") == Lines{});
  CHECK(problems_with("transformers", 2, "parameters") == Lines{});
  CHECK(problems_with("transformers", 0, "parameters") == Lines{"inconsistent /training/offload/parameters"});
  CHECK(problems_with("deepspeed", 3, "parameters") == Lines{});
  CHECK(problems_with("deepspeed", 2, "parameters") == Lines{"inconsistent /training/offload/parameters"});
  CHECK(problems_with("deepspeed", 1, "optimizer") == Lines{});
  CHECK(problems_with("deepspeed", 0, "optimizer") == Lines{"inconsistent /training/offload/optimizer"});
  CHECK(problems_with("transformers", 3, "optimizer") == Lines{"not_supported /training/offload/optimizer"});
  CHECK(problems_with("transformers", 0, "activations") == Lines{});
  Json request = with("/training/offload", {{"activations", true}});
  request["training"]["recompute"] = "none";
  CHECK(problems_of(request) == Lines{"not_supported /training/offload/activations"});
}

TEST_CASE("DeepSpeed trains 16-bit weights beside an FP32 copy") {
  const Result<PlanRequest> read = read_request(with("/training/framework", "deepspeed"));
  REQUIRE(read.ok());
  PlanRequest full = read.value();
  full.training.method = Method::full;
  const TrainingChoice t = resolve_defaults(full).training;
  CHECK(t.base_weights == WeightFormat::bf16);
  CHECK(t.optimizer.master_weights);
  CHECK(t.optimizer.states == StateFormat::fp32);
  CHECK(!resolve_defaults(read_request(sound()).value()).training.optimizer.master_weights);
}

TEST_CASE("layout, hardware and batch agree") {
  const Problem ranks = problem_of(with("/layout/dp", 4));
  CHECK(ranks.code == ProblemCode::layout_mismatch);
  CHECK(ranks.pointer == "/layout");
  CHECK(argument(ranks, "product") == "4");
  CHECK(argument(ranks, "count") == "2");
  CHECK(problems_of(with("/training/global_batch", 6)) == Lines{"inconsistent /training/global_batch"});
  CHECK(problems_of(with("/training/global_batch", 8)) == Lines{});
  Json alone = with("/layout", {{"zero", 3}});
  alone["hardware"]["count"] = 1;
  CHECK(problems_of(alone) == Lines{});  // ZeRO on one GPU does nothing, and harms nothing
}

TEST_CASE("the largest layout does not overflow") {
  Json request = with("/layout", {{"dp", 131072}, {"tp", 131072}, {"pp", 131072}, {"cp", 131072}});
  request["training"]["global_batch"] = 16'777'216;
  const Lines problems = problems_of(request);
  CHECK(std::count(problems.begin(), problems.end(), "layout_mismatch /layout") == 1);
}

TEST_CASE("all problems at once") {
  const Json request = parsed(R"({
    "model": {"config": {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": "four",
                         "num_hidden_layers": 0, "vocab_size": 100}},
    "training": {"method": "qlora", "base_weights": "bf16", "precision": "fp8", "micro_batch": 0, "colour": "red",
                 "optimizer": {"name": "adam"}, "lora": {"rank": 2.5, "targets": ["q", "nose", 3]}},
    "hardware": {"count": 4},
    "layout": {"dp": 2, "zero": 9},
    "extra": 1})");
  CHECK(problems_of(request) == Lines{
                                    "method_mismatch /training/base_weights",
                                    "missing_field /hardware/gpu",
                                    "not_an_integer /training/lora/rank",
                                    "not_supported /training/precision",
                                    "out_of_range /layout/zero",
                                    "out_of_range /model/config/num_hidden_layers",
                                    "out_of_range /training/micro_batch",
                                    "unknown_field /extra",
                                    "unknown_field /training/colour",
                                    "unknown_value /training/lora/targets/1",
                                    "unknown_value /training/optimizer/name",
                                    "wrong_type /model/config/num_attention_heads",
                                    "wrong_type /training/lora/targets/2",
                                });
}

// ---- config.json

TEST_CASE("what is no config.json, or of an unknown dialect, says so") {
  const auto problem_with = [](const char* config) { return problem_of(with("/model", {{"config", parsed(config)}})); };
  CHECK(problem_with("{}").code == ProblemCode::not_a_config);
  CHECK(problem_with(R"({"name": "x", "version": "1.0"})").code == ProblemCode::not_a_config);
  CHECK(problem_with("[]").code == ProblemCode::wrong_type);
  CHECK(problem_with(R"({"hidden_size": 64})").pointer == "/model/config/model_type");
  CHECK(problem_with(R"({"model_type": 3})").code == ProblemCode::wrong_type);
  const Problem unknown = problem_with(R"({"model_type": "bert", "hidden_size": 768})");
  CHECK(unknown.code == ProblemCode::unknown_dialect);
  CHECK(argument(unknown, "value") == "bert");
}

TEST_CASE("sizes of a config.json are there, whole, and in range") {
  constexpr std::array kFields = {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
                                  "intermediate_size"};
  for (const std::string field : kFields) {
    CAPTURE(field);
    const std::string at = " /model/config/" + field;
    CHECK(problems_of(without_config(field)) == Lines{"missing_field" + at});
    CHECK(problems_of(with_config(field, nullptr)) == Lines{"missing_field" + at});
    CHECK(problems_of(with_config(field, 0)) == Lines{"out_of_range" + at});
    CHECK(problems_of(with_config(field, -1)) == Lines{"out_of_range" + at});
    CHECK(problems_of(with_config(field, 1e12)) == Lines{"out_of_range" + at});
    CHECK(problems_of(with_config(field, 1'000'000'000'000)) == Lines{"out_of_range" + at});
    CHECK(problems_of(with_config(field, 2.5)) == Lines{"not_an_integer" + at});
    CHECK(problems_of(with_config(field, "32")) == Lines{"wrong_type" + at});
    CHECK(problems_of(with_config(field, Json::array({32}))) == Lines{"wrong_type" + at});
  }
}

TEST_CASE("a dialect is asked for the fields by its own names") {
  const Json gpt2 = parsed(R"({"model_type": "gpt2", "n_embd": 64, "vocab_size": 100, "n_layer": 1000000000000})");
  CHECK(problems_of(with("/model", {{"config", gpt2}})) ==
        Lines{"missing_field /model/config/n_head", "out_of_range /model/config/n_layer"});
}

TEST_CASE("sizes of a config.json agree") {
  CHECK(problems_of(with_config("num_key_value_heads", 3)) == Lines{"inconsistent /model/config/num_key_value_heads"});
  CHECK(problems_of(with_config("num_key_value_heads", 8)) == Lines{"inconsistent /model/config/num_key_value_heads"});
  CHECK(problems_of(with_config("hidden_size", 66)) == Lines{"inconsistent /model/config/num_attention_heads"});
  Json config = parsed(kLlama);
  config["hidden_size"] = 66;
  config["head_dim"] = 16;
  CHECK(problems_of(with("/model", {{"config", config}})) == Lines{});
}

TEST_CASE("other fields of a config.json are nobody's business") {
  CHECK(problems_of(with_config("rope_theta", "what")) == Lines{});
  CHECK(problems_of(with_config("torch_dtype", Json::array())) == Lines{});
  CHECK(problems_of(with_config("hidden_act", "mish")) == Lines{"unknown_value /model/config/hidden_act"});
  CHECK(problems_of(with_config("attention_bias", "no")) == Lines{"wrong_type /model/config/attention_bias"});
}

TEST_CASE("patterns of layers are checked") {
  Json config = parsed(kLlama);
  config["model_type"] = "olmo3";
  const auto problems_with = [&](const Json& layers) {
    config["layer_types"] = layers;
    return problems_of(with("/model", {{"config", config}}));
  };
  CHECK(problems_with({"sliding_attention", "full_attention"}) == Lines{});
  CHECK(problems_with({"full_attention"}) == Lines{"inconsistent /model/config/layer_types"});
  CHECK(problems_with({"full_attention", "mamba"}) == Lines{"unknown_value /model/config/layer_types/1"});
  CHECK(problems_with({"full_attention", 5}) == Lines{"wrong_type /model/config/layer_types/1"});
  CHECK(problems_with("full_attention") == Lines{"wrong_type /model/config/layer_types"});
}

TEST_CASE("a config of text and vision is read at its own pointers") {
  Json config = {{"model_type", "gemma3"}, {"text_config", parsed(kLlama)}, {"vision_config", Json::object()}};
  config["text_config"]["model_type"] = "gemma3_text";
  config["text_config"]["num_hidden_layers"] = 0;
  CHECK(problems_of(with("/model", {{"config", config}})) ==
        Lines{"missing_field /model/config/vision_config/hidden_size",
              "missing_field /model/config/vision_config/intermediate_size",
              "missing_field /model/config/vision_config/num_hidden_layers",
              "out_of_range /model/config/text_config/num_hidden_layers"});
  config["text_config"]["model_type"] = "bert";
  config.erase("vision_config");
  CHECK(problems_of(with("/model", {{"config", config}})) ==
        Lines{"missing_field /model/config/vision_config", "unknown_dialect /model/config/text_config/model_type"});
  config.erase("text_config");
  CHECK(problems_of(with("/model", {{"config", config}})) ==
        Lines{"missing_field /model/config/text_config", "missing_field /model/config/vision_config"});
}

TEST_CASE("the largest sizes give a problem and no number") {
  const Json config = parsed(R"({"model_type": "mixtral", "hidden_size": 1048576, "intermediate_size": 1048576,
      "num_hidden_layers": 10000, "num_attention_heads": 65536, "num_key_value_heads": 65536, "vocab_size": 16777216,
      "head_dim": 1048576, "num_local_experts": 65536, "num_experts_per_tok": 65536})");
  CHECK(problems_of(with("/model", {{"config", config}})) == Lines{"too_large /model/config"});
}

// ---- defaults

TEST_CASE("base weights and states follow from the method and the precision") {
  struct Row {
    Method method;
    FrameworkId framework;
    Precision precision;
    WeightFormat weights;
    StateFormat states;
  };
  using enum FrameworkId;
  const Row rows[] = {
      {Method::full, transformers, Precision::fp32, WeightFormat::fp32, StateFormat::fp32},
      {Method::full, transformers, Precision::bf16_amp, WeightFormat::fp32, StateFormat::fp32},
      {Method::full, transformers, Precision::fp16_amp, WeightFormat::fp32, StateFormat::fp32},
      {Method::full, transformers, Precision::bf16, WeightFormat::bf16, StateFormat::bf16},
      {Method::lora, transformers, Precision::bf16_amp, WeightFormat::bf16, StateFormat::fp32},
      {Method::lora, transformers, Precision::fp16_amp, WeightFormat::fp16, StateFormat::fp32},
      {Method::dora, transformers, Precision::fp32, WeightFormat::fp32, StateFormat::fp32},
      {Method::lora, transformers, Precision::bf16, WeightFormat::bf16, StateFormat::fp32},
      {Method::lora, torchtune, Precision::bf16, WeightFormat::bf16, StateFormat::bf16},
      {Method::qlora, transformers, Precision::bf16_amp, WeightFormat::nf4, StateFormat::fp32},
  };
  for (const Row& row : rows) {
    PlanRequest request;
    request.training.method = row.method;
    request.training.framework = row.framework;
    request.training.precision = row.precision;
    const TrainingChoice t = resolve_defaults(request).training;
    CAPTURE(name_of(row.method));
    CAPTURE(name_of(row.precision));
    CHECK(t.base_weights == row.weights);
    CHECK(t.optimizer.states == row.states);
    CHECK(t.kbit_upcast == false);
    CHECK(!t.optimizer.foreach);
  }
}

TEST_CASE("loss, kernels and dropout follow from the framework") {
  struct Row {
    FrameworkId framework;
    CrossEntropy loss;
    Kernels kernels;
    double dropout;
    WeightFormat four_bit;
  };
  const Row rows[] = {
      {FrameworkId::transformers, CrossEntropy::full_logits, Kernels::eager, 0.05, WeightFormat::nf4},
      {FrameworkId::torchtune, CrossEntropy::full_logits, Kernels::eager, 0.0, WeightFormat::nf4},
      {FrameworkId::liger, CrossEntropy::fused, Kernels::fused, 0.05, WeightFormat::nf4},
      {FrameworkId::unsloth, CrossEntropy::fused, Kernels::fused, 0.0, WeightFormat::nf4_dq},
  };
  for (const Row& row : rows) {
    PlanRequest request;
    request.training.method = Method::qlora;
    request.training.framework = row.framework;
    const TrainingChoice t = resolve_defaults(request).training;
    CAPTURE(name_of(row.framework));
    CHECK(t.cross_entropy == row.loss);
    CHECK(t.kernels == row.kernels);
    CHECK(t.lora.dropout == row.dropout);
    CHECK(t.base_weights == row.four_bit);
    // torchtune makes adapters in the type of the weights, and PyTorch their states in theirs.
    const bool lowered = row.framework == FrameworkId::torchtune;
    CHECK(t.optimizer.states == (lowered ? StateFormat::bf16 : StateFormat::fp32));
  }
}

TEST_CASE("TRL prepares a quantized base up to its 0.26, and lowers adapters since") {
  const auto resolved = [](Objective objective, std::optional<Trainer> trainer, std::optional<Version> version) {
    PlanRequest request;
    request.training.method = Method::qlora;
    request.training.objective = objective;
    request.training.trainer = trainer;
    request.training.framework_version = version;
    return resolve_defaults(request).training;
  };
  const TrainingChoice today = resolved(Objective::sft, Trainer::trl, {});
  CHECK(today.kbit_upcast == false);
  CHECK(today.optimizer.states == StateFormat::bf16);
  const TrainingChoice before = resolved(Objective::sft, Trainer::trl, Version{4, 57});
  CHECK(before.kbit_upcast == true);
  CHECK(before.optimizer.states == StateFormat::fp32);
  const TrainingChoice script = resolved(Objective::sft, {}, Version{4, 57});
  CHECK(script.trainer == Trainer::transformers);
  CHECK(script.kbit_upcast == false);
  CHECK(resolved(Objective::dpo, {}, {}).trainer == Trainer::trl);
}

TEST_CASE("what was chosen stays") {
  PlanRequest request;
  request.training.method = Method::full;
  request.training.base_weights = WeightFormat::bf16;
  request.training.optimizer.states = StateFormat::int8;
  request.training.kbit_upcast = true;
  const TrainingChoice t = resolve_defaults(request).training;
  CHECK(t.base_weights == WeightFormat::bf16);
  CHECK(t.optimizer.states == StateFormat::int8);
  CHECK(t.kbit_upcast == true);

  request.training.optimizer.name = OptimizerName::adafactor;
  request.training.optimizer.states = StateFormat::factored;
  CHECK(check_request(request).empty());
  CHECK(resolve_defaults(request).training.optimizer.states == StateFormat::fp32);
}

}  // namespace
TEST_CASE("the trainer is one of two") {
  CHECK(problems_of(with("/training/trainer", "trl")) == Lines{});
  CHECK(problems_of(with("/training/trainer", "axolotl")) == Lines{"unknown_value /training/trainer"});
}

TEST_CASE("the version of a framework is two numbers; the rest of it says nothing") {
  const auto version_of = [](const Json& text) {
    PlanRequest request;
    const Problems problems = read_request(with("/training/framework_version", text), request);
    CHECK(problems.empty());
    return request.training.framework_version;
  };
  CHECK(version_of("4.48") == Version{4, 48});
  CHECK(version_of("4.48.1") == Version{4, 48});
  CHECK(version_of("5") == Version{5, 0});
  for (const char* text : {"", ".", "4.", "v4.48", "4,48", "99999.1", "4..1"}) {
    CAPTURE(text);
    CHECK(problems_of(with("/training/framework_version", text)) == Lines{"unknown_value /training/framework_version"});
  }
  CHECK(problems_of(with("/training/framework_version", 4.48)) == Lines{"wrong_type /training/framework_version"});
}

}  // namespace vramplan
