// Mixture of experts: a router picks experts_per_token of the experts; their inputs are gathered copies, tokens x
// experts per token wide; all experts are resident, only the chosen ones compute (Fedus et al. 2022, arXiv 2101.03961).
#include "builders.hpp"

namespace vramplan::ops {
namespace {

constexpr Component kMoe = Component::activations_moe;

// The weight of each chosen expert, a token.
TensorId route(Graph& g, const BlockContext& c, TensorId x, const MoeMlp& mlp) {
  const TensorId logits = linear(g, c, x,
                                 {.module = Module::router,
                                  .in = {Symbol::h},
                                  .out = {Symbol::E},
                                  .bias = mlp.router_bias,
                                  .quantizable = !mlp.router_bias && !mlp.router_correction_bias,
                                  .merged_ranks = 1,
                                  .component = kMoe});
  const TensorId wide = cast(g, logits, ElementType::fp32, kMoe);
  const TensorId soft = g.apply({wide}, g.at(wide).size, kMoe);
  g.save(soft);
  const Size chosen{{Symbol::b, Symbol::s, Symbol::t, Symbol::one}, 1, ElementType::fp32};
  const TensorId indices = g.tensor(chosen.as(ElementType::int64), kMoe, false);
  const TensorId weights = g.tensor(chosen, kMoe, g.at(soft).requires_grad);
  g.run({soft}, {weights, indices}, {.saves = {indices}});
  return weights;
}

// The bias of each row's expert, gathered; the product takes it up in place.
TensorId gathered_bias(Graph& g, const BlockContext& c, const MoeMlp& mlp, Width width) {
  return mlp.expert_bias ? g.apply({}, token_size(width, c.weights, Symbol::t), kMoe) : kNoTensor;
}

// modeling_gpt_oss.py, _apply_gate.
TensorId clamped_swiglu(Graph& g, TensorId gate_up, Size half) {
  const TensorId gate = unary(g, g.view(gate_up, half), kMoe);
  const TensorId up = unary(g, g.view(gate_up, half), kMoe);
  const TensorId scaled = scale(g, gate);
  const TensorId sigmoid = g.apply({scaled}, half, kMoe);
  g.save(sigmoid);
  const TensorId glu = multiply(g, gate, sigmoid, kMoe);
  const TensorId lifted = scale(g, up);
  const TensorId out = multiply(g, lifted, glu, kMoe);
  g.hold({gate_up, gate, up, glu});
  return out;
}

TensorId gated(Graph& g, const BlockContext& c, TensorId gate_up, Size half, Activation kind) {
  if (kind == Activation::clamped_swiglu) return clamped_swiglu(g, gate_up, half);
  const auto [gate, up] = g.split(gate_up, half, half);
  return multiply(g, activation(g, c, gate, kind, kMoe), up, kMoe);
}

// The experts' own MLP on gathered tokens: all experts' matrices are one parameter each, gate and up together,
// multiplied group by group (transformers/integrations/moe.py, grouped_mm).
TensorId expert_mlp(Graph& g, const BlockContext& c, TensorId gathered, const MoeMlp& mlp) {
  const Width m{Symbol::m};
  const auto expert = [&](Module module, Width in, Width out) {
    return Linear{.module = module,
                  .in = in,
                  .out = out,
                  .per_token = Symbol::t,
                  .copies = Symbol::E,
                  .bias = mlp.expert_bias,
                  .quantizable = !mlp.expert_bias,
                  .outside_linear = true,
                  .merged_ranks = module == Module::gate ? 2 : 1,
                  .component = kMoe};
  };
  const Width first{Symbol::fe, mlp.gated ? 2 : 1};
  const TensorId first_bias = gathered_bias(g, c, mlp, first);
  const TensorId entered = linear(g, c, gathered, expert(mlp.gated ? Module::gate : Module::up, m, first));
  const Size half = token_size({Symbol::fe}, g.at(entered).size.type, Symbol::t);
  const TensorId inner =
      mlp.gated ? gated(g, c, entered, half, mlp.activation) : activation(g, c, entered, mlp.activation, kMoe);
  const TensorId second_bias = gathered_bias(g, c, mlp, m);
  g.hold({first_bias});
  const TensorId out = linear(g, c, inner, expert(Module::down, {Symbol::fe}, m));
  g.hold({second_bias});
  return out;
}

TensorId shared_mlp(Graph& g, const BlockContext& c, TensorId x, const MoeMlp& mlp) {
  const Width h{Symbol::h};
  const Width fs{Symbol::fs};
  const TensorId gate = linear(g, c, x, {.module = Module::shared_gate, .in = h, .out = fs, .component = kMoe});
  const TensorId acted = activation(g, c, gate, mlp.activation, kMoe);
  const TensorId up = linear(g, c, x, {.module = Module::shared_up, .in = h, .out = fs, .component = kMoe});
  const TensorId out = linear(g, c, multiply(g, acted, up, kMoe),
                              {.module = Module::shared_down, .in = fs, .out = h, .component = kMoe});
  if (!mlp.shared_expert_gate) return out;
  return g.apply({out}, g.at(out).size, kMoe, {.saves = {out}});
}

}  // namespace

TensorId moe_mlp(Graph& g, const BlockContext& c, TensorId x, const MoeMlp& mlp) {
  const TensorId routed = route(g, c, x, mlp);
  TensorId entered = x;
  if (mlp.latent_size > 0)
    entered = linear(g, c, x, {.module = Module::latent_in, .in = {Symbol::h}, .out = {Symbol::m}, .component = kMoe});
  const Size gathered_size = token_size({Symbol::m}, g.at(entered).size.type, Symbol::t);
  const TensorId gathered = g.apply({entered}, gathered_size, kMoe);
  const TensorId computed = expert_mlp(g, c, gathered, mlp);
  const TensorId weighted = g.apply({computed, routed}, g.at(computed).size, kMoe);
  if (g.at(routed).requires_grad) g.save(computed);
  if (g.at(computed).requires_grad) g.save(routed);
  TensorId out = g.apply({weighted}, token_size({Symbol::m}, g.at(weighted).size.type), kMoe);
  g.hold({gathered});
  if (mlp.latent_size > 0)
    out = linear(g, c, out, {.module = Module::latent_out, .in = {Symbol::m}, .out = {Symbol::h}, .component = kMoe});
  if (mlp.shared_intermediate_size > 0) out = add(g, out, shared_mlp(g, c, x, mlp));
  return out;
}

}  // namespace vramplan::ops
