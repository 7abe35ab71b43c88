// Optimizers that keep a row and a column of the second moments of a matrix: Adafactor (Shazeer and Stern 2018, arXiv
// 1804.04235; transformers/optimization.py, torch/optim/_adafactor.py), CAME (Luo et al. 2023, arXiv 2307.02047;
// came_pytorch 0.1), AdaLomo (Lv et al. 2023, arXiv 2310.10195) and LOMO, which keeps nothing (Lv et al. 2023, arXiv
// 2306.09782; both lomo_optim 0.1).
#include "optimizers.hpp"

namespace vramplan::optimizers {
namespace {

constexpr std::int64_t kFp32 = 4;

std::int64_t factored_elements(const TrainedTensor& t) {
  return t.is_matrix() ? saturating_add(t.rows, t.columns) : t.elements();
}

bool is_16bit(const TrainedTensor& t, const Setting& s) { return s.weight_bytes(t) == 2; }

}  // namespace

// Transformers' states are FP32 whatever the weights, with a root mean square per tensor.
Parts adafactor_states(const TrainedTensor& t, const Setting& s) {
  if (!s.framework.hugging_face_optimizers) return {{s.state_bytes(t), "P_factored", factored_elements(t)}};
  return {{kFp32, "P_factored", factored_elements(t)}, {kFp32, "tensors", 1}};
}

// Transformers: the square of the gradient and that with epsilon, later the update and its negative; besides, FP32
// copies of a 16-bit gradient and weight. The last update stays until the square is there. PyTorch: the estimate of
// the variance, over which the update is written.
Update adafactor_update(const TrainedTensor& t, const Setting& s) {
  const std::int64_t n = t.elements();
  if (s.framework.hugging_face_optimizers) {
    const std::int64_t bytes = (is_16bit(t, s) ? 4 : 2) * kFp32;
    return {false, {{bytes, "P_largest", n}}, {}, {{kFp32, "P_before", n}}};
  }
  const std::int64_t bytes = s.state_bytes(t);
  if (s.foreach ()) return {true, {}, {{bytes, "P_trained", n}}, {}};
  return {false, {{bytes, "P_largest", n}}, {}, {{bytes, "P_before", n}}};
}

// The first moment in full; rows and columns of the second moment and of the instability.
Parts came_states(const TrainedTensor& t, const Setting& s) {
  const std::int64_t pairs = t.is_matrix() ? 2 : 1;
  return {{kFp32, "P_trained", t.elements()},
          {pairs * kFp32, "P_factored", factored_elements(t)},
          {s.weight_bytes(t), "tensors", 1}};
}

// The update, its distance from the first moment, and the square of that; besides, an FP32 copy of a 16-bit gradient.
// Of the last tensor the instability and its approximation stay.
Update came_update(const TrainedTensor& t, const Setting& s) {
  const std::int64_t bytes = (is_16bit(t, s) ? 4 : 3) * kFp32;
  return {false, {{bytes, "P_largest", t.elements()}}, {}, {{2 * kFp32, "P_before", t.elements()}}};
}

Parts adalomo_states(const TrainedTensor& t, const Setting&) { return {{kFp32, "P_factored", factored_elements(t)}}; }

// An FP32 copy of a 16-bit gradient takes the gradient's place, and the weight is copied too.
Update adalomo_update(const TrainedTensor& t, const Setting& s) {
  const std::int64_t bytes = is_16bit(t, s) ? 3 * kFp32 - 2 : 2 * kFp32;
  return {false, {}, {{bytes, "P_largest", t.elements()}}, {}};
}

// No pass for the norm of the gradient comes before (lomo_optim/lomo.py, grad_norm): the Trainer makes the optimizer
// without a norm to clip at (transformers/trainer_optimizer.py, _get_lomo_optimizer).
Update lomo_update(const TrainedTensor& t, const Setting& s) {
  const std::int64_t bytes = is_16bit(t, s) ? 2 * kFp32 - 2 : 0;
  return {false, {}, {{bytes, "P_largest", t.elements()}}, {}};
}

}  // namespace vramplan::optimizers
