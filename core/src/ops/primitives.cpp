// Elementary operations and the linear layer, with what PyTorch's derivatives (tools/autograd/derivatives.yaml) save.
#include "builders.hpp"

namespace vramplan::ops {

TensorId cast(Graph& g, TensorId x, ElementType type, Component component) {
  const Tensor& tensor = g.at(x);
  if (tensor.size.type == type) return x;
  return g.apply({x}, tensor.size.as(type), component);
}

TensorId add(Graph& g, TensorId x, TensorId y) {
  // The sum takes the wider type. Its gradient goes to both sides unchanged, or cast where a side is narrower.
  const Tensor a = g.at(x);
  const Tensor b = g.at(y);
  const bool same = a.size.type == b.size.type;
  const Size wide = bytes_per_element(a.size.type) >= bytes_per_element(b.size.type) ? a.size : b.size;
  return g.apply({x, y}, wide, Component::activations_residual, {.passes_gradient = same});
}

TensorId multiply(Graph& g, TensorId x, TensorId y, Component component) {
  const bool x_grad = g.at(x).requires_grad;
  const bool y_grad = g.at(y).requires_grad;
  const bool wider = bytes_per_element(g.at(y).size.type) > bytes_per_element(g.at(x).size.type);
  const TensorId out = g.apply({x, y}, wider ? g.at(y).size : g.at(x).size, component);
  if (y_grad) g.save(x);
  if (x_grad) g.save(y);
  return out;
}

TensorId scale(Graph& g, TensorId x) { return g.apply({x}, g.at(x).size, g.at(x).component); }

TensorId copy(Graph& g, TensorId x) { return g.apply({x}, g.at(x).size, g.at(x).component); }

TensorId unary(Graph& g, TensorId x, Component component) {
  return g.apply({x}, g.at(x).size, component, {.saves = {x}});
}

TensorId dropout(Graph& g, TensorId x, Component component) {
  const Size size = g.at(x).size;
  const TensorId mask = g.tensor(size.as(ElementType::bool8), component, false);
  const TensorId out = g.tensor(size, component, g.at(x).requires_grad);
  g.run({x}, {out, mask}, {.saves = {mask}});
  return out;
}

namespace {

// gelu_new spelled in tensor operations: 0.5 * x * (1 + tanh(c * (x + 0.044715 * x^3))). Autocast takes the power in
// FP32, and all that is made of it follows.
TensorId gelu_new(Graph& g, const BlockContext& c, TensorId x, Component component) {
  const TensorId half = scale(g, x);
  const TensorId base = c.framework.autocast ? cast(g, x, ElementType::fp32, component) : x;
  const TensorId cubed = unary(g, base, component);
  const TensorId inner = scale(g, add(g, x, scale(g, cubed)));
  const Size size = g.at(inner).size;
  const TensorId tanh = g.apply({inner}, size, component);
  g.save(tanh);
  return multiply(g, half, scale(g, tanh), component);
}

}  // namespace

TensorId activation(Graph& g, const BlockContext& c, TensorId x, Activation kind, Component component) {
  switch (kind) {
    case Activation::gelu_new: return c.framework.native_gelu ? unary(g, x, component) : gelu_new(g, c, x, component);
    case Activation::relu: {  // saves its result, not its input
      const TensorId out = g.apply({x}, g.at(x).size, component);
      g.save(out);
      return out;
    }
    case Activation::relu2: {
      const TensorId out = activation(g, c, x, Activation::relu, component);
      return unary(g, out, component);
    }
    case Activation::silu:
    case Activation::gelu:
    case Activation::gelu_tanh:
    case Activation::clamped_swiglu:  // its sigmoid: see moe.cpp
    case Activation::xielu: return unary(g, x, component);
  }
  return x;
}

namespace {

Size weight_size(const Linear& w, ElementType type) {
  return Size{{w.copies, w.in.symbol, w.out.symbol, Symbol::one}, w.in.multiplier * w.out.multiplier, type};
}

// One expert at a time is dequantized, cast or differentiated.
Size working_weight_size(const Linear& w, ElementType type) {
  return Size{{Symbol::one, w.in.symbol, w.out.symbol, Symbol::one}, w.in.multiplier * w.out.multiplier, type};
}

Workspace dequantized(const BlockContext& c, const Linear& w) {
  Workspace workspace(Component::dequantized_weights, {working_weight_size(w, c.compute)});
  if (c.framework.dequantizes_through_fp16 && c.compute != ElementType::fp16) {
    workspace.add(working_weight_size(w, ElementType::fp16));
  }
  return workspace;
}

bool is_quantized(const BlockContext& c, const Linear& w) {
  return c.quantized && (w.quantizable || (w.module == Module::head && c.framework.quantizes_head));
}
bool trains_weight(const BlockContext& c, const Linear& w) {
  return !is_quantized(c, w) && (w.leftover ? c.trains_head : c.trains_base);
}
ElementType stored_type(const BlockContext& c, const Linear& w) { return w.leftover ? c.tables : c.weights; }

}  // namespace

Polynomial matrix_flops(Graph& g, const Linear& w) {
  const Size tokens = token_size({Symbol::one}, ElementType::int8, w.per_token, w.tokens);
  const Size weight = working_weight_size(w, ElementType::int8);
  return g.polynomial(tokens) * g.size_in_bytes(weight).value * 2;
}

// The gradient of a parameter outlives the block; when there is one already, the new one is added and dropped.
void add_parameter_gradient(const Graph& g, const BlockContext& c, const Size& parameter, OpTraits& traits) {
  if (c.accumulates) {
    traits.backward.add(parameter);
  } else {
    traits.parameter_gradients += g.size_in_bytes(parameter);
  }
}

TensorId trained_weight(Graph& g, const Size& size, bool added, const Workspace& sum) {
  const TensorId weight = g.external(size, Component::gradients, true);
  OpTraits traits{.gradient_in_pieces = !added, .backward = sum};
  if (!added) traits.parameter_gradients = g.size_in_bytes(size);
  g.run({}, {weight}, traits);
  return weight;
}

// The 16-bit copy of a weight: one operation, whose backward casts the copy's gradient to the weight's type. Copies of
// trained weights stay in autocast's cache until its context ends (aten/src/ATen/autocast_mode.cpp).
TensorId autocast_copy(Graph& g, const BlockContext& c, const Size& weight, bool trains) {
  const TensorId copied = g.tensor(weight.as(c.compute), Component::autocast_weights, trains);
  OpTraits traits;
  if (trains) add_parameter_gradient(g, c, weight, traits);
  g.run({}, {copied}, traits);
  if (trains) {
    g.hold_to_end(copied);
    g.cache_weight_copy(g.size_in_bytes(weight.as(c.compute)));
  }
  return copied;
}

namespace {

// bitsandbytes/autograd/_functions.py, MatMul8bitLt, with a frozen weight. The input is rounded to 8 bits by way of
// FP16, where its absolute values and a mask find the outliers; the product is summed in 32 bits and scaled into FP16;
// autocast reaches none of it. The node holds the input itself; backward multiplies by the weight in the input's type.
TensorId int8_linear(Graph& g, const BlockContext& c, TensorId x, const Linear& w) {
  const Size in = g.at(x).size;
  const bool half = in.type == ElementType::fp16;
  Workspace rounding{Component::working_memory, {in.as(ElementType::fp16), in.as(ElementType::bool8)}};
  if (!half) rounding.add(in.as(ElementType::fp16));
  const TensorId rounded = g.tensor(in.as(ElementType::int8), w.component, false);
  g.run({x}, {rounded}, {.forward = rounding});
  const Size size = token_size(w.out, in.type, w.per_token, w.tokens);
  Workspace scaling{Component::working_memory, {size.as(ElementType::fp32)}};  // four bytes: INT32
  if (!half) scaling.add(size.as(ElementType::fp16));
  const bool differentiable = g.at(x).requires_grad;
  const TensorId out = g.tensor(size, w.component, differentiable);
  g.run({x, rounded}, {out},
        {.forward = scaling,
         .backward = {Component::dequantized_weights, {working_weight_size(w, in.type)}},
         .flops = matrix_flops(g, w)});
  if (differentiable && c.framework.reentrant_checkpoints) g.save(x);
  if (differentiable && !c.framework.reentrant_checkpoints) g.pin(x);
  return out;
}

TensorId with_adapter(Graph& g, const BlockContext& c, TensorId x, TensorId base, const Linear& w) {
  return c.adapter.on(w.module) && w.quantizable ? adapter(g, c, x, base, w) : base;
}

}  // namespace

TensorId linear(Graph& g, const BlockContext& c, TensorId x, const Linear& w) {
  const bool merged = c.adapter.on(w.module) && w.quantizable && w.merged_ranks > 0;
  if (merged && c.framework.merges_expert_adapters) return merged_linear(g, c, x, w);
  if (c.multiplies_int8 && is_quantized(c, w)) return with_adapter(g, c, x, int8_linear(g, c, x, w), w);
  const ElementType entered = g.at(x).size.type;
  const bool quantized = is_quantized(c, w);
  const bool trains = trains_weight(c, w);
  const bool autocast = c.framework.autocast && !w.outside_linear;
  const bool casts = autocast && !quantized && stored_type(c, w) != c.compute;
  const TensorId copied = casts ? autocast_copy(g, c, weight_size(w, stored_type(c, w)), trains) : kNoTensor;
  const TensorId in = autocast || quantized ? cast(g, x, c.compute, w.component)
                      : w.outside_linear    ? cast(g, x, stored_type(c, w), w.component)
                                            : x;
  const bool input_needs_gradient = g.at(in).requires_grad;

  OpTraits traits;
  traits.flops = matrix_flops(g, w);
  if (quantized) traits.forward = dequantized(c, w);
  if (quantized && input_needs_gradient) traits.backward = dequantized(c, w);
  if (trains && !casts) {
    add_parameter_gradient(g, c, weight_size(w, w.leftover ? c.tables : c.gradients), traits);
  }
  const Size size = token_size(w.out, g.at(in).size.type, w.per_token, w.tokens);
  const TensorId out = g.tensor(size, w.component, input_needs_gradient || trains);
  if (casts) {
    g.run({in, copied}, {out}, traits);
    if (input_needs_gradient) g.save(copied);
  } else {
    g.run({in}, {out}, traits);
  }
  if (c.caches && w.copies == Symbol::one) g.cache_in_turn(out);
  const bool keeps = quantized && input_needs_gradient && c.framework.quantized_keeps_input;
  if (trains || keeps) g.save(in);
  TensorId result = out;
  if (quantized && c.framework.quantized_output_follows_input) result = cast(g, out, entered, w.component);
  return with_adapter(g, c, x, result, w);
}

}  // namespace vramplan::ops
