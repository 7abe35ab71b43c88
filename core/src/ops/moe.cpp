// Mixture of experts: a router picks experts_per_token of the experts; their inputs are gathered copies, tokens x
// experts per token wide; all experts are resident, only the chosen ones compute (Fedus et al. 2022, arXiv 2101.03961).
#include "builders.hpp"

namespace vramplan::ops {
namespace {

constexpr Component kMoe = Component::activations_moe;

// The weight of each chosen expert, a token.
TensorId route(Graph& g, const BlockContext& c, TensorId x, const MoeMlp& mlp) {
  const TensorId logits = linear(
      g, c, x,
      {.module = Module::router, .in = {Symbol::h}, .out = {Symbol::E}, .bias = mlp.router_bias, .component = kMoe});
  const TensorId wide = cast(g, logits, ElementType::fp32, kMoe);
  const TensorId soft = g.apply({wide}, g.at(wide).size, kMoe);
  g.save(soft);
  const Size chosen{{Symbol::b, Symbol::s, Symbol::t, Symbol::one}, 1, ElementType::fp32};
  const TensorId indices = g.tensor(chosen.as(ElementType::int64), kMoe, false);
  const TensorId weights = g.tensor(chosen, kMoe, g.at(soft).requires_grad);
  g.run({soft}, {weights, indices}, {.saves = {indices}});
  return weights;
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
                  .outside_linear = true,
                  .component = kMoe};
  };
  const Width first{Symbol::fe, mlp.gated ? 2 : 1};
  const TensorId entered = linear(g, c, gathered, expert(mlp.gated ? Module::gate : Module::up, m, first));
  TensorId inner = kNoTensor;
  if (mlp.gated) {
    const Size half = token_size({Symbol::fe}, g.at(entered).size.type, Symbol::t);
    const auto [gate, up] = g.split(entered, half, half);
    inner = multiply(g, activation(g, c, gate, mlp.activation, kMoe), up, kMoe);
  } else {
    inner = activation(g, c, entered, mlp.activation, kMoe);
  }
  return linear(g, c, inner, expert(Module::down, {Symbol::fe}, m));
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
  if (mlp.latent_size > 0)
    out = linear(g, c, out, {.module = Module::latent_out, .in = {Symbol::m}, .out = {Symbol::h}, .component = kMoe});
  if (mlp.shared_intermediate_size > 0) out = add(g, out, shared_mlp(g, c, x, mlp));
  return out;
}

}  // namespace vramplan::ops
