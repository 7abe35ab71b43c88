// LFM2's gated short convolution (transformers/models/lfm2/modeling_lfm2.py): B, C and x from one projection, then
// C * conv(B * x); and the causal convolution that all recurrent layers have before their scan.
//
// Composite: F.conv1d pads on both sides, so that its output is `taps` - 1 positions longer than the sequence and is
// cut; it keeps its input and the weight. Autocast casts both to 16 bits, after the module cast the input to the
// weight's type. Fused (causal_conv1d_interface.py, CausalConv1dFn): keeps its input only, whatever the activation.
#include "recurrent.hpp"

namespace vramplan::ops {
namespace {

Size weight_of(const Convolution& w, ElementType type) {
  return Size{{w.channels, Symbol::one, Symbol::one, Symbol::one}, static_cast<std::int32_t>(w.taps), type};
}

Size margin_of(const Convolution& w, ElementType type) {
  return Size{{Symbol::b, w.channels, Symbol::one, Symbol::one}, static_cast<std::int32_t>(w.taps - 1), type};
}

Convolved fused(Graph& g, const BlockContext& c, TensorId x, const Convolution& w) {
  OpTraits traits;
  if (c.trains_base) add_parameter_gradient(g, c, weight_of(w, c.gradients), traits);
  const TensorId out = g.tensor(g.at(x).size, kRecurrent, g.at(x).requires_grad || c.trains_base);
  g.run({x}, {out}, traits);
  if (g.at(out).requires_grad) g.save(x);
  return {.out = out};
}

// The convolution itself, its output as long as its storage is.
Convolved padded(Graph& g, const BlockContext& c, TensorId in, const Convolution& w) {
  const bool casts = c.framework.autocast && c.leftovers != c.compute;
  const TensorId copied = casts ? autocast_copy(g, c, weight_of(w, c.leftovers), c.trains_base) : kNoTensor;
  OpTraits traits;
  if (c.trains_base && !casts) add_parameter_gradient(g, c, weight_of(w, c.gradients), traits);
  const ElementType type = g.at(in).size.type;
  const TensorId out = g.tensor(g.at(in).size, kRecurrent, g.at(in).requires_grad || c.trains_base);
  const TensorId margin = g.tensor(margin_of(w, type), kRecurrent, false);
  if (casts) {
    g.run({in, copied}, {out, margin}, traits);
  } else {
    g.run({in}, {out, margin}, traits);
  }
  if (g.at(out).requires_grad) g.save(in);
  if (g.at(out).requires_grad && casts) g.save(copied);
  return {out, margin};
}

}  // namespace

TensorId product(Graph& g, TensorId x, TensorId y, Size made) {
  const TensorId out = g.apply({x, y}, made, kRecurrent);
  if (g.at(y).requires_grad) g.save(x);
  if (g.at(x).requires_grad) g.save(y);
  return out;
}

TensorId keeps_result(Graph& g, TensorId x, Size made) {
  const TensorId out = g.apply({x}, made, kRecurrent);
  if (g.at(out).requires_grad) g.save(out);
  return out;
}

Convolved causal_convolution(Graph& g, const BlockContext& c, TensorId x, const Convolution& w) {
  if (c.framework.recurrence == RecurrenceKernel::fused) return fused(g, c, x, w);
  const ElementType entered = g.at(x).size.type;
  const TensorId in = cast(g, x, c.leftovers, kRecurrent);
  const Convolved convolved = padded(g, c, c.framework.autocast ? cast(g, in, c.compute, kRecurrent) : in, w);
  const TensorId cut = g.view(convolved.out, g.at(convolved.out).size);
  const bool keeps = g.at(cut).requires_grad;
  if (w.activates) {
    const TensorId acted = unary(g, cut, kRecurrent);
    if (keeps) g.save(convolved.margin);
    return {.out = cast(g, acted, entered, kRecurrent)};
  }
  if (g.at(cut).size.type != entered) return {.out = cast(g, cut, entered, kRecurrent)};
  return {cut, convolved.margin};
}

TensorId short_convolution(Graph& g, const BlockContext& c, TensorId x, const ShortConvolution& m) {
  const Width h{Symbol::h};
  const TensorId entered =
      linear(g, c, x, {.module = Module::in_proj, .in = h, .out = {Symbol::j}, .component = kRecurrent});
  const Size third = token_size(h, g.at(entered).size.type);
  const auto [first_gate, second_gate, value] = g.split(entered, third, third, third);
  const TensorId gated = multiply(g, first_gate, value, kRecurrent);
  const Convolved convolved = causal_convolution(g, c, gated, {.taps = m.kernel});
  const TensorId mixed = multiply(g, second_gate, convolved.out, kRecurrent);
  if (convolved.margin != kNoTensor && g.at(second_gate).requires_grad) g.save(convolved.margin);
  const TensorId out = linear(g, c, mixed, {.module = Module::out_proj, .in = h, .out = h, .component = kRecurrent});
  g.hold({entered, mixed});
  return out;
}

}  // namespace vramplan::ops
