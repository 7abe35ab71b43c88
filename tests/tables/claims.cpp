// What visitors have been told about memory, claim by claim: reproduced with the planner's own numbers, or corrected.
// C: "how much VRAM to train an LLM", L: "training on limited hardware". GB are 10^9 bytes. Claims about cards and
// systems (C10, C11, L8) are in hardware.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "support/door.hpp"
#include "vramplan/architecture.hpp"
#include "vramplan/enum_names.hpp"
#include "vramplan/states.hpp"

using namespace vramplan;
using door::allocated;
using door::component;
using door::component_at;
using door::Json;
using door::report;

namespace {

constexpr std::int64_t kGB = 1'000'000'000;

double gb(std::int64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(kGB); }

Json sized(std::int64_t parameters, const Json& training) {
  return {{"model", {{"parameters", parameters}}}, {"training", training}};
}
Json seven(const Json& training) { return sized(7 * kGB, training); }

Json changed(Json request, const std::string& pointer, const Json& value) {
  request[Json::json_pointer(pointer)] = value;
  return request;
}

std::int64_t parameters_of(const Json& r) { return r.at("model").at("parameters").get<std::int64_t>(); }

// Linear weights of the blocks, and all the others, of the model that is inferred from a count.
Inventory inventory_of(std::int64_t parameters) {
  const ModelArchitecture model = infer_architecture(Params(parameters));
  return take_inventory(model, TrainingChoice{}, parameter_groups(model));
}

std::int64_t device(const Json& r, const std::string& bound) {
  return r.at("memory").at("per_gpu").at("device").at(bound).get<std::int64_t>();
}

// Weights, complete gradients and optimizer states: what a parameter costs for as long as the run lasts.
double bytes_per_parameter(const Json& r) {
  const auto held = [&](const char* id) { return component_at(r, "optimizer_step", id); };
  const std::int64_t bytes = held("weights") + held("gradients") + held("optimizer_states");
  return static_cast<double>(bytes) / static_cast<double>(parameters_of(r));
}

const Json kFull32 = {
    {"method", "full"},        {"precision", "fp32"}, {"optimizer", {{"name", "adamw"}, {"states", "fp32"}}},
    {"sequence_length", 2048}, {"micro_batch", 1},    {"recompute", "full"}};

// Work buffers that a framework does not give back between steps: buckets of data parallelism; the small parameters
// that DeepSpeed's stage 3 keeps whole (stage3_param_persistence_threshold); Unsloth's one place to dequantize into and
// the two through which checkpoints return from the host.
std::set<std::string> standing_buffers(const std::string& framework) {
  std::set<std::string> ids = {"communication_buffers"};
  if (framework == "deepspeed") ids.insert("gathered_parameters");
  if (framework == "unsloth") ids.insert({"dequantized_weights", "checkpoints"});
  return ids;
}

}  // namespace

TEST_CASE("C1: 7B, full, FP32, AdamW: 28 + 28 + 56 GB, and 80 to 120 GB in all") {
  const Json r = report(seven(kFull32));
  const std::int64_t p = parameters_of(r);
  // A count without a name is met to the nearest vocabulary row of the typical model: half of 2 x 4096 parameters.
  CHECK(std::abs(p - 7 * kGB) <= 4096);
  CHECK(component_at(r, "optimizer_step", "weights") == 4 * p);
  CHECK(component_at(r, "optimizer_step", "gradients") == 4 * p);
  CHECK(component_at(r, "optimizer_step", "optimizer_states") == 8 * p);
  CHECK(allocated(r) >= 16 * p);
  CHECK(allocated(r) <= 120 * kGB);
  CHECK(device(r, "expected") >= 80 * kGB);
  CHECK(device(r, "expected") <= 120 * kGB);
  MESSAGE("allocated " << gb(allocated(r)) << " GB, device " << gb(device(r, "low")) << " to " << gb(device(r, "high"))
                       << " GB");
}

TEST_CASE("C2: 7B weights: 28 GB FP32, 14 GB 16-bit, 7 GB INT8, 3.5 GB and constants at 4 bits") {
  const auto frozen = [](const char* format) {
    return report(seven({{"method", "lora"}, {"base_weights", format}, {"lora", {{"rank", 1}, {"targets", {"q"}}}}}));
  };
  const Inventory n = inventory_of(7 * kGB);
  const std::int64_t p = n.total.value;
  const std::int64_t linear = n.block_linear.value;
  const std::int64_t other = 2 * n.leftovers.value;  // embeddings, norms and the head stay 16-bit under a quantizer
  CHECK(component(frozen("fp32"), "frozen_weights") == 4 * p);
  CHECK(component(frozen("bf16"), "frozen_weights") == 2 * p);
  CHECK(component(frozen("int8"), "frozen_weights") == linear + other);
  CHECK(component(frozen("int8"), "quantization_constants") == 4 * n.rows.value);
  for (const char* format : {"nf4", "nf4_dq", "fp4", "int4_gptq"}) {
    CHECK(component(frozen(format), "frozen_weights") == linear / 2 + other);
  }
  CHECK(component(frozen("nf4"), "quantization_constants") == linear / 16);
  const std::int64_t whole =
      component(frozen("nf4"), "frozen_weights") + component(frozen("nf4"), "quantization_constants");
  // The round figure takes all 7B as linear weights; those outside the blocks bring a real model above it.
  CHECK(whole > p / 2 + p / 16);
  CHECK(whole < 5 * kGB);
  MESSAGE("linear weights " << gb(linear) << "e9 of " << gb(p) << "e9: NF4 " << gb(linear / 2) << " + constants "
                            << gb(linear / 16) << " + the rest in 16 bits " << gb(other) << " = " << gb(whole)
                            << " GB");
}

TEST_CASE(
    "C3: 16 to 18 bytes a parameter under AMP; the article's minima are pure 16-bit runs with a smaller optimizer") {
  const auto trained = [](std::int64_t parameters, const char* precision, const Json& optimizer) {
    return report(sized(parameters, {{"method", "full"}, {"precision", precision}, {"optimizer", optimizer}}));
  };
  const Json amp = report(seven({{"method", "full"}, {"precision", "bf16_amp"}, {"recompute", "none"}}));
  CHECK(bytes_per_parameter(amp) == 16.0);
  // Autocast's 16-bit copies of the linear weights live from forward to backward, beside the gradients of the last
  // pass.
  const double copies = static_cast<double>(component_at(amp, "forward_head", "autocast_weights")) /
                        static_cast<double>(parameters_of(amp));
  CHECK(copies > 1.8);
  CHECK(copies <= 2.0);
  CHECK(bytes_per_parameter(trained(7 * kGB, "bf16", {{"name", "adamw"}})) == 8.0);
  CHECK(bytes_per_parameter(trained(7 * kGB, "bf16", {{"name", "sgd"}})) == 4.0);
  struct Told {
    std::int64_t billions, least_gb;
  };
  for (const Told told : {Told{7, 40}, {13, 80}, {30, 160}, {70, 320}}) {
    const auto gigabytes = [&](const char* precision, const Json& optimizer) {
      return gb(allocated(trained(told.billions * kGB, precision, optimizer)));
    };
    const double factored = gigabytes("bf16", {{"name", "adafactor"}});
    const double whole = gigabytes("bf16", {{"name", "adamw"}});
    const double mixed = gigabytes("bf16_amp", {{"name", "adamw"}});
    CHECK(factored < static_cast<double>(told.least_gb));
    CHECK(static_cast<double>(told.least_gb) < whole);
    CHECK(mixed > 2 * static_cast<double>(told.least_gb));
    MESSAGE(told.billions << "B: told " << told.least_gb << " GB; pure BF16 with Adafactor " << factored
                          << ", with 8-bit AdamW " << gigabytes("bf16", {{"name", "adamw"}, {"states", "int8"}})
                          << ", with AdamW " << whole << "; AMP with AdamW " << mixed << " GB");
  }
}

TEST_CASE("C4: LoRA on 7B: 10 to 24 GB by rank and precision") {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  std::int64_t most = 0;
  std::int64_t least_16bit = least;
  for (const char* base : {"nf4", "int8", "bf16"}) {
    for (const int rank : {8, 16, 32, 64, 128}) {
      for (const int length : {512, 1024, 2048}) {
        const Json r = report({{"model", "meta-llama/Llama-2-7b-hf"},
                               {"training",
                                {{"method", base == std::string("nf4") ? "qlora" : "lora"},
                                 {"base_weights", base},
                                 {"lora", {{"rank", rank}}},
                                 {"sequence_length", length}}}});
        least = std::min(least, device(r, "expected"));
        most = std::max(most, device(r, "expected"));
        if (base == std::string("bf16")) least_16bit = std::min(least_16bit, device(r, "expected"));
      }
    }
  }
  // The upper end holds. The lower end is that of 16-bit and 8-bit weights: with NF4, recompute and a small rank the
  // same model needs little more than half of 10 GB.
  CHECK(least > 5 * kGB);
  CHECK(least < 6 * kGB);
  CHECK(least_16bit > 14 * kGB);
  CHECK(most > 19 * kGB);
  CHECK(most < 24 * kGB);
  MESSAGE("told 10 to 24 GB; planned " << gb(least) << " to " << gb(most) << " GB on the card");
}

TEST_CASE("C5: QLoRA brings 70B to few cards") {
  const auto planned = [](const char* gpu, int count) {
    return report(
        {{"model", "meta-llama/Llama-3.3-70B-Instruct"},
         {"training",
          {{"method", "qlora"}, {"base_weights", "nf4_dq"}, {"sequence_length", 512}, {"cross_entropy", "chunked"}}},
         {"hardware", {{"gpu", gpu}, {"count", count}}}});
  };
  const auto verdict = [&](const char* gpu, int count) {
    return planned(gpu, count).at("fit").at("verdict").get<std::string>();
  };
  CHECK(verdict("h100-sxm-80gb", 1) == "comfortable");
  const std::string on_48gb = verdict("rtx-a6000", 1);
  CHECK((on_48gb == "tight" || on_48gb == "at_risk"));
  // Two cards of 24 GB hold the shards, but not the gathered head and embedding beside them: those who did it kept
  // parameters in host memory. Four do without.
  CHECK(verdict("rtx-3090", 2) == "does_not_fit");
  const std::string on_four = verdict("rtx-3090", 4);
  CHECK((on_four == "comfortable" || on_four == "tight"));
}

TEST_CASE("C6: full fine-tuning above 13B, and 70B with LoRA in BF16, take several cards of 80 GB") {
  const auto count = [](const Json& request, const std::string& gpu) {
    const Json systems = door::plan(request).at("suggestions").at("systems");
    for (const Json& system : systems) {
      if (system.at("gpu") == gpu) return system.at("count").get<int>();
    }
    return 0;
  };
  const Json full = {{"method", "full"}, {"precision", "bf16_amp"}};
  CHECK(count(sized(13 * kGB, full), "h100-sxm-80gb") > 1);
  CHECK(count(sized(30 * kGB, full), "h100-sxm-80gb") > count(sized(13 * kGB, full), "h100-sxm-80gb"));
  const Json lora = {{"model", "meta-llama/Llama-3.1-70B"},
                     {"training", {{"method", "lora"}, {"precision", "bf16_amp"}}}};
  for (const char* gpu : {"a100-sxm4-80gb", "h100-sxm-80gb", "h100-nvl-94gb", "h200-sxm-141gb"})
    CHECK(count(lora, gpu) > 1);
  CHECK(count(lora, "b300-sxm-288gb") == 1);
}

TEST_CASE("C9: gradient checkpointing keeps a stream a layer instead of every saved tensor") {
  const Json request = {{"model", "meta-llama/Llama-3.1-8B"},
                        {"training", {{"method", "full"}, {"precision", "bf16"}, {"recompute", "none"}}}};
  const auto saved = [](const Json& r) {
    std::int64_t bytes = component_at(r, "forward_head", "checkpoints");
    for (const char* kind : {"norm", "attention", "mlp", "residual"}) {
      bytes += component_at(r, "forward_head", std::string("activations_") + kind);
    }
    return bytes;
  };
  const Json kept = report(request);
  const Json recomputed = report(changed(request, "/training/recompute", "full"));
  // 2048 tokens of 4096 values in 16 bits, 32 layers.
  CHECK(component_at(recomputed, "forward_head", "checkpoints") == 32LL * 2048 * 4096 * 2);
  CHECK(component_at(kept, "forward_head", "checkpoints") == 0);
  CHECK(saved(kept) > 15 * saved(recomputed));
  CHECK(allocated(recomputed) < allocated(kept));
  const Json events = recomputed.at("timeline");
  const auto again =
      std::count_if(events.begin(), events.end(), [](const Json& e) { return e.at("event") == "recompute_block"; });
  CHECK(again == 32);  // more compute: each block's forward runs twice
  MESSAGE("saved between forward and backward: " << gb(saved(kept)) << " GB, with checkpointing "
                                                 << gb(saved(recomputed)) << " GB");
}

TEST_CASE("C15: what each precision stores, a parameter") {
  struct Stored {
    const char* precision;
    std::int64_t weights, gradients, states;
  };
  for (const Stored& stored :
       {Stored{"fp32", 4, 4, 8}, {"bf16_amp", 4, 4, 8}, {"fp16_amp", 4, 4, 8}, {"bf16", 2, 2, 4}}) {
    const Json r = report(seven({{"method", "full"}, {"precision", stored.precision}}));
    CAPTURE(stored.precision);
    CHECK(component_at(r, "optimizer_step", "weights") == stored.weights * parameters_of(r));
    CHECK(component_at(r, "optimizer_step", "gradients") == stored.gradients * parameters_of(r));
    CHECK(component_at(r, "optimizer_step", "optimizer_states") == stored.states * parameters_of(r));
    const bool mixed = std::string(stored.precision).ends_with("_amp");
    CHECK((component_at(r, "forward_head", "autocast_weights") > 0) == mixed);
  }
  const Json frozen = report(seven({{"method", "lora"}, {"base_weights", "int8"}}));
  CHECK(component(frozen, "weights") == 0);  // 8 and 4 bits hold the frozen base, never what is trained
  CHECK(component(frozen, "frozen_weights") > 0);
  const Json refused = door::answer(seven({{"method", "full"}, {"base_weights", "int8"}}));
  CHECK(refused.at("problems").at(0).at("code") == "method_mismatch");
}

TEST_CASE("L1: 7B in 16 bits: 14 GB of weights, 56 GB of AdamW states in FP32") {
  const Json r = report(
      seven({{"method", "full"}, {"precision", "bf16"}, {"optimizer", {{"name", "adamw"}, {"states", "fp32"}}}}));
  CHECK(component(r, "weights") == 2 * parameters_of(r));
  CHECK(component(r, "optimizer_states") == 8 * parameters_of(r));
  CHECK(std::abs(component(r, "optimizer_states") - 56 * kGB) <= 8 * 4096);
}

TEST_CASE("L2: double quantization saves 0.37 bit a parameter: 0.5 without, 0.127 with") {
  const auto bits = [](const char* format) {
    const Json r =
        report({{"model", "meta-llama/Llama-3.1-8B"}, {"training", {{"method", "qlora"}, {"base_weights", format}}}});
    constexpr std::int64_t kLinear = 32 * (2LL * 4096 * 4096 + 2LL * 1024 * 4096 + 3LL * 14336 * 4096);
    return 8.0 * static_cast<double>(component(r, "quantization_constants")) / static_cast<double>(kLinear);
  };
  CHECK(bits("nf4") == 0.5);
  CHECK(bits("nf4_dq") == 8.0 / 64 + 32.0 / (64 * 256));
  CHECK(bits("nf4_dq") == doctest::Approx(0.127).epsilon(0.001));
  CHECK(bits("nf4") - bits("nf4_dq") == doctest::Approx(0.373).epsilon(0.001));
}

TEST_CASE("L3: DoRA: magnitudes are counted, and so is what it keeps while running") {
  const auto planned = [](const char* method) {
    return report({{"model", "meta-llama/Llama-3.1-8B"}, {"training", {{"method", method}, {"recompute", "none"}}}});
  };
  const Json lora = planned("lora");
  const Json dora = planned("dora");
  constexpr std::int64_t kOutputs = 32 * (2LL * 4096 + 2LL * 1024 + 2LL * 14336 + 4096);
  CHECK(dora.at("model").at("trainable").get<std::int64_t>() - lora.at("model").at("trainable").get<std::int64_t>() ==
        kOutputs);
  CHECK(component(dora, "adapters") - component(lora, "adapters") == 4 * kOutputs);
  CHECK(component(dora, "optimizer_states") - component(lora, "optimizer_states") == 8 * kOutputs);
  CHECK(component_at(dora, "forward_head", "activations_adapter") >
        component_at(lora, "forward_head", "activations_adapter"));
  CHECK(allocated(dora) > allocated(lora));
}

TEST_CASE("L4: every component is static or temporary, in the breakdown and in the timeline") {
  for (const door::Golden& golden : door::golden_requests()) {
    if (door::has_problems(golden)) continue;
    CAPTURE(golden.name);
    const Json r = report(Json::parse(golden.text));
    std::map<std::string, std::string> group_of;
    std::int64_t sum = 0;
    for (const Json& row : r.at("memory").at("components")) {
      const std::string group = row.at("group");
      CHECK((group == "static" || group == "temporary"));
      group_of[row.at("id")] = group;
      sum += row.at("bytes").get<std::int64_t>();
    }
    CHECK(sum == allocated(r));
    for (const auto& [id, group] : group_of) {
      const bool named_static = is_static(*parse_enum<Component>(id));
      CHECK(named_static == (group == "static"));
    }
    for (const Json& event : r.at("timeline")) {
      for (const auto& [id, bytes] : event.at("by_component").items()) CHECK(parse_enum<Component>(id).has_value());
    }
    // Between steps nothing temporary is left but buffers that the framework keeps.
    const std::set<std::string> standing = standing_buffers(r.at("request").at("training").at("framework"));
    for (const auto& [id, bytes] : r.at("timeline").back().at("by_component").items()) {
      CAPTURE(id);
      CHECK((is_static(*parse_enum<Component>(id)) || standing.contains(id)));
    }
  }
}

TEST_CASE("C7: data parallelism alone keeps the whole model on each GPU; sharded, each keeps its part") {
  const auto weights = [](std::int64_t ranks, std::int64_t zero) {
    Json request = seven(kFull32);
    request["hardware"] = {{"gpu", "h200-sxm-141gb"}, {"count", ranks}};
    request["layout"] = {{"dp", ranks}, {"zero", zero}};
    return component_at(report(request), "optimizer_step", "weights");
  };
  const std::int64_t whole = weights(1, 0);
  CHECK(weights(8, 0) == whole);
  CHECK(weights(8, 1) == whole);
  CHECK(weights(8, 3) == (whole / 4 + 7) / 8 * 4);  // parameters rounded up, four bytes each
}

TEST_CASE("C8: activations grow with batch and length, up to a point from which the run never fits again") {
  const Json start = {
      {"model", "meta-llama/Llama-3.1-8B"},
      {"training", {{"method", "lora"}, {"sequence_length", 256}, {"micro_batch", 1}, {"recompute", "none"}}},
      {"hardware", {{"gpu", "rtx-4090"}, {"count", 1}}}};
  for (const char* pointer : {"/training/sequence_length", "/training/micro_batch"}) {
    CAPTURE(pointer);
    std::int64_t before = 0;
    bool fitted = false;
    bool failed = false;
    for (std::int64_t doubling = 0; doubling < 8; ++doubling) {
      const std::int64_t first = start.at(Json::json_pointer(pointer)).get<std::int64_t>();
      const Json r = report(changed(start, pointer, first << doubling));
      const std::int64_t now = device(r, "expected");
      CHECK(now > before);
      before = now;
      const bool fits = r.at("fit").at("verdict") != "does_not_fit";
      CHECK_FALSE((failed && fits));
      fitted = fitted || fits;
      failed = failed || !fits;
    }
    CHECK(fitted);
    CHECK(failed);
  }
}
