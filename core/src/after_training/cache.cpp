// Keys, values and recurrent states of one sequence. Keys and values are 16 bits wide; a recurrent state is FP32, as
// its kernels accumulate it (fla/ops, mamba_ssm/ops), and the window of a short convolution 16 bits.
#include <algorithm>

#include "vramplan/after_training.hpp"

namespace vramplan {
namespace {

constexpr std::int64_t kCacheBytes = 2;
constexpr std::int64_t kStateBytes = 4;

std::int64_t tokens_within(Dim window, std::int64_t tokens) { return window > 0 ? std::min(window, tokens) : tokens; }

std::int64_t indexer_width(const std::optional<Indexer>& indexer) { return indexer ? indexer->head_dim : 0; }

// Elements that one layer caches of a sequence.
std::int64_t cached(const Attention& a, std::int64_t tokens) {
  if (a.kv_shared || a.cross) return 0;  // another layer's keys and values; those of another tower
  const std::int64_t width = saturating_multiply(a.kv_heads, a.head_dim + v_head_dim_of(a)) + indexer_width(a.indexer);
  return saturating_multiply(width, tokens_within(a.window, tokens));
}
std::int64_t cached(const LatentAttention& a, std::int64_t tokens) {
  return saturating_multiply(a.kv_lora_rank + a.qk_rope_head_dim + indexer_width(a.indexer), tokens);
}
// One head that is key and value at once: the window as it is, and what is older compressed.
std::int64_t cached(const CompressedAttention& a, std::int64_t tokens) {
  const std::int64_t compressed = a.ratio > 0 ? divide_up(tokens, a.ratio) : 0;
  const std::int64_t rows = tokens_within(a.window, tokens) + compressed;
  return saturating_multiply(a.head_dim, rows) + saturating_multiply(indexer_width(a.indexer), compressed);
}
template <class Recurrent>
std::int64_t cached(const Recurrent&, std::int64_t) {
  return 0;
}

struct State {
  std::int64_t recurrent = 0;    // elements
  std::int64_t convolution = 0;  // channels times the tokens that its kernel looks back on
};

State state_of(const Mamba1& m, Dim) { return {m.inner * m.state_size, m.inner * (m.conv_kernel - 1)}; }
State state_of(const Mamba2& m, Dim) {
  const std::int64_t channels = m.heads * m.head_dim + 2 * m.groups * m.state_size;
  return {m.heads * m.head_dim * m.state_size, channels * (m.conv_kernel - 1)};
}
State state_of(const GatedDeltaNet& m, Dim) {
  const std::int64_t channels = 2 * m.key_heads * m.key_head_dim + m.value_heads * m.value_head_dim;
  return {m.value_heads * m.key_head_dim * m.value_head_dim, channels * (m.conv_kernel - 1)};
}
State state_of(const KimiDeltaAttention& m, Dim) {
  return {m.heads * m.head_dim * m.head_dim, 3 * m.heads * m.head_dim * (m.conv_kernel - 1)};
}
State state_of(const LightningAttention& m, Dim) { return {m.heads * m.head_dim * m.head_dim, 0}; }
State state_of(const ShortConvolution& m, Dim hidden) { return {0, hidden * (m.kernel - 1)}; }
template <class Cached>
State state_of(const Cached&, Dim) {
  return {};
}

}  // namespace

Bytes cache_of(const ModelArchitecture& model, std::int64_t tokens) {
  Bytes sum;
  for (const LayerGroup& group : model.groups) {
    for (const Mixer& mixer : group.mixers) {
      const std::int64_t elements = std::visit([&](const auto& m) { return cached(m, tokens); }, mixer);
      sum += Bytes(saturating_multiply(elements, kCacheBytes)) * group.count;
    }
  }
  return sum;
}

Bytes recurrent_states_of(const ModelArchitecture& model) {
  Bytes sum;
  for (const LayerGroup& group : model.groups) {
    for (const Mixer& mixer : group.mixers) {
      const State state = std::visit([&](const auto& m) { return state_of(m, model.hidden_size); }, mixer);
      sum += Bytes(state.recurrent * kStateBytes + state.convolution * kCacheBytes) * group.count;
    }
  }
  return sum;
}

}  // namespace vramplan
