// Optimizers that keep Adam's moments of a projection of the gradient: GaLore (Zhao et al. 2024, arXiv 2403.03507;
// galore_torch 1.0) and APOLLO (Zhu et al. 2024, arXiv 2412.05270; apollo_torch 1.0). Both are AdamW in a Python loop
// for what they do not project.
#include <algorithm>

#include "optimizers.hpp"

namespace vramplan::optimizers {
namespace {

constexpr std::int64_t kFp32 = 4;

// A matrix of rows x columns is projected on its shorter side: [longer, rank].
struct Projection {
  std::int64_t shorter, longer, rank;
  [[nodiscard]] std::int64_t projected() const { return saturating_multiply(longer, rank); }
  [[nodiscard]] std::int64_t projector() const { return saturating_multiply(shorter, rank); }
  [[nodiscard]] std::int64_t square() const { return saturating_multiply(shorter, shorter); }
};

Projection projection_of(const TrainedTensor& t, const Setting& s) {
  const std::int64_t shorter = std::min(t.rows, t.columns);
  return {shorter, std::max(t.rows, t.columns), std::min(s.choice.rank.value_or(kDefaultOptimizerRank), shorter)};
}

bool is_8bit(const Setting& s) { return s.states() == StateFormat::int8; }

Parts moments(const TrainedTensor& t, std::int64_t elements, const Setting& s) {
  if (is_8bit(s)) return moments_in_8bit(2, elements, s.choice);
  return {{2 * s.state_bytes(t), "P_moments", elements}};
}

// The denominator while that and the quotient of the last tensor are still there; then both.
Update whole_update(const TrainedTensor& t, const Setting& s) {
  const std::int64_t bytes = s.weight_bytes(t);
  const std::int64_t n = t.elements();
  return {false, {{bytes, "P_largest", n}}, {{2 * bytes, "P_largest", n}}, {{2 * bytes, "P_before", n}}};
}

}  // namespace

// The linear layers of the blocks: `attn` and `mlp`, the targets of GaLore's own scripts and of the Trainer's guide.
bool is_projected(const TrainedTensor& t) { return t.in_block && t.is_matrix() && t.kind == ParameterKind::linear; }

// The projector is a slice of the singular vectors: of 16-bit gradients it is copied when it is made 16-bit again, of
// FP32 gradients it keeps all singular vectors of the shorter side alive (galore_projector.py, get_orthogonal_matrix).
Parts galore_states(const TrainedTensor& t, const Setting& s) {
  if (!is_projected(t)) return moments(t, t.elements(), s);
  const Projection p = projection_of(t, s);
  Parts parts = moments(t, p.projected(), s);
  if (s.weight_bytes(t) == kFp32) {
    parts.add({kFp32, "K_squared", p.square()});
  } else {
    parts.add({s.weight_bytes(t), "P_projector", p.projector()});
  }
  return parts;
}

// Early: a new projector. The singular value decomposition takes FP32, copies its input and makes both sides. Late:
// the way back, before and after scaling, beside gradient, denominator and quotient of the low rank. The 8-bit variant
// keeps a copy of the weight and its projected stand-in meanwhile.
Update galore_update(const TrainedTensor& t, const Setting& s) {
  if (!is_projected(t)) return is_8bit(s) ? Update{} : whole_update(t, s);
  const Projection p = projection_of(t, s);
  const std::int64_t bytes = s.weight_bytes(t);
  const std::int64_t copies = bytes == kFp32 ? 2 : 3;
  const Parts early{
      {copies * kFp32, "P_largest", t.elements()}, {kFp32, "K_squared", p.square()}, {kFp32, "K", p.shorter}};
  const Parts late{{(is_8bit(s) ? 3 : 2) * bytes, "P_largest", t.elements()},
                   {(is_8bit(s) ? 2 : 3) * bytes, "P_projected", p.projected()}};
  if (is_8bit(s)) return {false, early, late, {}};
  return {false, early, late, {{bytes, "P_before", t.elements()}, {bytes, "P_projected", p.projected()}}};
}

Parts apollo_states(const TrainedTensor& t, const Setting& s) {
  if (!is_projected(t)) return moments(t, t.elements(), s);
  const Projection p = projection_of(t, s);
  Parts parts = moments(t, p.projected(), s);
  parts.add({s.weight_bytes(t), "P_projector", p.projector()});
  parts.add({s.weight_bytes(t), "tensors", 1});  // the norm of the last update
  return parts;
}

// The scaled gradient, first beside that of the last tensor, then beside itself with its growth limited.
Update apollo_update(const TrainedTensor& t, const Setting& s) {
  if (!is_projected(t)) return whole_update(t, s);
  const Projection p = projection_of(t, s);
  const std::int64_t bytes = s.weight_bytes(t);
  const Part low{3 * bytes, "P_projected", p.projected()};
  return {false,
          {{bytes, "P_largest", t.elements()}, low},
          {{2 * bytes, "P_largest", t.elements()}, low},
          {{bytes, "P_before", t.elements()}}};
}

}  // namespace vramplan::optimizers
