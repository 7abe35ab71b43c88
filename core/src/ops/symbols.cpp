// The values of the symbols for one layer.
#include <algorithm>

#include "vramplan/ops.hpp"

namespace vramplan {
namespace {

struct Fill {
  SymbolTable& t;
  Dim hidden;

  void operator()(const Attention& a) const {
    const Dim v_head = a.v_head_dim > 0 ? a.v_head_dim : a.head_dim;
    t[Symbol::a] = a.heads;
    t[Symbol::ak] = a.kv_heads;
    t[Symbol::q] = a.heads * a.head_dim;
    t[Symbol::kv] = a.kv_heads * a.head_dim;
    t[Symbol::v] = a.kv_heads * v_head;
    t[Symbol::av] = a.heads * v_head;
    t[Symbol::qkv] = t[Symbol::q] + t[Symbol::kv] + t[Symbol::v];
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
  void operator()(const Mamba1& m) const { linear_layer(m.inner, 2 * m.inner, m.inner, m.state_size); }
  void operator()(const Mamba2& m) const {
    const Dim inner = m.heads * m.head_dim;
    const Dim conv = inner + 2 * m.groups * m.state_size;
    linear_layer(inner, inner + conv + m.heads, conv, m.state_size);
  }
  void operator()(const GatedDeltaNet& m) const {
    const Dim keys = m.key_heads * m.key_head_dim;
    const Dim values = m.value_heads * m.value_head_dim;
    linear_layer(values, 2 * keys + 2 * values + 2 * m.value_heads, 2 * keys + values, values);
  }
  void operator()(const KimiDeltaAttention& m) const {
    const Dim inner = m.heads * m.head_dim;
    linear_layer(inner, 4 * inner + m.heads, 3 * inner, inner);
  }
  void operator()(const LightningAttention& m) const {
    const Dim inner = m.heads * m.head_dim;
    linear_layer(inner, 4 * inner, 3 * inner, inner);
  }
  void operator()(const ShortConvolution&) const { linear_layer(hidden, 3 * hidden, hidden, 0); }
  void operator()(const DenseMlp& m) const { t[Symbol::f] = m.intermediate_size; }
  void operator()(const MoeMlp& m) const {
    t[Symbol::E] = m.experts;
    t[Symbol::t] = m.experts_per_token;
    t[Symbol::fe] = m.intermediate_size;
    t[Symbol::fs] = m.shared_intermediate_size;
    t[Symbol::m] = m.latent_size > 0 ? m.latent_size : hidden;
  }

 private:
  void linear_layer(Dim inner, Dim projected, Dim convolved, Dim states) const {
    t[Symbol::i] = inner;
    t[Symbol::j] = projected;
    t[Symbol::x] = convolved;
    t[Symbol::n] = states;
  }
};

}  // namespace

SymbolTable widths_for(const BlockContext& c, const LayerGroup* group) {
  SymbolTable t;
  t[Symbol::one] = 1;
  t[Symbol::h] = c.model->hidden_size;
  t[Symbol::V] = head_rows_of(*c.model);
  t[Symbol::r] = c.rank;
  if (group == nullptr) return t;
  const Fill fill{t, c.model->hidden_size};
  for (const Mixer& mixer : group->mixers) std::visit(fill, mixer);
  for (const Mlp& mlp : group->mlps) std::visit(fill, mlp);
  return t;
}

SymbolTable sized(SymbolTable t, const FrameworkSwitches& framework, BatchSize batch) {
  t[Symbol::b] = batch.micro_batch;
  t[Symbol::s] = batch.sequence_length;
  t[Symbol::sc] = framework.loss_chunk_tokens > 0
                      ? std::min(framework.loss_chunk_tokens, batch.sequence_length)
                      : divide_up(batch.sequence_length, std::max<Dim>(framework.loss_chunks, 1));
  t[Symbol::w] = t.window > 0 ? std::min(t.window, batch.sequence_length) : batch.sequence_length;
  return t;
}

}  // namespace vramplan
