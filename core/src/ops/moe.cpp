// Mixture of experts: a router picks experts_per_token of the experts; their inputs are gathered copies, tokens x experts
// per token wide; all experts are resident, only the chosen ones compute (Fedus et al. 2022, arXiv 2101.03961).
#include "builders.hpp"

namespace vramplan::ops {
namespace {

constexpr Component kMoe = Component::activations_moe;

struct Routed {
  TensorId weights;  // one per token and chosen expert
};

Routed route(Graph& g, const BlockContext& c, TensorId x, const MoeMlp& mlp) {
  const TensorId logits = linear(g, c, x, {.module = Module::router, .in = {Symbol::h}, .out = {Symbol::E}, .bias = mlp.router_bias, .component = kMoe});
  const TensorId wide = cast(g, logits, ElementType::fp32, kMoe);
  const TensorId soft = g.apply({wide}, g.at(wide).size, kMoe);
  g.save(soft);
  const Size chosen{{Symbol::b, Symbol::s, Symbol::t, Symbol::one}, 1, ElementType::fp32};
  const TensorId indices = g.tensor(chosen.as(ElementType::int64), kMoe, false);
  const TensorId weights = g.tensor(chosen, kMoe, g.at(soft).requires_grad);
  g.run({soft}, {weights, indices}, {.saves = {indices}});
  return {cast(g, weights, g.at(x).size.type, kMoe)};
}

// The experts' own MLP on gathered tokens.
TensorId expert_mlp(Graph& g, const BlockContext& c, TensorId gathered, const MoeMlp& mlp) {
  const Width m{Symbol::m};
  const Width fe{Symbol::fe};
  const auto expert = [&](Module module, Width in, Width out) {
    return Linear{.module = module, .in = in, .out = out, .per_token = Symbol::t, .copies = Symbol::E, .bias = mlp.expert_bias, .component = kMoe};
  };
  TensorId inner = kNoTensor;
  if (mlp.gated) {
    const TensorId gate = linear(g, c, gathered, expert(Module::gate, m, fe));
    const TensorId acted = activation(g, gate, mlp.activation, kMoe);
    const TensorId up = linear(g, c, gathered, expert(Module::up, m, fe));
    inner = multiply(g, acted, up, kMoe);
  } else {
    inner = activation(g, linear(g, c, gathered, expert(Module::up, m, fe)), mlp.activation, kMoe);
  }
  return linear(g, c, inner, expert(Module::down, fe, m));
}

TensorId shared_mlp(Graph& g, const BlockContext& c, TensorId x, const MoeMlp& mlp) {
  const Width h{Symbol::h};
  const Width fs{Symbol::fs};
  const TensorId gate = linear(g, c, x, {.module = Module::shared_gate, .in = h, .out = fs, .component = kMoe});
  const TensorId acted = activation(g, gate, mlp.activation, kMoe);
  const TensorId up = linear(g, c, x, {.module = Module::shared_up, .in = h, .out = fs, .component = kMoe});
  const TensorId out = linear(g, c, multiply(g, acted, up, kMoe), {.module = Module::shared_down, .in = fs, .out = h, .component = kMoe});
  if (!mlp.shared_expert_gate) return out;
  return g.apply({out}, g.at(out).size, kMoe, {.saves = {out}});
}

}  // namespace

TensorId moe_mlp(Graph& g, const BlockContext& c, TensorId x, const MoeMlp& mlp) {
  const Routed routed = route(g, c, x, mlp);
  TensorId entered = x;
  if (mlp.latent_size > 0) entered = linear(g, c, x, {.module = Module::latent_in, .in = {Symbol::h}, .out = {Symbol::m}, .component = kMoe});
  const Size gathered_size = token_size({Symbol::m}, g.at(entered).size.type, Symbol::t);
  const TensorId gathered = g.apply({entered}, gathered_size, kMoe);
  const TensorId computed = expert_mlp(g, c, gathered, mlp);
  const TensorId weighted = g.apply({computed, routed.weights}, g.at(computed).size, kMoe, {.saves = {computed, routed.weights}});
  TensorId out = g.apply({weighted}, token_size({Symbol::m}, g.at(weighted).size.type), kMoe);
  if (mlp.latent_size > 0) out = linear(g, c, out, {.module = Module::latent_out, .in = {Symbol::m}, .out = {Symbol::h}, .component = kMoe});
  if (mlp.shared_intermediate_size > 0) out = add(g, out, shared_mlp(g, c, x, mlp));
  return out;
}

}  // namespace vramplan::ops
