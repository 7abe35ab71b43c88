// Mixers without a growing cache. Shapes follow the modules of Hugging Face Transformers; cuts follow Megatron-LM's
// Mamba mixer: channels and heads by columns, the output projection by rows.
#include "tensor_list.hpp"

namespace vramplan {
namespace {

// Depthwise causal convolution: one row of `kernel` taps a channel.
void convolution(Dim channels, Dim kernel, bool bias, TensorList& out) {
  out.add(Module::conv, ParameterKind::conv, Cut::column, channels, kernel);
  if (bias) out.add(Module::conv, ParameterKind::bias, Cut::column, channels);
}

void state_vector(Dim rows, Dim columns, TensorList& out) {
  out.add(Module::other, ParameterKind::ssm, Cut::column, rows, columns);
}

}  // namespace

// Mamba (arXiv:2312.00752), with the norms on dt, B and C that Jamba adds (arXiv:2403.19887).
void state_space_parameters(const Mamba1& m, Dim hidden, TensorList& out) {
  out.linear(Module::in_proj, Cut::column, 2 * m.inner, hidden);
  convolution(m.inner, m.conv_kernel, true, out);
  out.linear(Module::x_proj, Cut::row, m.dt_rank + 2 * m.state_size, m.inner);
  out.linear(Module::dt_proj, Cut::column, m.inner, m.dt_rank, true);
  state_vector(m.inner, m.state_size, out);  // A
  state_vector(m.inner, 1, out);             // D
  if (m.inner_norms) {
    out.inner_norm(m.dt_rank);
    out.inner_norm(m.state_size);
    out.inner_norm(m.state_size);
  }
  out.linear(Module::out_proj, Cut::row, hidden, m.inner);
}

// Mamba-2 (arXiv:2405.21060).
void state_space_parameters(const Mamba2& m, Dim hidden, TensorList& out) {
  const Dim inner = m.heads * m.head_dim;
  const Dim convolved = inner + 2 * m.groups * m.state_size;
  out.linear(Module::in_proj, Cut::column, inner + convolved + m.heads, hidden);
  convolution(convolved, m.conv_kernel, true, out);
  state_vector(m.heads, 1, out);  // A
  state_vector(m.heads, 1, out);  // D
  state_vector(m.heads, 1, out);  // bias of dt
  if (m.gated_norm) out.inner_norm(inner, Cut::column);
  out.linear(Module::out_proj, Cut::row, hidden, inner);
}

// Gated DeltaNet (arXiv:2412.06464) as in Qwen3-Next: z gates the output, b and a are one value a value head.
void state_space_parameters(const GatedDeltaNet& n, Dim hidden, TensorList& out) {
  const Dim keys = n.key_heads * n.key_head_dim;
  const Dim values = n.value_heads * n.value_head_dim;
  if (n.fused_projections) {
    out.linear(Module::in_proj, Cut::column, 2 * keys + 2 * values, hidden);
    out.linear(Module::in_proj, Cut::column, 2 * n.value_heads, hidden);
  } else {
    out.linear(Module::in_proj, Cut::column, 2 * keys + values, hidden);
    out.linear(Module::output_gate, Cut::column, values, hidden);
    out.linear(Module::in_proj, Cut::column, n.value_heads, hidden);
    out.linear(Module::in_proj, Cut::column, n.value_heads, hidden);
  }
  convolution(2 * keys + values, n.conv_kernel, false, out);
  state_vector(n.value_heads, 1, out);  // A
  state_vector(n.value_heads, 1, out);  // bias of dt
  out.inner_norm(n.value_head_dim);
  out.linear(Module::out_proj, Cut::row, hidden, values);
}

// Kimi Delta Attention (Kimi Linear, arXiv:2510.26692): a decay a channel through a narrow middle, a gate on the
// output.
void state_space_parameters(const KimiDeltaAttention& a, Dim hidden, TensorList& out) {
  const Dim width = a.heads * a.head_dim;
  for (const Module module : {Module::q, Module::k, Module::v}) {
    out.linear(module, Cut::column, width, hidden);
    convolution(width, a.conv_kernel, false, out);
  }
  out.linear(Module::dt_proj, Cut::replicate, a.head_dim, hidden);
  out.linear(Module::dt_proj, Cut::column, width, a.head_dim);
  out.linear(Module::in_proj, Cut::column, a.heads, hidden);  // beta
  if (a.full_rank_gate) {
    out.linear(Module::output_gate, Cut::column, width, hidden);
  } else {
    out.linear(Module::output_gate, Cut::replicate, a.head_dim, hidden);
    out.linear(Module::output_gate, Cut::column, width, a.head_dim);
  }
  state_vector(a.heads, 1, out);  // A
  state_vector(width, 1, out);    // bias of dt
  out.inner_norm(a.head_dim);
  out.linear(Module::o, Cut::row, hidden, width);
}

// Lightning attention (MiniMax-01, arXiv:2501.08313): q, k and v in one projection, a norm and a gate on the output.
void state_space_parameters(const LightningAttention& a, Dim hidden, TensorList& out) {
  const Dim width = a.heads * a.head_dim;
  out.linear(Module::qkv, Cut::column, 3 * width, hidden);
  out.linear(Module::output_gate, Cut::column, width, hidden);
  out.inner_norm(width, Cut::column);
  out.linear(Module::o, Cut::row, hidden, width);
}

// LFM2's gated short convolution: two gates and the convolved stream come from one projection.
void state_space_parameters(const ShortConvolution& c, Dim hidden, TensorList& out) {
  out.linear(Module::in_proj, Cut::column, 3 * hidden, hidden);
  convolution(hidden, c.kernel, false, out);
  out.linear(Module::out_proj, Cut::row, hidden, hidden);
}

}  // namespace vramplan
