// Every tensor of a model: shape, kind, how parallelism may cut it, whether a quantizer or an adapter sees it.
// parameters = shape x copies x layers; the total over all groups is the published parameter count.
#pragma once

#include <cstdint>
#include <vector>

#include "vramplan/model.hpp"
#include "vramplan/units.hpp"

namespace vramplan {

enum class ParameterKind : std::uint8_t {
  linear,
  embedding,
  head,
  norm,
  bias,
  router,
  expert,
  conv,
  ssm,
  scalar,
  tower
};

// How a rank's share is cut: columns (outputs), rows (inputs), vocabulary, whole experts, or not at all.
enum class Cut : std::uint8_t { replicate, column, row, vocabulary, expert };

// Names of modules as adapters target them (`training.lora.targets`); fused modules have a name of their own.
enum class Module : std::uint8_t {
  embedding,
  position_embedding,
  head,
  norm,
  q,
  k,
  v,
  o,
  qkv,  // attention (qkv: one fused projection)
  q_a,
  q_b,
  kv_a,
  kv_b,
  o_a,  // latent and compressed attention
  gate,
  up,
  down,
  gate_up,  // MLP (gate_up: fused); experts use the same names with kind expert
  shared_gate,
  shared_up,
  shared_down,
  shared_expert_gate,
  router,
  latent_in,
  latent_out,
  in_proj,
  out_proj,
  x_proj,
  dt_proj,
  conv,  // state space, convolution, linear attention
  output_gate,
  indexer,
  compressor,
  other,
  tower,
};

inline constexpr std::int32_t kOutsideLayers = -1;

// One weight (or bias, or norm vector) of one layer group. A matrix maps `columns` inputs to `rows` outputs.
struct ParameterGroup {
  Module module = Module::other;
  ParameterKind kind = ParameterKind::linear;
  Cut cut = Cut::replicate;
  std::int32_t layer_group = kOutsideLayers;  // index into ModelArchitecture::groups
  Dim rows = 0;
  Dim columns = 1;
  Dim copies = 1;         // in one layer: experts, several norms, two latent attentions
  Dim active_copies = 1;  // that one token meets: experts per token
  Dim layers = 1;
  // A torch.nn.Linear inside the blocks, as bitsandbytes finds them: plain routers too, but not those that hold a bare
  // parameter (gpt-oss, DeepSeek-V3), nor lm_head. Experts count as linear, also where they are one fused tensor.
  bool quantizable = false;
  bool trainable = true;  // false for buffers that gradients do not reach (router correction bias)
};

[[nodiscard]] constexpr Params parameters_per_copy(const ParameterGroup& g) { return Params(g.rows) * g.columns; }
[[nodiscard]] constexpr Params parameters_of(const ParameterGroup& g) {
  return parameters_per_copy(g) * g.copies * g.layers;
}
[[nodiscard]] constexpr Params active_parameters_of(const ParameterGroup& g) {
  return parameters_per_copy(g) * g.active_copies * g.layers;
}

// All tensors of the model, embedding first, then the layer groups in order, then final norm, head, extras, towers.
[[nodiscard]] std::vector<ParameterGroup> parameter_groups(const ModelArchitecture& model);

// What a part of a model (layout.hpp) does not say of the whole: ranks of tensor parallelism that have one each, and
// whether embedding and head are one table, be it on two stages.
struct WholeModel {
  std::int64_t tensor_ranks = 1;
  bool tied = false;
};
// Those of multi-token prediction (request.hpp, mtp_layers), which no published count includes.
void add_prediction_parameters(const ModelArchitecture& part, Dim modules, const WholeModel& whole,
                               std::vector<ParameterGroup>& groups);

[[nodiscard]] Params total_parameters(const std::vector<ParameterGroup>& groups);
[[nodiscard]] Params active_parameters(const std::vector<ParameterGroup>& groups);

}  // namespace vramplan
