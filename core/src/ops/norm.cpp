// Norms. RMSNorm: Zhang and Sennrich 2019 (arXiv 1910.07467) as Transformers spells it in tensor operations; LayerNorm
// as PyTorch's native kernel.
#include "builders.hpp"

namespace vramplan::ops {
namespace {

constexpr Component kNorm = Component::activations_norm;

Size row_statistic(const Graph& g, TensorId x, Symbol rows, std::int32_t count) {
  const auto& of = g.at(x).size.symbols;
  return Size{{of[0], of[1], rows, Symbol::one}, count, ElementType::fp32};
}

bool trains_norms(const BlockContext& c) { return c.trains_norms; }

Bytes norm_gradients(const Graph& g, const BlockContext& c, Width width) {
  if (!trains_norms(c) || c.accumulates) return {};
  const Size vector{{width.symbol, Symbol::one, Symbol::one, Symbol::one}, width.multiplier, c.gradients};
  return g.size_in_bytes(vector);
}

// One kernel that keeps its input and a statistic a row: native LayerNorm, fused RMSNorm.
TensorId fused(Graph& g, const BlockContext& c, TensorId x, Width width, Size statistics, bool in_place = false) {
  const TensorId row = g.tensor(statistics, kNorm, false);
  const Size size = token_size(width, g.at(x).size.type);
  const TensorId y = g.tensor(size, kNorm, g.at(x).requires_grad || trains_norms(c));
  g.run({x}, {y, row},
        {.saves = {x, row}, .passes_gradient = in_place, .parameter_gradients = norm_gradients(g, c, width)});
  return y;
}

// The gradient of what a norm makes can be overwritten when a linear layer made it: not after the branch, where the
// residual stream shares it. Norms that scale by 1 + weight never do (Gemma's in Unsloth, Qwen3-Next's in Liger; of
// Liger's only the first Gemma's does).
bool writes_over_gradient(const BlockContext& c) {
  return c.model->norm_placement == NormPlacement::pre && !c.model->norm.unit_offset;
}

// x32 = x.float(); r = rsqrt(mean(x32^2)); n = x32 * r; y = weight * n
TensorId composite_rms(Graph& g, const BlockContext& c, TensorId x, Width width, Symbol rows) {
  const Norm& shape = c.model->norm;
  const ElementType entered = g.at(x).size.type;
  const TensorId x32 = cast(g, x, ElementType::fp32, kNorm);
  const TensorId row = g.tensor(row_statistic(g, x, rows, 1), kNorm, g.at(x).requires_grad);
  const Size wide = g.at(x32).size;
  g.run({x32}, {row}, {.saves = {x32}, .forward = {Component::working_memory, {wide}}});
  g.save(row);
  const TensorId normed32 = g.apply({x32, row}, wide, kNorm, {.saves = {x32, row}});
  g.hold({x32});
  if (!shape.weight) return cast(g, normed32, entered, kNorm);
  const bool fp32_scale = shape.unit_offset || shape.scale_before_cast;
  const TensorId normed = fp32_scale ? normed32 : cast(g, normed32, entered, kNorm);
  const ElementType weight_type = c.leftovers;
  const Size in = g.at(normed).size;
  const ElementType out_type = bytes_per_element(weight_type) > bytes_per_element(in.type) ? weight_type : in.type;
  const TensorId y = g.tensor(in.as(out_type), kNorm, g.at(normed).requires_grad || trains_norms(c));
  const Workspace product = trains_norms(c) ? Workspace{Component::working_memory, {in.as(out_type)}} : Workspace{};
  g.run({normed}, {y}, {.backward = product, .parameter_gradients = norm_gradients(g, c, width)});
  if (trains_norms(c)) g.save(normed);
  return fp32_scale ? cast(g, y, entered, kNorm) : y;
}

// x * r in the type of x, raised to FP32 and lowered again, times the weight (Aleph-Alpha/scaling,
// core/nn/norm/rms_norm.py).
TensorId rms_in_type(Graph& g, const BlockContext& c, TensorId x, Width width, Symbol rows) {
  const Size size = g.at(x).size;
  const TensorId row = g.tensor(row_statistic(g, x, rows, 1).as(size.type), kNorm, g.at(x).requires_grad);
  g.run({x}, {row}, {.saves = {x}, .forward = {Component::working_memory, {size}}});
  g.save(row);
  const TensorId scaled = g.apply({x, row}, size, kNorm, {.saves = {x, row}});
  const TensorId normed = cast(g, cast(g, scaled, ElementType::fp32, kNorm), size.type, kNorm);
  const TensorId y = g.tensor(size, kNorm, g.at(normed).requires_grad || trains_norms(c));
  const Workspace product = trains_norms(c) ? Workspace{Component::working_memory, {size}} : Workspace{};
  g.run({normed}, {y}, {.backward = product, .parameter_gradients = norm_gradients(g, c, width)});
  if (trains_norms(c)) g.save(normed);
  return y;
}

}  // namespace

TensorId norm(Graph& g, const BlockContext& c, TensorId x, Width width, Symbol rows) {
  const Norm& shape = c.model->norm;
  if (shape.type == NormType::layer) {  // autocast runs layer_norm in FP32
    const TensorId in = c.framework.autocast ? cast(g, x, ElementType::fp32, kNorm) : x;
    return fused(g, c, in, width, row_statistic(g, x, rows, 2));
  }
  if (c.framework.norm == NormKernel::fused)
    return fused(g, c, x, width, row_statistic(g, x, rows, 1), writes_over_gradient(c));
  return c.framework.norms_in_type ? rms_in_type(g, c, x, width, rows) : composite_rms(g, c, x, width, rows);
}

}  // namespace vramplan::ops
