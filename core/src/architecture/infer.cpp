// A parameter count without a name: the nearest of a few well-known Llama-shaped decoders, then as many layers and as
// wide an MLP as bring its total within half a percent, then as many vocabulary rows as bring it nearest. A count
// within half a percent of a known shape keeps that shape as it is.
#include <algorithm>
#include <array>

#include "vramplan/architecture.hpp"
#include "vramplan/parameters.hpp"

namespace vramplan {
namespace {

struct TypicalShape {
  std::int64_t up_to = 0;  // parameters; the geometric mean with the next shape, roughly
  Dim hidden_size = 0;
  Dim layers = 0;
  Dim heads = 0;
  Dim kv_heads = 0;
  Dim head_dim = 0;
  Dim intermediate_size = 0;
  Dim vocab_size = 0;
  bool tied = false;
  Dim max_position_embeddings = 0;
};

constexpr std::int64_t kMillion = 1'000'000;
constexpr std::int64_t kBillion = 1'000'000'000;

// Below 20 million parameters a usual vocabulary would be more than the whole model, so it shrinks too.
constexpr std::array<TypicalShape, 18> kShapes = {{
    {2 * kMillion, 128, 4, 4, 4, 32, 352, 2'048, true, 2'048},
    {6 * kMillion, 192, 6, 6, 6, 32, 512, 4'096, true, 2'048},
    {20 * kMillion, 256, 8, 8, 8, 32, 704, 16'384, true, 2'048},
    {45 * kMillion, 384, 8, 6, 6, 64, 1'024, 32'000, true, 2'048},
    {95 * kMillion, 512, 16, 8, 8, 64, 1'408, 32'000, true, 2'048},
    {220 * kMillion, 576, 30, 9, 3, 64, 1'536, 49'152, true, 2'048},           // SmolLM 135M
    {650 * kMillion, 960, 32, 15, 5, 64, 2'560, 49'152, true, 2'048},          // SmolLM 360M
    {1'500 * kMillion, 2'048, 22, 32, 4, 64, 5'632, 32'000, false, 2'048},     // TinyLlama 1.1B
    {2'400 * kMillion, 2'048, 24, 32, 32, 64, 8'192, 49'152, true, 2'048},     // SmolLM 1.7B
    {4'600 * kMillion, 3'072, 28, 24, 8, 128, 8'192, 128'256, true, 131'072},  // Llama 3.2 3B
    {7'500 * kMillion, 4'096, 32, 32, 32, 128, 11'008, 32'000, false, 4'096},  // Llama 2 7B
    {10 * kBillion, 4'096, 32, 32, 8, 128, 14'336, 128'256, false, 131'072},   // Llama 3.1 8B
    {17 * kBillion, 5'120, 40, 40, 40, 128, 13'824, 32'000, false, 4'096},     // Llama 2 13B
    {28 * kBillion, 5'120, 40, 32, 8, 128, 32'768, 131'072, false, 32'768},    // Mistral Small 24B
    {48 * kBillion, 5'120, 64, 40, 8, 128, 27'648, 152'064, false, 32'768},    // Qwen2.5 32B, without its biases
    {93 * kBillion, 8'192, 80, 64, 8, 128, 28'672, 128'256, false, 131'072},   // Llama 3.1 70B
    {220 * kBillion, 12'288, 88, 96, 8, 128, 28'672, 32'768, false, 131'072},  // Mistral Large
    {limits::kParameters.maximum, 16'384, 126, 128, 8, 128, 53'248, 128'256, false, 131'072},  // Llama 3.1 405B
}};

ModelArchitecture decoder(const TypicalShape& shape) {
  Attention attention;
  attention.heads = shape.heads;
  attention.kv_heads = shape.kv_heads;
  attention.head_dim = shape.head_dim;
  attention.v_head_dim = shape.head_dim;
  DenseMlp mlp;
  mlp.intermediate_size = shape.intermediate_size;
  LayerGroup layers;
  layers.count = shape.layers;
  layers.mixers.emplace_back(attention);
  layers.mlps.emplace_back(mlp);
  ModelArchitecture m;
  m.hidden_size = shape.hidden_size;
  m.vocab_size = shape.vocab_size;
  m.max_position_embeddings = shape.max_position_embeddings;
  m.tie_word_embeddings = shape.tied;
  m.groups.push_back(layers);
  return m;
}

std::int64_t total_of(const TypicalShape& shape) { return total_parameters(parameter_groups(decoder(shape))).value; }

bool near(std::int64_t total, std::int64_t target) {
  const std::int64_t difference = total > target ? total - target : target - total;
  return saturating_multiply(difference, 200) <= target;
}

std::int64_t nearest_quotient(std::int64_t a, std::int64_t b) { return (a + b / 2) / b; }

// A frontier model grows in width and depth together. Doubling the width and all that goes with it makes eight times as
// much when the depth doubles too.
TypicalShape doubled(TypicalShape shape) {
  shape.hidden_size *= 2;
  shape.layers *= 2;
  shape.heads *= 2;
  shape.kv_heads *= 2;
  shape.intermediate_size *= 2;
  return shape;
}

TypicalShape nearest_shape(std::int64_t target) {
  TypicalShape shape = *std::find_if(kShapes.begin(), kShapes.end() - 1,
                                     [=](const TypicalShape& candidate) { return target <= candidate.up_to; });
  while (target / 3 > total_of(shape)) shape = doubled(shape);
  return shape;
}

// Layers only where the width alone would look odd: more than a sixth away.
void fit_layers(TypicalShape& shape, std::int64_t target) {
  const std::int64_t total = total_of(shape);
  const std::int64_t difference = total > target ? total - target : target - total;
  if (difference <= target / 6) return;
  TypicalShape outside = shape;
  outside.layers = 0;
  const std::int64_t outside_total = total_of(outside);
  const std::int64_t layer = (total - outside_total) / shape.layers;
  shape.layers = std::max<std::int64_t>(1, nearest_quotient(std::max<std::int64_t>(0, target - outside_total), layer));
}

// Multiples of 8 where they come within half a percent, else any width.
void fit_intermediate_size(TypicalShape& shape, std::int64_t target) {
  TypicalShape without = shape;
  without.intermediate_size = 0;
  const std::int64_t left = std::max<std::int64_t>(0, target - total_of(without));
  const std::int64_t unit = 3 * shape.hidden_size * shape.layers;
  for (const std::int64_t step : {8, 1}) {
    shape.intermediate_size = std::max<std::int64_t>(1, nearest_quotient(left, unit * step)) * step;
    if (near(total_of(shape), target)) return;
  }
}

// The last half percent: a vocabulary has any number of rows.
void fit_vocabulary(TypicalShape& shape, std::int64_t target) {
  const std::int64_t row = shape.hidden_size * (shape.tied ? 1 : 2);
  const std::int64_t missing = target - total_of(shape);
  const std::int64_t rows = missing >= 0 ? nearest_quotient(missing, row) : -nearest_quotient(-missing, row);
  shape.vocab_size = std::max<std::int64_t>(1, shape.vocab_size + rows);
}

}  // namespace

ModelArchitecture infer_architecture(Params parameters) {
  const std::int64_t target = std::clamp(parameters.value, limits::kParameters.minimum, limits::kParameters.maximum);
  TypicalShape shape = nearest_shape(target);
  if (!near(total_of(shape), target)) {
    fit_layers(shape, target);
    fit_intermediate_size(shape, target);
    fit_vocabulary(shape, target);
  }
  return decoder(shape);
}

}  // namespace vramplan
