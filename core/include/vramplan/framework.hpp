// The switches by which training frameworks differ in what they keep in memory. One small file a framework under
// src/frameworks; everything else is shared. A switch names a behaviour, never a model or a number fitted to one run.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "vramplan/request.hpp"

namespace vramplan {

// composite: separate PyTorch operations, each saving what autograd needs; fused: one kernel that saves input and row
// statistic.
enum class NormKernel : std::uint8_t { composite, fused };
// composite_fp32: rotates in FP32 through views (torchtune); composite: rotate_half in the compute type; fused: in
// place.
enum class RotaryKernel : std::uint8_t { composite, composite_fp32, fused };
enum class GatedMlpKernel : std::uint8_t { composite, fused };
// How the loss treats the logits.
enum class LossKind : std::uint8_t {
  upcast_full,      // FP32 copy of all logits, log-softmax saved (Transformers' ForCausalLMLoss)
  in_type_chunked,  // head output split into chunks, each upcast in turn (torchtune's CEWithChunkedOutputLoss)
  fused_kernel,     // logits materialised once, loss kernel works in place (Liger and FOAK cross-entropy)
  fused_linear,     // head and loss fused: logits exist for one chunk at a time
};

struct FrameworkSwitches {
  std::string_view source;  // id in sources.json of the code that these switches follow
  NormKernel norm = NormKernel::composite;
  RotaryKernel rotary = RotaryKernel::composite;
  GatedMlpKernel gated_mlp = GatedMlpKernel::composite;
  LossKind loss = LossKind::upcast_full;
  bool autocast = false;                        // linear layers cast weights and inputs for each use
  bool fp32_adapters = false;                   // adapters are held in FP32
  bool adapter_casts_input = false;             // PEFT: the adapter casts its input to the adapter's type first
  bool quantized_output_follows_input = false;  // bitsandbytes: a 4-bit linear answers in the type of its input
  bool foreach_optimizer = true;         // multi-tensor optimizer kernels make a temporary the size of what they update
  bool hugging_face_optimizers = false;  // Lion of bitsandbytes, Adafactor of Transformers; weight decay in two groups
  bool fp32_embedding_states = false;    // 8-bit optimizers keep 32-bit states of embeddings
  std::int64_t torchao_block = 128;      // values that share a scale in 4-bit states
  bool raises_leftovers = false;         // prepare_model_for_kbit_training raises non-quantized 16-bit weights to FP32
  bool masks_sdpa_windows = false;       // a sliding window under SDPA becomes a mask (batch x sequence x sequence)
  std::int64_t loss_chunks = 1;
  // FSDP1 waits for the gradients of a frozen unit's inputs with a multi-gradient hook, which holds them, and the
  // inputs, to the end of backward (torch/distributed/fsdp/_runtime_utils.py,
  // _register_post_backward_reshard_only_hook).
  bool keeps_stream_in_backward = false;
};

// The switches for a request whose defaults are resolved.
[[nodiscard]] FrameworkSwitches switches_for(const TrainingChoice& training, bool sharded);

}  // namespace vramplan
