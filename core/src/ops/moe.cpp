// Mixture of experts: a router picks experts_per_token of the experts; their inputs are gathered copies, tokens x
// experts per token wide; all experts are resident, only the chosen ones compute (Fedus et al. 2022, arXiv 2101.03961).
#include <vector>

#include "builders.hpp"

namespace vramplan::ops {
namespace {

constexpr Component kMoe = Component::activations_moe;

// Matrices that a rank has of one kind: an expert each.
Symbol copies_of(const MoeMlp& mlp) { return mlp.expert_ranks > 1 ? Symbol::er : Symbol::E; }

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
                  .copies = copies_of(mlp),
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

// One of several experts that run one after another: its tokens are a copy, and its answer is added to that of the
// others in place.
TensorId one_expert(Graph& g, const BlockContext& c, TensorId x, TensorId routed, TensorId sum, const MoeMlp& mlp) {
  const auto module = [&](Module name, Width in, Width out) {
    return Linear{.module = name,
                  .in = in,
                  .out = out,
                  .copies = copies_of(mlp),
                  .tokens = Symbol::se,
                  .bias = mlp.expert_bias,
                  .component = kMoe};
  };
  const Width m{Symbol::m};
  const Width fe{Symbol::fe};
  const auto tokens = [&](Width width, ElementType type) { return token_size(width, type, Symbol::one, Symbol::se); };
  const TensorId gathered = g.apply({x}, tokens(m, g.at(x).size.type), kMoe);
  TensorId inner = kNoTensor;
  if (mlp.gated) {
    const TensorId acted = activation(g, c, linear(g, c, gathered, module(Module::gate, m, fe)), mlp.activation, kMoe);
    inner = multiply(g, acted, linear(g, c, gathered, module(Module::up, m, fe)), kMoe);
  } else {
    inner = activation(g, c, linear(g, c, gathered, module(Module::up, m, fe)), mlp.activation, kMoe);
  }
  const TensorId computed = linear(g, c, inner, module(Module::down, fe, m));
  const TensorId weighted = g.apply({computed, routed}, g.at(computed).size, kMoe);
  if (g.at(routed).requires_grad) g.save(computed);
  if (g.at(computed).requires_grad) g.save(routed);
  g.hold({gathered});
  return g.apply({sum, weighted}, g.at(sum).size, kMoe,
                 {.passes_gradient = true, .backward = {Component::working_memory, {g.at(weighted).size}}});
}

// What an expert keeps for backward.
std::vector<Tensor> kept_by_one_expert(Graph g, const BlockContext& c, TensorId x, TensorId routed, TensorId sum,
                                       const MoeMlp& mlp) {
  const std::size_t before = g.tensors().size();
  (void)one_expert(g, c, x, routed, sum, mlp);
  std::vector<Tensor> kept;
  for (std::size_t i = before; i < g.tensors().size(); ++i) {
    const Tensor& t = g.tensors()[i];
    const bool of_all = t.component == Component::autocast_weights;  // weights are counted for all experts together
    if (t.first_save >= 0 && !t.external && !of_all) kept.push_back(t);
  }
  return kept;
}

// The last expert operation by operation; of those before it what they keep, which is there while its backward runs.
TensorId looped_experts(Graph& g, const BlockContext& c, TensorId x, TensorId routed, const MoeMlp& mlp) {
  const TensorId sum = g.apply({x, routed}, token_size({Symbol::m}, g.at(x).size.type), kMoe);
  const auto others = static_cast<std::int32_t>(divide_up(mlp.experts, mlp.expert_ranks) - 1);
  for (const Tensor& t : kept_by_one_expert(g, c, x, routed, sum, mlp)) {
    const TensorId kept = g.tensor(t.size.times(others), t.component, true);
    g.run({}, {kept}, {.saves = {kept}});
  }
  return one_expert(g, c, x, routed, sum, mlp);
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

// All experts at once, on copies of the tokens in the order of their experts.
TensorId grouped_experts(Graph& g, const BlockContext& c, TensorId x, TensorId routed, const MoeMlp& mlp) {
  const TensorId gathered = g.apply({x}, token_size({Symbol::m}, g.at(x).size.type, Symbol::t), kMoe);
  const TensorId computed = expert_mlp(g, c, gathered, mlp);
  const TensorId weighted = g.apply({computed, routed}, g.at(computed).size, kMoe);
  if (g.at(routed).requires_grad) g.save(computed);
  if (g.at(computed).requires_grad) g.save(routed);
  const TensorId out = g.apply({weighted}, token_size({Symbol::m}, g.at(weighted).size.type), kMoe);
  g.hold({gathered});
  return out;
}

}  // namespace

TensorId moe_mlp(Graph& g, const BlockContext& c, TensorId x, const MoeMlp& mlp) {
  const TensorId routed = route(g, c, x, mlp);
  TensorId entered = x;
  if (mlp.latent_size > 0)
    entered = linear(g, c, x, {.module = Module::latent_in, .in = {Symbol::h}, .out = {Symbol::m}, .component = kMoe});
  TensorId out = c.framework.loops_experts ? looped_experts(g, c, entered, routed, mlp)
                                           : grouped_experts(g, c, entered, routed, mlp);
  if (mlp.latent_size > 0)
    out = linear(g, c, out, {.module = Module::latent_out, .in = {Symbol::m}, .out = {Symbol::h}, .component = kMoe});
  if (mlp.shared_intermediate_size > 0) out = add(g, out, shared_mlp(g, c, x, mlp));
  return out;
}

}  // namespace vramplan::ops
