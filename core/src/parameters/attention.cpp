// Attention. Shapes follow the modules of Hugging Face Transformers; cuts follow Megatron-LM (arXiv:1909.08053):
// queries, keys and values by columns (whole heads), the output projection by rows.
#include "tensor_list.hpp"

namespace vramplan {
namespace {

// DeepSeek Sparse Attention (DeepSeek-V3.2, arXiv:2512.02556): queries, one shared key with a LayerNorm, a weight a
// head. MiniMax-M3 has no head weights, and its two norms are as many values.
void indexer_parameters(const Indexer& indexer, Dim hidden, TensorList& out) {
  out.linear(Module::indexer, Cut::replicate, indexer.heads * indexer.head_dim, indexer.query_input);
  out.linear(Module::indexer, Cut::replicate, indexer.head_dim, hidden);
  ParameterGroup& norm = out.add(Module::indexer, ParameterKind::norm, Cut::replicate, indexer.head_dim);
  norm.copies = norm.active_copies = 2;
  if (indexer.head_weights) out.linear(Module::indexer, Cut::replicate, indexer.heads, hidden);
}

void qk_norm_parameters(const Attention& a, bool has_keys, TensorList& out) {
  if (a.qk_norm == QkNorm::none) return;
  const bool whole = a.qk_norm == QkNorm::full;
  const Cut cut = whole ? Cut::column : Cut::replicate;
  out.inner_norm(whole ? a.heads * a.head_dim : a.head_dim, cut);
  if (has_keys) out.inner_norm(whole ? a.kv_heads * a.head_dim : a.head_dim, cut);
}

void output_gate_parameters(const Attention& a, Dim hidden, TensorList& out) {
  if (a.output_gate == OutputGate::head) out.linear(Module::output_gate, Cut::column, a.heads, hidden);
  if (a.output_gate != OutputGate::channel) return;
  out.linear(Module::output_gate, Cut::column, a.heads * v_head_dim_of(a), hidden);
}

// Compressor of DeepSeek-V4: keys-and-values and their gate, a table of positions inside a block, a norm. With ratio 4
// the blocks overlap, so that each projection is twice as wide.
void compressor_parameters(Module module, Dim width, Dim ratio, Dim hidden, TensorList& out) {
  const Dim projected = ratio == 4 ? 2 * width : width;
  out.linear(module, Cut::replicate, projected, hidden);
  out.linear(module, Cut::replicate, projected, hidden);
  out.add(module, ParameterKind::scalar, Cut::replicate, ratio, projected);
  out.add(module, ParameterKind::norm, Cut::replicate, width);
}

}  // namespace

void attention_parameters(const Attention& a, Dim hidden, TensorList& out) {
  const Dim v_head_dim = v_head_dim_of(a);
  const Dim queries = a.heads * a.head_dim * (a.output_gate == OutputGate::doubled_query ? 2 : 1);
  const Dim keys = a.kv_heads * a.head_dim;
  const bool has_keys = !a.kv_shared || a.kv_stored;
  if (a.fused_qkv) {
    out.linear(Module::qkv, Cut::column, queries + keys + a.kv_heads * v_head_dim, hidden, a.qkv_bias);
  } else {
    out.linear(Module::q, Cut::column, queries, hidden, a.qkv_bias);
    if (has_keys) out.linear(Module::k, Cut::column, keys, hidden, a.qkv_bias);
    if (has_keys && !a.k_is_v) out.linear(Module::v, Cut::column, a.kv_heads * v_head_dim, hidden, a.qkv_bias);
  }
  qk_norm_parameters(a, has_keys, out);
  if (a.sinks) out.add(Module::other, ParameterKind::scalar, Cut::column, a.heads);
  output_gate_parameters(a, hidden, out);
  if (a.indexer) indexer_parameters(*a.indexer, hidden, out);
  out.linear(Module::o, Cut::row, hidden, a.heads * v_head_dim, a.o_bias);
}

// Multi-head latent attention, DeepSeek-V2 (arXiv:2405.04434). The down projections are whole on every rank.
void attention_parameters(const LatentAttention& a, Dim hidden, TensorList& out) {
  const Dim queries = a.heads * (a.qk_nope_head_dim + a.qk_rope_head_dim);
  if (a.q_lora_rank > 0) {
    out.linear(Module::q_a, Cut::replicate, a.q_lora_rank, hidden, a.qkv_bias);
    out.inner_norm(a.q_lora_rank);
    out.linear(Module::q_b, Cut::column, queries, a.q_lora_rank);
  } else {
    out.linear(Module::q, Cut::column, queries, hidden);
  }
  out.linear(Module::kv_a, Cut::replicate, a.kv_lora_rank + a.qk_rope_head_dim, hidden, a.qkv_bias);
  out.inner_norm(a.kv_lora_rank);
  out.linear(Module::kv_b, Cut::column, a.heads * (a.qk_nope_head_dim + a.v_head_dim), a.kv_lora_rank);
  if (a.output_gate) out.linear(Module::output_gate, Cut::column, a.heads * a.v_head_dim, hidden);
  if (a.indexer) indexer_parameters(*a.indexer, hidden, out);
  out.linear(Module::o, Cut::row, hidden, a.heads * a.v_head_dim, a.o_bias);
}

// DeepSeek-V4: one compressed key-value head that all queries share, and an output projection in groups.
void attention_parameters(const CompressedAttention& a, Dim hidden, TensorList& out) {
  out.linear(Module::q_a, Cut::replicate, a.q_lora_rank, hidden);
  out.inner_norm(a.q_lora_rank);
  out.linear(Module::q_b, Cut::column, a.heads * a.head_dim, a.q_lora_rank);
  out.linear(Module::kv_a, Cut::replicate, a.head_dim, hidden);
  out.inner_norm(a.head_dim);
  out.add(Module::other, ParameterKind::scalar, Cut::column, a.heads);  // sinks
  if (a.ratio > 0) compressor_parameters(Module::compressor, a.head_dim, a.ratio, hidden, out);
  if (a.indexer) {
    compressor_parameters(Module::indexer, a.indexer->head_dim, a.ratio, hidden, out);
    out.linear(Module::indexer, Cut::replicate, a.indexer->heads * a.indexer->head_dim, a.indexer->query_input);
    if (a.indexer->head_weights) out.linear(Module::indexer, Cut::replicate, a.indexer->heads, hidden);
  }
  // One matrix: each group of heads has its own rows and reads its own inputs.
  const Dim inputs = a.o_groups > 0 ? a.heads * a.head_dim / a.o_groups : 0;
  out.linear(Module::o_a, Cut::column, a.o_lora_rank * a.o_groups, inputs);
  out.linear(Module::o, Cut::row, hidden, a.o_lora_rank * a.o_groups);
}

}  // namespace vramplan
