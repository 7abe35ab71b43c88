// What Megatron-Core and TransformerEngine keep from step to step beside weights and optimizer states.
#include <algorithm>
#include <utility>
#include <vector>

#include "vramplan/states.hpp"

namespace vramplan {
namespace {

// Modules that are one matrix in Megatron-Core.
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

struct Matrix {
  Module module = Module::other;
  ParameterKind kind = ParameterKind::linear;
  std::int32_t layer_group = 0;
  Dim rows = 0, columns = 0;
};

std::vector<Matrix> joined_matrices(const std::vector<ParameterGroup>& groups) {
  std::vector<Matrix> matrices;
  for (const ParameterGroup& g : groups) {
    if (!is_matrix(g)) continue;
    const Module module = joined(g.module);
    const auto same = std::find_if(matrices.begin(), matrices.end(), [&](const Matrix& m) {
      return m.module == module && m.kind == g.kind && m.layer_group == g.layer_group && m.columns == g.columns;
    });
    if (same != matrices.end()) {
      same->rows += g.rows;
    } else {
      matrices.push_back({module, g.kind, g.layer_group, g.rows, g.columns});
    }
  }
  return matrices;
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

Params distinct_matrices(const std::vector<ParameterGroup>& groups) {
  std::vector<std::pair<Dim, Dim>> shapes;
  Params sum;
  for (const Matrix& m : joined_matrices(groups)) {
    const std::pair shape{m.rows, m.columns};
    if (std::find(shapes.begin(), shapes.end(), shape) != shapes.end()) continue;
    shapes.push_back(shape);
    sum += Params(m.rows) * m.columns;
  }
  return sum;
}

void add_megatron_buffers(Contributions& out, const MegatronSetting& s) {
  constexpr Component kBuffers = Component::buffers;
  // DistributedDataParallel adds gradients up in one buffer made at the start, in FP32 unless told otherwise
  // (distributed/param_and_grad_buffer.py; accumulate_allreduce_grads_in_fp32).
  out.add({Component::gradients, bytes_per_element(s.gradients), {{"P_trained", s.inventory.trained().value}}});
  // Backward hands autograd a tensor in the place of each weight's gradient: one a shape, kept for good
  // (module/base.py, get_dummy_wgrad).
  if (s.inventory.trained_base.value > 0) {
    out.add({kBuffers, bytes_per_element(s.types.weights), {{"W_shapes", s.inventory.distinct_matrices.value}}});
  }
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
