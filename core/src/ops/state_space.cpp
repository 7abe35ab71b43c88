// Mixers without a softmax over the past: Mamba (arXiv 2312.00752), Mamba-2 (2405.21060), Gated DeltaNet (2412.06464),
// Kimi Delta Attention, Lightning attention (2401.04658) and LFM2's short convolution. All have one form: project,
// convolve, scan in chunks, gate, project back; what a chunked scan keeps is `n` state elements a token.
#include "builders.hpp"

namespace vramplan::ops {
namespace {

constexpr Component kStateSpace = Component::activations_ssm;

struct Shape {
  bool convolves = true;
  bool gates = true;
  bool norms = true;
};

Shape shape_of(const Mixer& mixer) {
  if (std::holds_alternative<ShortConvolution>(mixer)) return {.convolves = true, .gates = true, .norms = false};
  if (std::holds_alternative<LightningAttention>(mixer)) return {.convolves = false, .gates = true, .norms = true};
  if (std::holds_alternative<Mamba1>(mixer)) return {.convolves = true, .gates = true, .norms = false};
  return {};
}

}  // namespace

TensorId state_space(Graph& g, const BlockContext& c, TensorId x, const Mixer& mixer) {
  const Shape shape = shape_of(mixer);
  TensorId entered =
      linear(g, c, x, {.module = Module::in_proj, .in = {Symbol::h}, .out = {Symbol::j}, .component = kStateSpace});
  const ElementType type = g.at(entered).size.type;
  TensorId mixed = entered;
  if (shape.convolves) {
    const TensorId convolved = g.apply({entered}, token_size({Symbol::x}, type), kStateSpace, {.saves = {entered}});
    mixed = unary(g, convolved, kStateSpace);
  }
  const TensorId states = g.tensor(token_size({Symbol::n}, ElementType::fp32), kStateSpace, false);
  const TensorId scanned = g.tensor(token_size({Symbol::i}, type), kStateSpace, g.at(mixed).requires_grad);
  g.run({mixed}, {scanned, states}, {.saves = {mixed, states}});
  TensorId out = scanned;
  if (shape.norms) out = norm(g, c, out, {Symbol::i});
  if (shape.gates) {
    const TensorId gate = g.apply({entered}, token_size({Symbol::i}, type), kStateSpace, {.saves = {entered}});
    out = multiply(g, cast(g, out, type, kStateSpace), gate, kStateSpace);
  }
  return linear(g, c, out,
                {.module = Module::out_proj, .in = {Symbol::i}, .out = {Symbol::h}, .component = kStateSpace});
}

}  // namespace vramplan::ops
