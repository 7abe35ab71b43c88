// Mixture of experts (megatron/core/transformer/moe: router.py, token_dispatcher.py, experts.py, shared_experts.py):
// the all-to-all dispatcher with TransformerEngine's permutation, experts as grouped products, probabilities applied
// between their two matrices.
#include "modules.hpp"

namespace vramplan::ops::megatron {
namespace {

constexpr Component kMoe = Component::activations_moe;

Size per_token(Width width, ElementType type) { return shared_size(width, type); }
Size rows(Symbol count, Width width, ElementType type) { return token_size(width, type, Symbol::one, count); }

// Probabilities in FP32 by token and expert, those of the load-balancing loss beside them, the chosen experts; and the
// map between rows and tokens that permutation keeps: two numbers an expert and one more
// (transformer_engine/pytorch/triton/permutation.py, make_row_id_map).
struct Routed {
  TensorId weights, map;
};
Routed route(Graph& g, const BlockContext& c, TensorId x) {
  Linear gate{.module = Module::router, .in = {Symbol::h}, .out = {Symbol::E}, .tokens = Symbol::sp, .component = kMoe};
  const Size all = per_token({Symbol::E}, ElementType::fp32);
  const bool trains = c.trains_base;
  const TensorId logits = g.apply({x}, all.as(g.at(x).size.type), kMoe, {.flops = matrix_flops(g, gate)});
  if (trains) g.save(x);
  const TensorId soft = g.tensor(all.times(2), kMoe, false);
  const TensorId chosen = g.tensor(per_token({Symbol::t}, ElementType::int64), kMoe, false);
  const TensorId weights = g.tensor(all, kMoe, g.at(logits).requires_grad || trains);
  g.run({logits}, {weights, soft, chosen}, {.saves = {soft, chosen}});
  const TensorId map = g.tensor({{Symbol::b, Symbol::sp, Symbol::E, Symbol::one}, 2, ElementType::fp32}, kMoe, false);
  return {weights, map};
}

struct Dispatched {
  TensorId rows, weights;
};

// Copies of the tokens, expert by expert; then those of all ranks for this rank's experts; then expert by expert again.
// Of these only the last is kept, by the experts.
Dispatched dispatch(Graph& g, TensorId x, const Routed& routed, const MoeMlp& mlp) {
  const ElementType type = g.at(x).size.type;
  const bool grad = g.at(x).requires_grad;
  TensorId sent = g.tensor(rows(Symbol::sx, {Symbol::m}, type), kMoe, grad);
  TensorId weights = g.tensor(rows(Symbol::sx, {Symbol::one}, ElementType::fp32), kMoe, grad);
  g.run({x, routed.weights}, {sent, weights, routed.map}, {.saves = {routed.map}});
  const Size received = rows(Symbol::sm, {Symbol::m}, type);
  const Size received_weights = rows(Symbol::sm, {Symbol::one}, ElementType::fp32);
  if (mlp.expert_ranks > 1) {
    sent = g.apply({sent}, received, kMoe);
    weights = g.apply({weights}, received_weights, kMoe);
  }
  if (divide_up(mlp.experts, mlp.expert_ranks) > 1) {
    sent = g.apply({sent}, received, kMoe);
    weights = g.apply({weights}, received_weights, kMoe);
  }
  return {sent, weights};
}

TensorId combine(Graph& g, TensorId computed, const Routed& routed, Size tokens, const MoeMlp& mlp) {
  TensorId sorted = computed;
  if (divide_up(mlp.experts, mlp.expert_ranks) > 1) sorted = copy(g, sorted);
  if (mlp.expert_ranks > 1) sorted = g.apply({sorted}, rows(Symbol::sx, {Symbol::m}, tokens.type), kMoe);
  return g.apply({sorted}, tokens, kMoe, {.saves = {routed.map}});
}

TensorId experts(Graph& g, const BlockContext& c, const Dispatched& in, const MoeMlp& mlp) {
  const auto matrix = [&](Module module, Width from, Width to) {
    return Linear{.module = module,
                  .in = from,
                  .out = to,
                  .copies = Symbol::er,
                  .tokens = Symbol::sm,
                  .bias = mlp.expert_bias,
                  .component = kMoe};
  };
  const Width m{Symbol::m};
  const Width fe{Symbol::fe};
  const TensorId wide =
      grouped_linear(g, c, in.rows, matrix(mlp.gated ? Module::gate : Module::up, m, {Symbol::fe, mlp.gated ? 2 : 1}));
  Again again(g);
  const TensorId inner = activation(g, c, wide, rows(Symbol::sm, fe, g.at(wide).size.type), kMoe, in.weights);
  again.stop(g);
  const TensorId out = grouped_linear(g, c, inner, matrix(Module::down, fe, m));
  if (c.recomputes(RecomputeModule::moe_act)) again.drop_output(g);
  return out;
}

// A column-parallel and a row-parallel matrix on the same normed tokens.
TensorId shared_experts(Graph& g, const BlockContext& c, TensorId x, const MoeMlp& mlp) {
  Again again(g);
  const Width fs{Symbol::fs};
  const TensorId wide = column_linear(
      g, c, x,
      {.module = Module::shared_gate, .in = {Symbol::h}, .out = {Symbol::fs, mlp.gated ? 2 : 1}, .component = kMoe});
  const TensorId inner = activation(g, c, wide, token_size(fs, g.at(wide).size.type), kMoe, kNoTensor);
  TensorId out =
      row_linear(g, c, inner, {.module = Module::shared_down, .in = fs, .out = {Symbol::h}, .component = kMoe});
  if (mlp.shared_expert_gate) out = g.apply({out}, g.at(out).size, kMoe, {.saves = {out}});
  again.stop(g);
  if (c.recomputes(RecomputeModule::shared_experts)) again.checkpoint(g);
  return out;
}

TensorId latent(Graph& g, const BlockContext& c, TensorId x, Module module, Width in, Width out) {
  return duplicated_linear(g, c, x, {.module = module, .in = in, .out = out, .component = kMoe});
}

}  // namespace

TensorId moe_mlp(Graph& g, const BlockContext& c, TensorId stream, const MoeMlp& mlp) {
  Again norm_again(g);
  const TensorId normed = norm(g, c, stream);
  norm_again.stop(g);
  Again layer_again(g);
  const Width h{Symbol::h};
  const Width m{Symbol::m};
  const bool narrow = mlp.latent_size > 0;
  const Routed routed = route(g, c, normed);
  const TensorId entered = narrow ? latent(g, c, normed, Module::latent_in, h, m) : normed;
  const Size tokens = g.at(entered).size;
  const Dispatched dispatched = dispatch(g, entered, routed, mlp);
  const bool shared = mlp.shared_intermediate_size > 0;
  const TensorId beside = shared ? shared_experts(g, c, normed, mlp) : kNoTensor;
  TensorId out = combine(g, experts(g, c, dispatched, mlp), routed, tokens, mlp);
  if (narrow) out = latent(g, c, out, Module::latent_out, m, h);
  if (shared) out = add(g, out, beside);
  layer_again.stop(g);
  if (c.recomputes(RecomputeModule::moe)) layer_again.checkpoint(g);
  if (c.recomputes(RecomputeModule::layernorm)) norm_again.drop_output(g);
  return out;
}

}  // namespace vramplan::ops::megatron
