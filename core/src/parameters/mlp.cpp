// Dense MLPs and mixtures of experts. Cuts follow Megatron-LM (arXiv:1909.08053): gate and up by columns, down by rows,
// experts whole (GShard, arXiv:2006.16668).
#include "tensor_list.hpp"

namespace vramplan {
namespace {

struct ExpertShape {
  Dim width = 0;  // of its input and output
  Dim intermediate = 0;
};

// One projection of all experts, and its bias. Fused three-dimensional tensors hold the same values. Experts with
// biases (gpt-oss) never were linear modules: neither quantizers nor all-linear adapters reach them.
void expert_projection(const MoeMlp& m, Module module, Dim outputs, Dim inputs, TensorList& out) {
  // A token that draws a zero expert meets one real expert less: on average its share of the router's rows.
  const Dim rows = m.experts + m.zero_experts;
  const Dim active = rows > 0 ? m.experts_per_token * m.experts / rows : 0;
  ParameterGroup& weight = out.add(module, ParameterKind::expert, Cut::expert, outputs, inputs);
  weight.copies = divide_up(m.experts, m.expert_ranks);
  weight.active_copies = active;
  weight.quantizable = !m.expert_bias;
  if (!m.expert_bias) return;
  ParameterGroup& bias = out.add(module, ParameterKind::bias, Cut::expert, outputs);
  bias.copies = divide_up(m.experts, m.expert_ranks);
  bias.active_copies = active;
}

void expert_parameters(const MoeMlp& m, ExpertShape shape, TensorList& out) {
  if (m.gated) expert_projection(m, Module::gate, shape.intermediate, shape.width, out);
  expert_projection(m, Module::up, shape.intermediate, shape.width, out);
  expert_projection(m, Module::down, shape.width, shape.intermediate, out);
}

// A plain router is a torch.nn.Linear, which a quantizer replaces with the rest; with a bias or a correction bias
// (gpt-oss, DeepSeek-V3) it is a module of its own around a bare parameter, which stays as it is.
void router_parameters(const MoeMlp& m, Dim hidden, TensorList& out) {
  const Dim rows = m.experts + m.zero_experts;
  ParameterGroup& router = out.add(Module::router, ParameterKind::router, Cut::replicate, rows, hidden);
  router.quantizable = !m.router_bias && !m.router_correction_bias;
  if (m.router_bias) out.add(Module::router, ParameterKind::bias, Cut::replicate, rows);
  if (m.router_correction_bias) out.add(Module::router, ParameterKind::bias, Cut::replicate, rows).trainable = false;
  if (!m.router_scale) return;
  out.add(Module::router, ParameterKind::scalar, Cut::replicate, hidden);
  out.add(Module::router, ParameterKind::scalar, Cut::replicate, rows);
}

void shared_expert_parameters(const MoeMlp& m, Dim hidden, TensorList& out) {
  const Dim intermediate = m.shared_intermediate_size;
  if (intermediate == 0) return;
  if (m.gated) out.linear(Module::shared_gate, Cut::column, intermediate, hidden);
  out.linear(Module::shared_up, Cut::column, intermediate, hidden);
  out.linear(Module::shared_down, Cut::row, hidden, intermediate);
  if (m.shared_expert_gate) out.linear(Module::shared_expert_gate, Cut::replicate, 1, hidden);
}

}  // namespace

void mlp_parameters(const DenseMlp& m, Dim hidden, TensorList& out) {
  if (m.gated && m.fused_gate_up) {
    out.linear(Module::gate_up, Cut::column, 2 * m.intermediate_size, hidden, m.bias);
  } else {
    if (m.gated) out.linear(Module::gate, Cut::column, m.intermediate_size, hidden, m.bias);
    out.linear(Module::up, Cut::column, m.intermediate_size, hidden, m.bias);
  }
  // xIELU (arXiv:2411.13010) learns its two slopes.
  if (m.activation == Activation::xielu) out.add(Module::other, ParameterKind::scalar, Cut::replicate, 2);
  out.linear(Module::down, Cut::row, hidden, m.intermediate_size, m.bias);
}

void mlp_parameters(const MoeMlp& m, Dim hidden, TensorList& out) {
  router_parameters(m, hidden, out);
  if (m.latent_size > 0) {
    out.linear(Module::latent_in, Cut::replicate, m.latent_size, hidden);
    out.linear(Module::latent_out, Cut::replicate, hidden, m.latent_size);
    if (m.latent_norm) out.inner_norm(m.latent_size);
  }
  expert_parameters(m, {m.latent_size > 0 ? m.latent_size : hidden, m.intermediate_size}, out);
  shared_expert_parameters(m, hidden, out);
}

}  // namespace vramplan
