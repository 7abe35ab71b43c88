// Lightning attention (arXiv 2401.04658) as Transformers writes it (transformers/models/minimax/modeling_minimax.py,
// MiniMaxLightningAttention): q, k and v from one activated projection; for each block of 256 tokens the scores inside
// the block, times a decay that is no parameter, and a state carried on. Matrix products copy q, k and v of the block
// head by head and keep the copies; the state before each block stays as well. There is no kernel in fla or
// Transformers for it with a saved set of its own, so `kernels` changes nothing here.
#include "recurrent.hpp"

namespace vramplan::ops {
namespace {

struct Parts {
  TensorId q, k, v;
};

TensorId scan(Graph& g, const Parts& in) {
  const ElementType type = g.at(in.q).size.type;
  const Size values = every_token(Symbol::i, type);
  const Size scores = chunked(Symbol::d, kLightningBlock * kLightningBlock, type);
  const auto copied = [&](TensorId x) { return g.apply({x}, values, kRecurrent); };
  const TensorId raw = product(g, copied(in.q), copied(in.k), scores);
  const TensorId inside = product(g, scale(g, raw), copied(in.v), values);
  const TensorId written = product(g, copied(scale(g, in.k)), copied(in.v), chunked(Symbol::n, 1, type));
  const TensorId states = scale(g, written);
  const TensorId read = product(g, copied(scale(g, in.q)), states, values);
  return copied(add(g, read, inside));  // torch.cat over the blocks
}

}  // namespace

TensorId lightning_attention(Graph& g, const BlockContext& c, TensorId x, const LightningAttention&) {
  const Width i{Symbol::i};
  const TensorId projected =
      linear(g, c, x, {.module = Module::qkv, .in = {Symbol::h}, .out = {Symbol::j}, .component = kRecurrent});
  const TensorId acted = unary(g, projected, kRecurrent);
  const Size third = every_token(Symbol::i, g.at(acted).size.type);
  const auto [q, k, v] = g.split(acted, third, third, third);
  const TensorId joined = copy(g, scan(g, {q, k, v}));
  const TensorId normed = norm(g, c, joined, i);
  const TensorId gate =
      linear(g, c, x, {.module = Module::output_gate, .in = {Symbol::h}, .out = i, .component = kRecurrent});
  const TensorId opened = keeps_result(g, gate, g.at(gate).size);
  const TensorId out = product(g, opened, normed, g.at(normed).size);
  return linear(g, c, out, {.module = Module::o, .in = i, .out = {Symbol::h}, .component = kRecurrent});
}

}  // namespace vramplan::ops
