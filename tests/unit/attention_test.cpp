// Keys and values in front of kernels that do not take grouped heads.
#include <doctest/doctest.h>

#include "support/steps.hpp"
#include "vramplan/step.hpp"

using namespace vramplan;

namespace {

constexpr std::int64_t kTokens = 2 * 1024;
// k and v of 32 heads instead of 8, each of 128 numbers in 16 bits.
constexpr std::int64_t kCopies = 2 * (32 - 8) * 128 * 2 * kTokens;

Bytes kept_by_a_layer(std::string_view id, AttentionKernel kernel, std::optional<Version> version) {
  PlanRequest request;
  TrainingChoice& t = request.training;
  t.method = Method::full;
  t.precision = Precision::bf16;
  t.recompute = Recompute::none;
  t.attention = kernel;
  t.micro_batch = 2;
  t.sequence_length = 1024;
  t.framework_version = version;
  const Step step(prepare(support::model_of(id), resolve_defaults(request).training, LayoutChoice{}, Bytes(0)));
  return step.kept_per_layer(step.stacks().front());
}

Bytes copies(std::string_view id, AttentionKernel kernel, Version version) {
  return kept_by_a_layer(id, kernel, version) - kept_by_a_layer(id, kernel, std::nullopt);
}

}  // namespace

TEST_CASE("SDPA got a copy for every query head until Transformers 4.54") {
  CHECK(copies("meta-llama/Llama-3.1-8B", AttentionKernel::sdpa, {4, 53}) == Bytes(kCopies));
  CHECK(copies("meta-llama/Llama-3.1-8B", AttentionKernel::sdpa, {4, 54}) == Bytes(0));
  CHECK(copies("meta-llama/Llama-2-7b-hf", AttentionKernel::sdpa, {4, 53}) == Bytes(0));  // as many KV heads as heads
}

TEST_CASE("FlashAttention-2 got one in attention with a window until Transformers 4.48") {
  CHECK(copies("mistralai/Mistral-7B-v0.1", AttentionKernel::flash, {4, 47}) == Bytes(kCopies));
  CHECK(copies("mistralai/Mistral-7B-v0.1", AttentionKernel::flash, {4, 48}) == Bytes(0));
  CHECK(copies("meta-llama/Llama-3.1-8B", AttentionKernel::flash, {4, 47}) == Bytes(0));
}
