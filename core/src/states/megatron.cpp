// What Megatron-Core and TransformerEngine keep from step to step beside weights and optimizer states.
#include <algorithm>
#include <utility>
#include <vector>

#include "vramplan/states.hpp"

namespace vramplan {
namespace {

using Shape = std::pair<Dim, Dim>;

// One of each.
Params distinct(std::vector<Shape> shapes) {
  std::sort(shapes.begin(), shapes.end());
  shapes.erase(std::unique(shapes.begin(), shapes.end()), shapes.end());
  Params sum;
  for (const auto& [rows, columns] : shapes) sum += Params(rows) * columns;
  return sum;
}

// TransformerEngine's own workspaces: one for matrices, and one for each of four streams on which it multiplies groups
// (pytorch/cpp_extensions/gemm.py, get_cublas_workspace).
using namespace literals;
constexpr std::int64_t kGroupedStreams = 4;
constexpr Bytes kSmallWorkspace = 4_MiB;  // below compute capability 9.0
constexpr Bytes kLargeWorkspace = 32_MiB;

bool has_experts(const ModelArchitecture& part) {
  return std::any_of(part.groups.begin(), part.groups.end(), [](const LayerGroup& g) {
    return std::any_of(g.mlps.begin(), g.mlps.end(), [](const Mlp& m) { return std::holds_alternative<MoeMlp>(m); });
  });
}

// Angles of rotary positions, one in FP32 for each dimension that rotates (rotary_pos_embedding.py); all layers share
// them.
Dim rotated_width(const ModelArchitecture& part) {
  Dim width = 0;
  for (const LayerGroup& g : part.groups) {
    for (const Mixer& mixer : g.mixers) {
      if (const auto* a = std::get_if<Attention>(&mixer)) width = std::max(width, a->rotary ? a->head_dim : 0);
      if (const auto* a = std::get_if<LatentAttention>(&mixer)) width = std::max(width, a->qk_rope_head_dim);
    }
  }
  return part.position == PositionType::rope ? width : 0;
}

}  // namespace

bool is_matrix(const ParameterGroup& g) {
  const bool kind = g.kind == ParameterKind::linear || g.kind == ParameterKind::expert || g.kind == ParameterKind::head;
  return kind && g.columns > 1 && g.rows > 1;
}

Module joined(Module m) {
  switch (m) {
    case Module::q:
    case Module::k:
    case Module::v: return Module::qkv;
    case Module::gate:
    case Module::up: return Module::gate_up;
    case Module::shared_up: return Module::shared_gate;
    default: return m;
  }
}

std::vector<ParameterGroup> joined_matrices(const std::vector<ParameterGroup>& groups) {
  std::vector<ParameterGroup> matrices;
  for (const ParameterGroup& g : groups) {
    if (!is_matrix(g)) continue;
    const Module module = joined(g.module);
    const auto same = std::find_if(matrices.begin(), matrices.end(), [&](const ParameterGroup& m) {
      return m.module == module && m.kind == g.kind && m.layer_group == g.layer_group && m.columns == g.columns;
    });
    if (same != matrices.end()) {
      same->rows += g.rows;
    } else {
      matrices.push_back(g);
      matrices.back().module = module;
    }
  }
  return matrices;
}

Params distinct_matrices(const std::vector<ParameterGroup>& groups) {
  std::vector<Shape> shapes;
  for (const ParameterGroup& m : joined_matrices(groups)) shapes.emplace_back(m.rows, m.columns);
  return distinct(std::move(shapes));
}

Params distinct_adapters(const Inventory& inventory) {
  std::vector<Shape> shapes;
  for (const TrainedTensor& t : inventory.tensors) {
    if (t.adapter) shapes.emplace_back(t.rows, t.columns);
  }
  return distinct(std::move(shapes));
}

void add_megatron_buffers(Contributions& out, const MegatronSetting& s) {
  constexpr Component kBuffers = Component::buffers;
  // DistributedDataParallel adds gradients up in one buffer made at the start, in FP32 unless told otherwise
  // (distributed/param_and_grad_buffer.py; accumulate_allreduce_grads_in_fp32).
  out.add({Component::gradients, bytes_per_element(s.gradients), {{"P_trained", s.inventory.trained().value}}});
  // Backward hands autograd a tensor in the place of each weight's gradient: one a shape, kept for good
  // (module/base.py, get_dummy_wgrad). Megatron-Core's own matrices, of which adapters are made, take it from there
  // (tensor_parallel/layers.py).
  const bool base = s.inventory.trained_base.value > 0;
  const Params shapes = base ? s.inventory.distinct_matrices : distinct_adapters(s.inventory);
  out.add({kBuffers, bytes_per_element(s.types.weights), {{"W_shapes", shapes.value}}});
  const Bytes workspace = s.cublas_workspace < kLargeWorkspace ? kSmallWorkspace : kLargeWorkspace;
  out.add({Component::cublas_workspace, workspace.value, {{"n_te", 1 + (has_experts(s.part) ? kGroupedStreams : 0)}}});
  out.add({kBuffers, bytes_per_element(ElementType::fp32), {{"s", s.tokens}, {"d_rope", rotated_width(s.part)}}});
  // FP8 copies of the weights, along rows and columns, made once a step (module/base.py, get_weight_workspace).
  if (s.fp8_copies)
    out.add({Component::weights, 2 * bytes_per_element(ElementType::fp8), {{"P_matrix", s.inventory.matrices.value}}});
  // The head's input of all tokens, gathered where ranks share them, in a buffer that stays
  // (tensor_parallel/layers.py, get_global_memory_buffer).
  if (s.gathers_for_head) {
    out.add({Component::communication_buffers,
             bytes_per_element(s.types.compute),
             {{"b", s.micro_batch}, {"s", s.tokens}, {"h", s.part.hidden_size}}});
  }
}

}  // namespace vramplan
