// Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon; torch/optim/_muon.py) for the matrices of the blocks,
// AdamW for embedding, head and vectors.
#include <algorithm>

#include "optimizers.hpp"

namespace vramplan::optimizers {
namespace {

constexpr std::int64_t kBf16 = 2;

bool is_orthogonalized(const TrainedTensor& t) {
  const bool hidden = t.in_block && (t.kind == ParameterKind::linear || t.kind == ParameterKind::expert);
  return t.is_matrix() && (hidden || t.adapter);
}

}  // namespace

Parts muon_states(const TrainedTensor& t, const Setting& s) {
  if (!is_orthogonalized(t)) return adamw_states(t, s);
  return {{s.state_bytes(t), "P_momentum", t.elements()}};
}

// The update in the type of the weight; for the Newton-Schulz iteration, in BF16, a matrix, the next one, and two Gram
// matrices of the shorter side.
Update muon_update(const TrainedTensor& t, const Setting& s) {
  if (!is_orthogonalized(t)) return adamw_update(t, s);
  const std::int64_t shorter = std::min(t.rows, t.columns);
  return {false,
          {},
          {{s.weight_bytes(t) + 2 * kBf16, "P_largest", t.elements()},
           {2 * kBf16, "K_squared", saturating_multiply(shorter, shorter)}},
          {}};
}

}  // namespace vramplan::optimizers
