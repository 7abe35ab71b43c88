// The norm and the gate at the end of a recurrent layer, in FP32 tensor operations. Qwen3-Next norms each head and then
// gates (Qwen3NextRMSNormGated); Mamba-2 gates and then norms each group (BambaRMSNormGated). No kernel replaces it:
// Liger patches the other norms only.
#include "recurrent.hpp"

namespace vramplan::ops {
namespace {

// weight * x, as a parameter of the norms.
TensorId weighted(Graph& g, const BlockContext& c, TensorId x) {
  const Size in = g.at(x).size;
  const bool wider = bytes_per_element(c.leftovers) > bytes_per_element(in.type);
  const TensorId out = g.tensor(wider ? in.as(c.leftovers) : in, kRecurrent, g.at(x).requires_grad || c.trains_norms);
  g.run({x}, {out}, {});
  if (c.trains_norms) g.save(x);
  return out;
}

TensorId normed(Graph& g, TensorId x, Symbol rows) {
  const Size wide = g.at(x).size;
  const TensorId row = g.tensor(every_token(rows), kRecurrent, g.at(x).requires_grad);
  g.run({x}, {row}, {.saves = {x}, .forward = {Component::working_memory, {wide}}});
  g.save(row);
  return g.apply({x, row}, wide, kRecurrent, {.saves = {x, row}});
}

TensorId silu32(Graph& g, TensorId gate) { return unary(g, cast(g, gate, ElementType::fp32, kRecurrent), kRecurrent); }

}  // namespace

TensorId gated_norm(Graph& g, const BlockContext& c, TensorId x, TensorId gate, Symbol rows, GateOrder order) {
  const ElementType entered = g.at(x).size.type;
  const TensorId wide = cast(g, x, ElementType::fp32, kRecurrent);
  if (order == GateOrder::before_norm) {
    const TensorId gated = product(g, wide, silu32(g, gate), g.at(wide).size);
    return weighted(g, c, cast(g, normed(g, gated, rows), entered, kRecurrent));
  }
  const TensorId scaled = weighted(g, c, cast(g, normed(g, wide, rows), entered, kRecurrent));
  const TensorId gated = product(g, scaled, silu32(g, gate), g.at(wide).size);
  return cast(g, gated, entered, kRecurrent);
}

}  // namespace vramplan::ops
