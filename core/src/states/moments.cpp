// Optimizers with one or two moments a parameter: AdamW (Loshchilov and Hutter 2017, arXiv 1711.05101; torch/optim/
// adam.py), BAdam, which is AdamW on one layer (Luo et al. 2024, arXiv 2404.02827; badam 1.4), SGD, Lion (Chen et al.
// 2023, arXiv 2302.06675), Adam-mini (Zhang et al. 2024, arXiv 2406.16793). Their states in 8 bits: Dettmers et al.
// 2021 (arXiv 2110.02861) as in bitsandbytes 0.50; in 4 bits: Li et al. 2023 (arXiv 2309.01507) as in torchao 0.14.
#include "optimizers.hpp"

namespace vramplan::optimizers {
namespace {

constexpr std::int64_t kFp32 = 4;

// bitsandbytes/optim/optimizer.py: tensors under min_8bit_size elements keep FP32 states, the others have an FP32
// constant per blocksize values; torchao/optim/adam.py has the same limit.
constexpr std::int64_t kMinQuantizedElements = 4096;
constexpr std::int64_t kBlock8Bit = 256;
// The same file, get_state_buffer: smaller tensors of a paged optimizer stay on the GPU.
constexpr std::int64_t kMinPagedElements = 100'000;
// torchao/optim/subclass_4bit.py: each state has its own table of 16 FP32 values.
constexpr std::int64_t kTable4Bit = 16 * kFp32;

bool is_paged(std::int64_t elements, const OptimizerChoice& choice) {
  return choice.paged && elements >= kMinPagedElements;
}

// 4-bit codes need whole blocks; what has none, or is small, keeps states in the type of the weight.
Parts moments_in_4bit(const TrainedTensor& t, const Setting& s) {
  const std::int64_t n = t.elements();
  const std::int64_t block = s.framework.torchao_block;
  if (n < kMinQuantizedElements || n % block != 0) return {{2 * s.weight_bytes(t), "P_unquantized", n}};
  return {{1, "P_4bit", n}, {2 * kFp32, "B_scale", n / block}, {2 * kTable4Bit, "tensors_4bit", 1}};
}

Parts plain_moments(std::int64_t count, const TrainedTensor& t, const Setting& s) {
  if (is_paged(t.elements(), s.choice)) return {};
  return {{count * s.state_bytes(t), s.trained(t), t.elements()}};
}

// The Trainer asks bitsandbytes for 32-bit states of nn.Embedding modules.
bool keeps_fp32(const TrainedTensor& t, const Setting& s) {
  return s.framework.fp32_embedding_states && t.kind == ParameterKind::embedding;
}

Parts moments(std::int64_t count, const TrainedTensor& t, const Setting& s) {
  if (s.states() != StateFormat::int8) return plain_moments(count, t, s);
  if (!keeps_fp32(t, s)) return moments_in_8bit(count, t.elements(), s.choice);
  if (is_paged(t.elements(), s.choice)) return {};
  return {{count * kFp32, "P_32bit", t.elements()}};
}

// Kernels that update a tensor in place.
bool is_bitsandbytes(const Setting& s) { return s.choice.paged || s.states() == StateFormat::int8; }

}  // namespace

Parts moments_in_8bit(std::int64_t count, std::int64_t elements, const OptimizerChoice& choice) {
  const bool paged = is_paged(elements, choice);
  if (elements < kMinQuantizedElements) return {{count * kFp32, "P_32bit", elements}};
  Parts parts{{count * kFp32, "B_256", divide_up(elements, kBlock8Bit)}};  // these are not paged
  if (!paged) parts.add({count, "P_8bit", elements});
  return parts;
}

Parts adamw_states(const TrainedTensor& t, const Setting& s) {
  return s.states() == StateFormat::int4 ? moments_in_4bit(t, s) : moments(2, t, s);
}

// _multi_tensor_adam makes the roots of all second moments; _single_tensor_adam that root and its quotient, the
// denominator, which its variable keeps until the next tensor has one.
Update adamw_update(const TrainedTensor& t, const Setting& s) {
  const std::int64_t n = t.elements();
  if (is_bitsandbytes(s)) return {};
  if (s.states() == StateFormat::int4) return {};
  if (s.foreach ()) return {true, {}, {{s.state_bytes(t), s.trained(t), n}}, {}};
  if (s.choice.fused.value_or(true)) return {};
  return {false, {{2 * s.state_bytes(t), "P_largest", n}}, {}, {{s.state_bytes(t), "P_before", n}}};
}

// block_optim.py, _grad_to_hp: each gradient gives way to its FP32 copy; AdamW follows, on FP32 copies of the weights.
Update badam_update(const TrainedTensor& t, const Setting& s) {
  const std::int64_t wider = kFp32 - bytes_per_element(s.types.weights);
  Update update = adamw_update(t, s);
  update.late.add({wider, "P_active", t.elements()});
  update.together = true;
  return update;
}

Parts sgd_states(const TrainedTensor& t, const Setting& s) { return s.choice.momentum ? moments(1, t, s) : Parts{}; }

Parts lion_states(const TrainedTensor& t, const Setting& s) { return moments(1, t, s); }

// bitsandbytes' Lion works in place. lion_pytorch.py, update_fn: a copy of the moment, then its sum with the gradient.
Update lion_update(const TrainedTensor& t, const Setting& s) {
  const bool in_place = s.framework.hugging_face_optimizers && s.states() == StateFormat::fp32;
  if (in_place || is_bitsandbytes(s)) return {};
  return {false, {}, {{2 * s.state_bytes(t), "P_largest", t.elements()}}, {}};
}

namespace {

// adam_mini.py: by the name of the parameter. Biases keep both moments; queries and keys one second moment a head,
// other matrices of attention, MLP, embedding and head one a row; all that is left one in all.
std::int64_t second_moments_of_adam_mini(const TrainedTensor& t, const Setting& s) {
  if (t.kind == ParameterKind::bias) return t.elements();
  if (!t.is_matrix()) return 1;
  switch (t.module) {
    case Module::q:
    case Module::k: return t.elements() / std::max<std::int64_t>(s.inventory.attention_head.value, 1);
    case Module::embedding:
    case Module::position_embedding:
    case Module::head:
    case Module::v:
    case Module::o:
    case Module::qkv:
    case Module::gate:
    case Module::up:
    case Module::down:
    case Module::gate_up:
    case Module::shared_gate:
    case Module::shared_up:
    case Module::shared_down:
    case Module::shared_expert_gate:
    case Module::router: return t.rows;
    default: return 1;
  }
}

}  // namespace

Parts adam_mini_states(const TrainedTensor& t, const Setting& s) {
  return {{s.state_bytes(t), "P_trained", t.elements()},
          {s.state_bytes(t), "P_second", second_moments_of_adam_mini(t, s)}};
}

// The square of the gradient while the last update is still there; then the update and its negative.
Update adam_mini_update(const TrainedTensor& t, const Setting& s) {
  const std::int64_t bytes = s.weight_bytes(t);
  const std::int64_t n = t.elements();
  return {false, {{bytes, "P_largest", n}}, {{2 * bytes, "P_largest", n}}, {{bytes, "P_before", n}}};
}

}  // namespace vramplan::optimizers
