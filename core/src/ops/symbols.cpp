// The values of the symbols for one layer.
#include <algorithm>

#include "recurrent.hpp"
#include "vramplan/ops.hpp"

namespace vramplan {
namespace {

using namespace ops;

struct Fill {
  SymbolTable& t;
  Dim hidden;

  void operator()(const Attention& a) const {
    const Dim v_head = v_head_dim_of(a);
    t[Symbol::a] = a.heads;
    t[Symbol::ak] = a.kv_heads;
    t[Symbol::q] = a.heads * a.head_dim;
    t[Symbol::kv] = a.kv_heads * a.head_dim;
    t[Symbol::v] = a.kv_heads * v_head;
    t[Symbol::av] = a.heads * v_head;
    const Dim gate = a.output_gate == OutputGate::doubled_query ? t[Symbol::q] : 0;
    t[Symbol::qkv] = t[Symbol::q] + t[Symbol::kv] + t[Symbol::v] + gate;
    // Eager and SDPA kernels hold full rows; a window only masks them.
  }
  void operator()(const LatentAttention& a) const {
    t[Symbol::a] = a.heads;
    t[Symbol::ak] = a.heads;
    t[Symbol::q] = a.heads * (a.qk_nope_head_dim + a.qk_rope_head_dim);
    t[Symbol::kv] = a.heads * (a.qk_nope_head_dim + a.v_head_dim);
    t[Symbol::av] = a.heads * a.v_head_dim;
    t[Symbol::c] = a.kv_lora_rank + a.qk_rope_head_dim;
    t[Symbol::cq] = a.q_lora_rank;
  }
  void operator()(const CompressedAttention& a) const {
    t[Symbol::a] = a.heads;
    t[Symbol::ak] = 1;
    t[Symbol::q] = a.heads * a.head_dim;
    t[Symbol::kv] = a.head_dim;
    t[Symbol::av] = a.heads * a.head_dim;
    t[Symbol::cq] = a.q_lora_rank;
    t[Symbol::c] = a.o_lora_rank * a.o_groups;
    t.window = a.window;
  }
  void operator()(const Mamba1& m) const {
    recurrent_layer({.inner = m.inner, .projected = 2 * m.inner, .convolved = m.inner});
    t[Symbol::d] = m.dt_rank;
    t[Symbol::k] = m.state_size;
    t[Symbol::n] = m.inner * m.state_size;
    t.chunk = kSelectiveScanChunk;
  }
  void operator()(const Mamba2& m) const {
    const Dim inner = m.heads * m.head_dim;
    const Dim keys = m.groups * m.state_size;
    recurrent_layer({.inner = inner, .projected = 2 * inner + 2 * keys + m.heads, .convolved = inner + 2 * keys});
    heads(m.heads, m.groups, m.state_size);
    t[Symbol::n] = inner * m.state_size;
    t.chunk = m.chunk_size;
  }
  void operator()(const GatedDeltaNet& m) const {
    const Dim keys = m.key_heads * m.key_head_dim;
    const Dim values = m.value_heads * m.value_head_dim;
    recurrent_layer({.inner = values, .projected = 2 * keys + 2 * values, .convolved = 2 * keys + values});
    heads(m.value_heads, m.key_heads, m.key_head_dim);
    t[Symbol::n] = values * m.key_head_dim;
    t.chunk = kDeltaRuleChunk;
  }
  void operator()(const KimiDeltaAttention& m) const {
    const Dim inner = m.heads * m.head_dim;
    recurrent_layer({.inner = inner, .projected = m.head_dim, .convolved = inner});
    heads(m.heads, m.heads, m.head_dim);
    t[Symbol::n] = inner * m.head_dim;
    t.chunk = kDeltaRuleChunk;
  }
  void operator()(const LightningAttention& m) const {
    const Dim inner = m.heads * m.head_dim;
    recurrent_layer({.inner = inner, .projected = 3 * inner, .convolved = 0});
    heads(m.heads, m.heads, m.head_dim);
    t[Symbol::n] = inner * m.head_dim;
    t.chunk = kLightningBlock;
  }
  void operator()(const ShortConvolution&) const {
    recurrent_layer({.inner = hidden, .projected = 3 * hidden, .convolved = hidden});
  }
  void operator()(const DenseMlp& m) const { t[Symbol::f] = m.intermediate_size; }
  void operator()(const MoeMlp& m) const {
    t[Symbol::E] = m.experts;
    t[Symbol::er] = divide_up(m.experts, m.expert_ranks);
    t[Symbol::t] = m.experts_per_token;
    t[Symbol::fe] = m.intermediate_size;
    t[Symbol::fs] = m.shared_intermediate_size;
    t[Symbol::m] = m.latent_size > 0 ? m.latent_size : hidden;
  }

 private:
  struct RecurrentWidths {
    Dim inner, projected, convolved;
  };
  void recurrent_layer(const RecurrentWidths& w) const {
    t[Symbol::i] = w.inner;
    t[Symbol::j] = w.projected;
    t[Symbol::x] = w.convolved;
  }
  void heads(Dim all, Dim of_keys, Dim key_size) const {
    t[Symbol::d] = all;
    t[Symbol::dk] = of_keys;
    t[Symbol::k] = of_keys * key_size;
    t[Symbol::ke] = all * key_size;
  }
};

Dim next_power_of_two(Dim n) {
  constexpr Dim kLargest = Dim{1} << 62;
  Dim power = 1;
  while (power < n && power < kLargest) power *= 2;
  return power;
}
Dim power_of_two_within(Dim n) {
  const Dim above = next_power_of_two(n);
  return above > n ? above / 2 : above;
}

// unsloth_zoo/fused_losses/fused_linear.py, fused_linear_rows and _tiled_layout: as many tokens as keep the logits
// below the hidden states, but so many that the product with the head stays worth its while, and 2 GiB of FP32 logits
// at most. From 4096 tokens on the vocabulary is cut too, into tiles of 4096 x 16384 logits (on cards above 24.5 GiB;
// smaller ones do so for every length): then a chunk is as many tokens as hold that many logits.
Dim unsloth_chunk(Dim tokens, Dim hidden, Dim vocabulary) {
  constexpr Dim kMostRows = 4096;
  constexpr Dim kLeastRows = 512;
  constexpr Dim kLeastLogits = 512 * 151936;
  constexpr Dim kMostLogits = (Dim{2} << 30) / bytes_per_element(ElementType::fp32);
  constexpr Dim kTileColumns = 16384;
  if (tokens >= kMostRows && vocabulary > 2 * kTileColumns) return divide_up(kMostRows * kTileColumns, vocabulary);
  const Dim least = std::clamp(power_of_two_within(kLeastLogits / vocabulary), kLeastRows, kMostRows);
  const Dim rows = std::clamp(power_of_two_within(saturating_multiply(tokens, hidden) / vocabulary), least, kMostRows);
  return std::min({rows, std::max<Dim>(kMostLogits / vocabulary, 2), tokens});
}

// Tokens of the batch in one chunk of the loss.
Dim chunk_of(const SymbolTable& t, const FrameworkSwitches& framework) {
  constexpr Dim kTileTokens = 4096;  // trl/kernels/chunked_logprob.py, TOKEN_CHUNK_SIZE
  const Dim tokens = saturating_multiply(t[Symbol::b], t[Symbol::sk]);
  const Dim vocabulary = std::max<Dim>(t[Symbol::V], 1);
  switch (framework.chunk_rule) {
    case ChunkRule::parts: break;
    case ChunkRule::as_small_as_hidden: {  // liger_kernel/ops/fused_linear_cross_entropy.py, inc_factor
      const Dim parts = divide_up(vocabulary, std::max<Dim>(t[Symbol::h], 1));
      return std::min(next_power_of_two(divide_up(tokens, parts)), tokens);
    }
    case ChunkRule::unsloth: return unsloth_chunk(tokens, t[Symbol::h], vocabulary);
    case ChunkRule::tile: return std::min(tokens, kTileTokens);
  }
  const Dim of_sequence = framework.loss_chunk_tokens > 0
                              ? std::min(framework.loss_chunk_tokens, t[Symbol::sk])
                              : divide_up(t[Symbol::sk], std::max<Dim>(framework.loss_chunks, 1));
  return saturating_multiply(t[Symbol::b], of_sequence);
}

// Rows between the tokens of a rank and its experts. With a capacity each expert has so many places, filled or not
// (megatron/core/transformer/moe/moe_utils.py, get_capacity); else the busiest rank gets more than its share.
void fill_expert_rows(SymbolTable& t) {
  constexpr Dim kThousand = 1000;
  t[Symbol::sp] = divide_up(t[Symbol::s], t.stream_ranks);
  if (t[Symbol::E] == 0) return;
  t[Symbol::se] = divide_up(saturating_multiply(t[Symbol::s], t[Symbol::t]), t[Symbol::E]);
  const Dim wanted = saturating_multiply(t[Symbol::sp], t[Symbol::t]);
  const Dim places = divide_up(saturating_multiply(wanted, t.capacity), t[Symbol::E] * kThousand);
  t[Symbol::sx] = t.capacity > 0 ? saturating_multiply(places, t[Symbol::E]) : wanted;
  const Dim received = saturating_multiply(t[Symbol::sx], t.expert_tensor_ranks);
  t[Symbol::sm] = t.capacity > 0 ? received : divide_up(saturating_multiply(received, t.imbalance), kThousand);
}

}  // namespace

SymbolTable widths_for(const BlockContext& c, const LayerGroup* group) {
  SymbolTable t;
  t[Symbol::one] = 1;
  t[Symbol::h] = c.model->hidden_size;
  t[Symbol::hp] = c.sequence_parallel ? divide_up(c.model->hidden_size, c.tensor_ranks) : c.model->hidden_size;
  t.sequence_ranks = c.sequence_ranks;
  t.stream_ranks = c.sequence_parallel ? c.tensor_ranks : 1;
  t.expert_tensor_ranks = c.expert_tensor_ranks;
  t.imbalance = c.expert_imbalance;
  t.capacity = c.expert_capacity;
  t[Symbol::V] = head_rows_of(*c.model);
  t[Symbol::r] = c.rank;
  t[Symbol::rt] = divide_up(c.rank, c.tensor_ranks);
  t[Symbol::ht] = divide_up(c.model->hidden_size, c.tensor_ranks);
  if (group == nullptr) return t;
  const Fill fill{t, c.model->hidden_size};
  for (const Mixer& mixer : group->mixers) std::visit(fill, mixer);
  for (const Mlp& mlp : group->mlps) std::visit(fill, mlp);
  return t;
}

void set_size(SymbolTable& t, const FrameworkSwitches& framework, BatchSize batch) {
  const Dim tokens = divide_up(batch.sequence_length, t.sequence_ranks);
  t[Symbol::b] = batch.micro_batch;
  t[Symbol::s] = tokens;
  t[Symbol::sk] = framework.kept_logits > 0 ? std::min(framework.kept_logits, tokens) : tokens;
  t[Symbol::sc] = chunk_of(t, framework);
  t[Symbol::w] = t.window > 0 ? std::min(t.window, batch.sequence_length) : batch.sequence_length;
  t[Symbol::nc] = divide_up(tokens, t.chunk);
  fill_expert_rows(t);
}

}  // namespace vramplan
