// What nearly every dialect shares: the sizes of a decoder, and layers that come in a few kinds.
#pragma once

#include <cstddef>
#include <vector>

#include "fields.hpp"
#include "vramplan/model.hpp"

namespace vramplan::config {

// Defaults of a dialect's configuration class in Transformers, where they differ from these.
struct Defaults {
  Dim heads = 0;                // 0: the config must say
  Dim kv_heads = 0;             // 0: as many as query heads
  Dim head_dim = 0;             // 0: hidden_size / num_attention_heads
  Dim vocab = 0;                // 0: the config must say
  Dim intermediate_factor = 0;  // x hidden_size; 0: the config must say
  Dim positions = 2048;
  bool tied = false;
  const char* activation = "silu";
};

// A decoder whose layers are all alike until its dialect says otherwise.
struct Decoder {
  ModelArchitecture model;
  Dim layers = 1;
  Dim norms = 2;  // in a layer
  Attention attention;
  DenseMlp mlp;
};

// By the names of Llama and most others, and by those of GPT-2 (n_embd, n_layer, n_head, n_inner, n_positions).
[[nodiscard]] Decoder read_decoder(ConfigFields& fields, const Defaults& defaults);
[[nodiscard]] Decoder read_gpt_decoder(ConfigFields& fields, const Defaults& defaults);
// Without a dense MLP, or with one whose size is read in another way.
[[nodiscard]] Decoder read_decoder_without_mlp(ConfigFields& fields, const Defaults& defaults);

[[nodiscard]] Activation activation_of(ConfigFields& fields, FieldNames names, const char* otherwise);

// attention_bias: on q, k, v and the output projection alike.
void read_attention_bias(ConfigFields& fields, Decoder& decoder, bool otherwise = false);
void set_all_biases(Decoder& decoder, bool bias);

// ---- layers

[[nodiscard]] LayerGroup layer_of(const Decoder& decoder, Mixer mixer, Mlp mlp);

// All layers alike.
[[nodiscard]] ModelArchitecture uniform(const Decoder& decoder);
[[nodiscard]] ModelArchitecture uniform(const Decoder& decoder, const Mlp& mlp);

// kinds[kind_of_layer[i]] is layer i; groups come in the order of their first layer. The counts in `kinds` are ignored.
[[nodiscard]] ModelArchitecture with_kinds(const Decoder& decoder, std::vector<LayerGroup> kinds,
                                           const std::vector<std::size_t>& kind_of_layer);

// One value a layer.
template <class Rule>
[[nodiscard]] std::vector<std::size_t> for_each_layer(Dim layers, Rule rule) {
  std::vector<std::size_t> kinds;
  for (Dim i = 0; i < layers; ++i) kinds.push_back(static_cast<std::size_t>(rule(i)));
  return kinds;
}

// The sliding window in tokens: `otherwise` when absent, 0 (none) when null.
[[nodiscard]] Dim read_window(ConfigFields& fields, Dim otherwise);

inline constexpr std::size_t kSliding = 0;
inline constexpr std::size_t kGlobal = 1;
// kSliding or kGlobal for each layer: layer_types, or every `period`-th layer global (0: no layer slides).
[[nodiscard]] std::vector<std::size_t> sliding_layers(ConfigFields& fields, Dim layers, Dim period);
// Layers of the two kinds of attention with the same MLP.
[[nodiscard]] ModelArchitecture with_windows(const Decoder& decoder, const Attention& sliding, const Attention& global,
                                             const Mlp& mlp, const std::vector<std::size_t>& kind_of_layer);

// ---- mixtures of experts

struct ExpertDefaults {
  Dim experts = 0;  // 0: the config must say
  Dim per_token = 0;
  Dim intermediate = 0;
};

// num_experts, num_experts_per_tok and moe_intermediate_size, by the names that dialects have for them.
[[nodiscard]] MoeMlp read_experts(ConfigFields& fields, const Decoder& decoder, const ExpertDefaults& defaults);
// The same where intermediate_size is that of an expert (Mixtral, OLMoE, gpt-oss).
[[nodiscard]] MoeMlp read_experts_of_intermediate_size(ConfigFields& fields, const Decoder& decoder,
                                                       const ExpertDefaults& defaults);
// n_shared_experts of the same width (DeepSeek and those after it).
void add_shared_experts(ConfigFields& fields, MoeMlp& experts, Dim otherwise);

// DeepSeek's rule: the first k layers are dense, after them one layer in every `moe_layer_freq` has experts.
[[nodiscard]] std::vector<std::size_t> dense_then_experts(ConfigFields& fields, Dim layers, Dim dense_otherwise);
// Qwen's rule: one layer in every `decoder_sparse_step` has experts, unless mlp_only_layers lists it.
[[nodiscard]] std::vector<std::size_t> sparse_step_layers(ConfigFields& fields, Dim layers);

inline constexpr std::size_t kDense = 0;
inline constexpr std::size_t kExperts = 1;
// Layers of one mixer with a dense MLP or with experts.
[[nodiscard]] ModelArchitecture with_experts(const Decoder& decoder, const Mixer& mixer, const MoeMlp& experts,
                                             const std::vector<std::size_t>& kind_of_layer);

}  // namespace vramplan::config
