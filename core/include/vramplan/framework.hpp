// The switches by which training frameworks differ in what they keep in memory. One small file a framework under
// src/frameworks; everything else is shared. A switch names a behaviour, never a model or a number fitted to one run.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "vramplan/request.hpp"
#include "vramplan/sharding.hpp"

namespace vramplan {

// composite: separate PyTorch operations, each saving what autograd needs; fused: one kernel that saves input and row
// statistic, and writes the input's gradient over the output's where nothing else can need that
// (liger_kernel/ops/rms_norm.py, in_place; unsloth/kernels/rms_layernorm.py, reuse_grad).
enum class NormKernel : std::uint8_t { composite, fused };
// composite_fp32: rotates in FP32 through views (torchtune); composite: rotate_half in the compute type;
// composite_complex: FP32 pairs as complex numbers (torchtitan);
// composite_joined: rotate_half with FP32 tables, then joined with the part that does not rotate (litgpt); fused: in
// place, forward and backward; fused_forward: in place, its gradients are new tensors.
enum class RotaryKernel : std::uint8_t {
  composite,
  composite_fp32,
  composite_complex,
  composite_joined,
  fused,
  fused_forward
};
enum class GatedMlpKernel : std::uint8_t { composite, fused };
// What walks the sequence in a recurrent layer: tensor operations chunk by chunk, or the kernels of fla, mamba_ssm and
// causal_conv1d, which keep little and compute again in backward.
enum class RecurrenceKernel : std::uint8_t { composite, fused };
// How the loss treats the logits.
enum class LossKind : std::uint8_t {
  upcast_full,      // FP32 copy of all logits, log-softmax saved (Transformers' ForCausalLMLoss)
  in_type_chunked,  // head output split into chunks, each upcast in turn (torchtune's CEWithChunkedOutputLoss)
  kept_chunked,     // logits in chunks of tokens, raised to FP32 and kept to the end of backward by the caller (litgpt)
  fused_kernel,     // logits materialised once, one loss kernel on them
  fused_linear,     // head and loss fused: logits exist for one chunk at a time, gradients are made in forward
  tiled,            // head and loss fused: logits exist for one tile at a time, and again in backward
  answer_log_probs,  // log-probability of the answer's tokens, from all logits of all tokens (TRL's PPOTrainer)
  log_probs,         // log-probability of each token, from all logits (TRL's selective_log_softmax)
  vocab_parallel,    // FP32 probabilities are made of the logits and become their gradient (Megatron's own)
  score,             // one output a token, of which the last one counts
};
// Adapted projections of one input as one autograd function, which writes the input's gradient over the input.
enum class AdapterFusion : std::uint8_t {
  none,
  unsloth,  // dequantizes into a buffer that all layers share (unsloth/kernels/fast_lora.py)
  foak,     // dequantizes into a new tensor; keeps what dropout left of the input, one copy for each projection
            // (fms_acceleration_foak/fused_ops/unsloth_lora/bnb/fast_lora.py)
};
// What a fused linear loss holds of a chunk of logits.
enum class LossChunk : std::uint8_t {
  in_type,        // the chunk in the compute type, its gradient over it (Liger)
  upcast,         // the chunk, an FP32 copy, and still the gradient of the chunk before (FOAK)
  fp32,           // the chunk in FP32, its gradient in the same buffer (Unsloth)
  with_gradient,  // the chunk and its gradient (a compiled loss)
  composite,      // log-softmax and the gradients of both of its sides in FP32 (PyTorch's own operations)
};
// How many tokens of the batch make a chunk of the loss (ops/symbols.cpp).
enum class ChunkRule : std::uint8_t {
  parts,               // a fixed number of parts of the sequence
  as_small_as_hidden,  // logits no larger than the hidden states of the batch, then up to a power of two (Liger, FOAK)
  unsloth,             // the same, down to a power of two, within limits
  tile,                // a fixed number of tokens (TRL)
};

// How the logits meet the labels, which are one position behind.
enum class LabelShift : std::uint8_t {
  labels,       // the labels move
  logits,       // the logits without their last position are a copy
  last_logits,  // the same, and what the logits were before the upcast is given up
};

// Which kernels are given keys and values copied for every query head.
struct KeyRepeats {
  bool sdpa = false;
  bool flash_with_window = false;  // attention modules that know a sliding window
  friend constexpr bool operator==(const KeyRepeats&, const KeyRepeats&) = default;
};

struct FrameworkSwitches {
  std::string_view source;               // id in sources.json of the code that these switches follow
  std::int64_t vocabulary_multiple = 1;  // rows of the vocabulary on a rank are padded to a multiple of this
  // Modules of Megatron-Core and TransformerEngine (src/ops/megatron) in place of those written in PyTorch.
  bool megatron_modules = false;
  bool fp8 = false;  // matrix products take FP8 copies of weights, inputs and gradients
  NormKernel norm = NormKernel::composite;
  RotaryKernel rotary = RotaryKernel::composite;
  GatedMlpKernel gated_mlp = GatedMlpKernel::composite;
  RecurrenceKernel recurrence = RecurrenceKernel::composite;
  LossKind loss = LossKind::upcast_full;
  LabelShift shift = LabelShift::labels;
  KeyRepeats key_repeats;
  bool logits_upcast = true;                    // to FP32, before a loss over all logits
  bool autocast = false;                        // linear layers cast weights and inputs for each use
  bool fp32_adapters = false;                   // adapters are held in FP32
  bool adapter_casts_input = false;             // PEFT: the adapter casts its input to the adapter's type first
  bool quantized_output_follows_input = false;  // bitsandbytes: a 4-bit linear answers in the type of its input
  bool foreach_optimizer = true;         // multi-tensor optimizer kernels make a temporary the size of what they update
  bool hugging_face_optimizers = false;  // Lion of bitsandbytes, Adafactor of Transformers; weight decay in two groups
  bool fp32_embedding_states = false;    // 8-bit optimizers keep 32-bit states of embeddings
  std::int64_t torchao_block = 128;      // values that share a scale in 4-bit states
  bool raises_leftovers = false;         // prepare_model_for_kbit_training raises non-quantized 16-bit weights to FP32
  bool lowers_tables = false;            // and embedding and head to 16 bits again (TRL, request.hpp)
  bool kv_cache = false;  // a cache concatenates keys and values, which copies them (use_cache on in training)
  // PEFT adapts a parameter that holds all experts by adding the update to the weight, for every pass.
  bool merges_expert_adapters = false;
  bool loops_experts = false;  // each expert is a module of its own, and they run one after another
  // FSDP with mixed precision: Accelerate raises the trained 16-bit weights to FP32 (accelerator.py, prepare_model).
  bool raises_trained = false;
  bool masks_sdpa_windows = false;   // a sliding window under SDPA becomes a mask (batch x sequence x sequence)
  bool gradient_over_logits = true;  // a loss kernel writes the gradient over the logits that it was given
  LossChunk loss_chunk = LossChunk::in_type;
  ChunkRule chunk_rule = ChunkRule::parts;
  std::int64_t loss_chunks = 1;
  std::int64_t loss_chunk_tokens = 0;  // above 0: chunks of so many tokens of each sequence, whatever the length
  AdapterFusion adapter_fusion = AdapterFusion::none;
  // Inputs of checkpointed blocks wait in host memory (unsloth_zoo/gradient_checkpointing.py).
  bool offloads_checkpoints = false;
  // A checkpointed block runs without a graph at first: nothing can hold on to what it makes.
  bool reentrant_checkpoints = false;
  std::int64_t kept_logits = 0;  // logits only of so many tokens at the end of a sequence (logits_to_keep); 0: of all
  bool scales_logits = false;    // log-probabilities at a temperature: the logits are divided, into a copy
  bool drops_out = true;         // dropout layers of the model and its adapters stay on
  // Hidden states before each layer and after the last norm, and the logits, stay until the optimizer has run; mixed
  // precision raises them to FP32 (accelerate/utils/operations.py, ConvertOutputsToFp32).
  bool keeps_outputs = false;
  bool fuses_qkv = false;       // q, k and v are one linear, in every model
  bool native_gelu = false;     // tanh GELU is one kernel in every model
  bool quantizes_head = false;  // the quantizer replaces every linear, the output head too
  // bitsandbytes to 0.43.0: a 4-bit linear keeps its input, although no gradient of its weight is ever taken
  // (bitsandbytes/autograd/_functions.py, MatMul4Bit).
  bool quantized_keeps_input = false;
  // The quantizer was given an FP16 copy: the dequantized weight is FP16, and cast to the compute type after that.
  bool dequantizes_through_fp16 = false;
  // FSDP1 on original parameters: a unit is one flat parameter, and when any part of it trains, every weight in it
  // makes a gradient; the flat gradient is made of those when the unit's backward ends
  // (torch/distributed/fsdp/_flat_param.py, _get_unflat_views).
  bool trains_whole_units = false;
  // FSDP1 in backward gathers the unit before the one that runs: PyTorch's own default (BACKWARD_PRE), not Accelerate's
  // (accelerate/utils/dataclasses.py and transformers/training_args.py, backward_prefetch).
  bool gathers_ahead = false;
  // Where no global batch is given, the batch of a rank is one for all micro-batches of a pipeline: a sequence each.
  bool pipeline_cuts_batch = false;
  std::int64_t sequences_per_device = 0;  // of a step when no global batch is given; 0: one micro-batch
  bool double_quantizes = false;          // NF4 always with quantized constants (torchao/dtypes/nf4tensor.py)
  bool compiled_loss = false;             // keeps the logits as they come, and makes their gradient from those
  // FSDP1 waits for the gradients of a frozen unit's inputs with a multi-gradient hook, which holds them, and the
  // inputs, to the end of backward (torch/distributed/fsdp/_runtime_utils.py,
  // _register_post_backward_reshard_only_hook).
  bool keeps_stream_in_backward = false;
  // Selective recomputation keeps of a block, besides its input, the results of every second product with a weight, of
  // attention, and of reductions over tensor parallel ranks.
  bool caches_products = false;
  // A compiled block keeps no more than its backward asks for; an eager one all results that the policy names.
  bool compiled_blocks = false;
  bool reduces_in_fp32 = false;  // FSDP2 reduces gradients in FP32, whatever type they are made in
  // FSDP2 units of their own: the embedding, which goes again after its forward, and the final norm with the head.
  bool ends_are_units = false;
  bool keeps_last_unit = false;  // FSDP2: the last block stays whole from forward to backward, where others go
  // Cross-entropy on logits that ranks share is spelled in tensor operations (DTensor's loss_parallel).
  bool composite_loss_parallel = false;
  bool keeps_logits = false;  // the caller holds what went into the loss to the end of backward
  // The caller gives up the logits before backward: a hole that what backward makes does not fit into.
  bool leaves_logits_hole = false;
  bool norms_in_type = false;      // a composite RMSNorm computes in the type of the stream
  bool joins_equal_heads = false;  // q, k and v are one linear where each query head has keys of its own
  // Around attention heads and sequences are one dimension: of more than one sequence that is a copy.
  bool joins_heads_with_batch = false;
  bool gathers_rotary_tables = false;  // each layer looks up, and keeps, the angles of every token
  bool masks_scores_in_place = false;  // eager attention scales scores in the product, and masks a copy in place
  bool gathers_logits = false;         // each rank of tensor parallelism gathers all logits, whatever the layout says
  // A pipeline keeps what a stage makes of a micro-batch until its gradient arrives, and the logits of the last stage
  // until the next but one has been made; it receives into buffers that stay.
  bool keeps_stage_outputs = false;
  bool sends_by_world = false;        // stages send and receive by the group of all ranks
  std::int64_t reduction_bucket = 0;  // elements of gradients that are joined for one reduction in FP32
  friend constexpr bool operator==(const FrameworkSwitches&, const FrameworkSwitches&) = default;
};

// A checkpoint that is one autograd function runs the block again before any of its backward, and holds the block's
// output and the gradient that it was given until that has ended (torch/utils/checkpoint.py, CheckpointFunction;
// unsloth_zoo/gradient_checkpointing.py). Else backward recomputes when it first asks for a saved tensor.
[[nodiscard]] constexpr bool recomputes_before_backward(const FrameworkSwitches& s) {
  return s.reentrant_checkpoints || s.offloads_checkpoints;
}

// The switches for a request whose defaults are resolved.
[[nodiscard]] FrameworkSwitches switches_for(const TrainingChoice& training, const Sharding& sharding);

}  // namespace vramplan
