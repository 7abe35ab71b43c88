// The shape of a model: what decides its parameter count, its memory and its speed, and nothing else.
//
// A model is an embedding, groups of identical decoder layers, a final norm and a head. A layer holds mixers (attention
// of some kind, state-space, convolution), MLPs (dense, mixture of experts), norms, and rarely extra tensors.
// Names follow Hugging Face's config.json where it has one. All sizes are in elements. No total is stored anywhere:
// parameters.hpp computes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "vramplan/units.hpp"

namespace vramplan {

enum class NormType : std::uint8_t { rms, layer };
enum class PositionType : std::uint8_t { rope, learned, alibi, none };
// clamped_swiglu: gate and up, interleaved, are clamped; then gate * sigmoid(alpha * gate) * (up + 1) (gpt-oss).
enum class Activation : std::uint8_t { silu, gelu, gelu_tanh, gelu_new, relu, relu2, xielu, clamped_swiglu };
enum class QkNorm : std::uint8_t { none, head, full };  // head: one vector of head_dim; full: over the whole projection
// Gate on the attention output: the query projection doubled (Qwen3-Next), one value a head (Step), one a channel.
enum class OutputGate : std::uint8_t { none, doubled_query, head, channel };

// pre: each branch starts with a norm; post_branch: each branch ends with one (OLMo 2); sandwich: both (Gemma 2).
enum class NormPlacement : std::uint8_t { pre, post_branch, sandwich };

struct Norm {
  NormType type = NormType::rms;
  bool weight = true;
  bool bias = false;
  bool unit_offset = false;        // scales by 1 + weight in FP32 (Gemma)
  bool scale_before_cast = false;  // scales in FP32, then casts back (OLMo 2)
};

// Sparse-attention indexer (DeepSeek Sparse Attention and MiniMax-M3).
struct Indexer {
  Dim heads = 0;
  Dim head_dim = 0;
  Dim query_input = 0;       // width that feeds the indexer's queries: q_lora_rank, or the hidden size
  bool head_weights = true;  // a hidden x heads projection (absent in MiniMax-M3)
};

// Multi-head, grouped-query and multi-query attention; sliding when window > 0.
struct Attention {
  Dim heads = 0;
  Dim kv_heads = 0;
  Dim head_dim = 0;    // of q and k
  Dim v_head_dim = 0;  // of v; 0: the same as head_dim (read it through v_head_dim_of)
  Dim window = 0;      // 0: global
  bool qkv_bias = false;
  bool o_bias = false;
  bool fused_qkv = false;  // one projection module holds q, k and v (GPT-2, NeoX, Phi-3): decides adapter shapes
  bool sinks = false;      // one learned value a head
  bool k_is_v = false;     // no v projection of its own (Gemma 4, global layers)
  bool kv_shared = false;  // keys and values come from an earlier layer: no k and v projections
  bool kv_stored = false;  // kv_shared, and the model holds k and v projections all the same, unused (Gemma 3n)
  bool cross = false;      // keys and values come from another tower
  bool rotary = true;
  // Rotated and unrotated parts of q and k are joined (Phi-3, GLM, NeoX): the kernel's output then needs a copy to
  // become one row a token.
  bool partial_rotary = false;
  QkNorm qk_norm = QkNorm::none;
  OutputGate output_gate = OutputGate::none;
  double softcap = 0;  // Gemma 2's attn_logit_softcapping; 0: none
  // Eager attention takes the softmax in the type of the scores, not in FP32 (GPT-2); autocast raises it all the same.
  bool softmax_in_type = false;
  std::optional<Indexer> indexer;
};

[[nodiscard]] constexpr Dim v_head_dim_of(const Attention& a) { return a.v_head_dim > 0 ? a.v_head_dim : a.head_dim; }

// Multi-head latent attention (DeepSeek-V2 and later).
struct LatentAttention {
  Dim heads = 0;
  Dim q_lora_rank = 0;  // 0: a full query projection
  Dim kv_lora_rank = 0;
  Dim qk_nope_head_dim = 0;
  Dim qk_rope_head_dim = 0;
  Dim v_head_dim = 0;
  bool qkv_bias = false;
  bool o_bias = false;
  bool output_gate = false;  // Kimi K3: hidden x (heads * v)
  bool rotary = true;
  std::optional<Indexer> indexer;
};

// DeepSeek-V4: low-rank queries, one shared compressed KV head, grouped output projection.
struct CompressedAttention {
  Dim heads = 0;
  Dim head_dim = 0;
  Dim q_lora_rank = 0;
  Dim o_groups = 0;
  Dim o_lora_rank = 0;
  Dim window = 0;
  Dim ratio = 0;  // 0: window only, 4: compressor with indexer, 128: heavy compression
  std::optional<Indexer> indexer;
};

struct Mamba1 {
  Dim inner = 0;  // expand * hidden
  Dim state_size = 0;
  Dim conv_kernel = 0;
  Dim dt_rank = 0;
  bool inner_norms = true;  // Jamba's norms on dt, B and C
};

struct Mamba2 {
  Dim heads = 0;
  Dim head_dim = 0;
  Dim groups = 0;
  Dim state_size = 0;
  Dim conv_kernel = 0;
  Dim chunk_size = 256;  // tokens scanned at a time
  bool gated_norm = true;
};

// Gated DeltaNet (Qwen3-Next and later).
struct GatedDeltaNet {
  Dim key_heads = 0;
  Dim key_head_dim = 0;
  Dim value_heads = 0;
  Dim value_head_dim = 0;
  Dim conv_kernel = 0;
  bool fused_projections = false;  // Qwen3-Next: one module for q, k, v and z, one for b and a; later models have four
};

// Kimi Delta Attention.
struct KimiDeltaAttention {
  Dim heads = 0;
  Dim head_dim = 0;
  Dim conv_kernel = 0;
  bool full_rank_gate = false;
};

// Lightning attention (MiniMax-Text-01).
struct LightningAttention {
  Dim heads = 0;
  Dim head_dim = 0;
};

// LFM2's gated short convolution.
struct ShortConvolution {
  Dim kernel = 0;
};

using Mixer = std::variant<Attention, LatentAttention, CompressedAttention, Mamba1, Mamba2, GatedDeltaNet,
                           KimiDeltaAttention, LightningAttention, ShortConvolution>;

struct DenseMlp {
  Dim intermediate_size = 0;
  bool gated = true;  // gate and up, then down; otherwise up and down
  bool bias = false;
  bool fused_gate_up = false;  // one module holds gate and up (Phi-3, GLM-4)
  Activation activation = Activation::silu;
};

struct MoeMlp {
  Dim experts = 0;
  Dim experts_per_token = 0;
  Dim intermediate_size = 0;         // of one expert
  Dim shared_intermediate_size = 0;  // of all shared experts together; 0: none
  Dim latent_size = 0;   // experts work on this width instead of the hidden size (Nemotron 3, Kimi K3); 0: hidden
  Dim zero_experts = 0;  // router rows that compute nothing (LongCat)
  bool gated = true;
  bool shared_expert_gate = false;
  bool latent_norm = false;
  bool router_bias = false;
  bool router_correction_bias = false;  // not trained by gradient
  bool router_scale = false;            // a vector over the router's input and one value an expert (Gemma 4)
  bool expert_bias = false;
  Dim expert_ranks = 1;  // that share the experts (layout.hpp)
  Activation activation = Activation::silu;
};

using Mlp = std::variant<DenseMlp, MoeMlp>;

// A tensor that no common rule covers, by its shape: layer scalars, per-layer embeddings, hyper-connections.
// `linear` says that it is a weight matrix applied to every token (quantizers and all-linear adapters see it): the last
// dimension is its input, the others together its output. `embedding` says that it is a table, a row a token: the first
// dimension is the vocabulary.
struct ExtraTensor {
  std::string name;
  std::vector<Dim> shape;
  Dim copies = 1;  // as many tensors of this shape
  bool linear = false;
  bool embedding = false;
};

// Dropout layers that belong to the model, by the probability that its config publishes; 0: none.
struct Dropout {
  double embedding = 0;  // on the sum of token and position embeddings
  double attention = 0;  // on the attention probabilities
  double residual = 0;   // on what each branch adds to the stream
};

// A tower beside the text model (vision, audio). Only its size is known.
struct Tower {
  std::string name;  // vision | audio | vision_and_audio
  Params parameters;
};

struct LayerGroup {
  Dim count = 0;
  // Usually one; none (Nemotron-H MLP layers), or two in parallel (Falcon-H1) or in turn (LongCat).
  std::vector<Mixer> mixers;
  std::vector<Mlp> mlps;  // usually one; dense and MoE together in Gemma 4 26B and LongCat
  Dim norms = 2;          // norm vectors of width hidden_size in one layer
  std::vector<ExtraTensor> extras;
};

// Everything the later stages need to know of a model.
struct ModelArchitecture {
  Dim hidden_size = 0;
  Dim vocab_size = 0;      // rows of the embedding as stored
  Dim head_rows = 0;       // rows of lm_head where they differ from vocab_size (Llama 3.2 Vision), else 0
  Dim embedding_size = 0;  // width of the embedding where it differs from hidden_size (OPT-350M), else 0
  Dim max_position_embeddings = 0;
  bool tie_word_embeddings = false;
  bool lm_head_bias = false;
  bool embedding_norm = false;
  bool final_norm = true;
  bool parallel_residual = false;
  PositionType position = PositionType::rope;
  Dim position_rows = 0;  // rows of a learned position table
  Norm norm;
  NormPlacement norm_placement = NormPlacement::pre;
  Dropout dropout;
  double final_softcap = 0;  // Gemma 2's final_logit_softcapping; 0: none
  std::vector<LayerGroup> groups;
  // The group of each layer, from the first on and again from the start when it is shorter than the model; empty: the
  // groups follow one another.
  std::vector<Dim> order;
  std::vector<ExtraTensor> extras;  // outside the layers
  std::vector<Tower> towers;
  // A part of a model (layout.hpp) may lack its ends.
  bool holds_embedding = true;
  bool holds_head = true;  // and the final norm
};

[[nodiscard]] constexpr Dim head_rows_of(const ModelArchitecture& m) {
  return m.head_rows > 0 ? m.head_rows : m.vocab_size;
}
[[nodiscard]] Dim layers_of(const ModelArchitecture& m);
// How many of the first `layers` layers each group has.
[[nodiscard]] std::vector<Dim> first_layers(const ModelArchitecture& m, Dim layers);
// The same of groups of which so many are there.
[[nodiscard]] std::vector<Dim> first_layers(const std::vector<Dim>& counts, const std::vector<Dim>& order, Dim layers);
// The first layer of a group.
[[nodiscard]] Dim first_of(const ModelArchitecture& m, std::size_t group);

}  // namespace vramplan
