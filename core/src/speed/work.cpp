// Products come from the list of the model's tensors; the bytes of element-wise kernels are counted from the modules:
// transformers/models/llama/modeling_llama.py where kernels are separate, Megatron-Core's and Liger's where they are
// fused. Bytes are of 16-bit elements unless a kernel works in FP32.
#include "work.hpp"

#include <algorithm>

#include "vramplan/parameters.hpp"
#include "vramplan/states.hpp"

namespace vramplan {
namespace {

// Bytes read and written for one element.
// Separate: raise to FP32, square, mean, scale, lower, weigh. One kernel: read and write.
constexpr Traffic kNormSeparate{36, 60}, kNormFused{4, 8};
// PyTorch's own layer_norm is one kernel; autocast raises its input to FP32.
constexpr Traffic kLayerNorm{8, 12};
// Two read, one written; backward adds the gradients of both branches.
constexpr Traffic kAddition{6, 6};
// For an element of the intermediate size. silu, then times up; or one kernel.
constexpr Traffic kGateSeparate{10, 16}, kGateFused{6, 10}, kActivation{4, 6};
// For an element of queries and keys: two products, a half turned and joined, an addition; or one kernel.
constexpr Traffic kRotarySeparate{20, 20}, kRotaryFused{4, 4};
// For an element of the hidden size and an expert: sorted by expert, weighed and put back.
constexpr Traffic kPermutation{10, 10};
// For an element that enters and leaves an adapted module: cast, dropout, the update scaled and added.
constexpr Traffic kAdapter{12, 14};
// For an element that enters an 8-bit product: its scale found, cast, transposed; backward its gradient too.
constexpr Traffic kCast8{6, 8};
// For a logit: raised to FP32, log-softmax, its gradient, lowered; or one kernel that writes over it.
constexpr Traffic kLossSeparate{10, 14}, kLossFused{4, 4};

// Kernels that one forward starts: of a norm, rotary positions, an MLP's activation, an attention, a product.
constexpr double kNormKernels = 6, kRotaryKernels = 10, kOtherKernels = 6, kFusedKernels = 1;
constexpr double kAdapterKernels = 7;  // cast, dropout, two products, scale, add, and a cast
constexpr double kDequantKernels = 3;  // of the constants, of the weight, a transposed view made whole

void add(Traffic& sum, double elements, Traffic of_one) {
  sum.forward += elements * of_one.forward;
  sum.backward += elements * of_one.backward;
}

double real(std::int64_t n) { return static_cast<double>(n); }

Traffic norm_traffic(const ModelArchitecture& m, bool fused) {
  if (fused) return kNormFused;
  return m.norm.type == NormType::layer ? kLayerNorm : kNormSeparate;
}

struct CoreVisitor {
  bool eager = false;
  MixerCore operator()(const Attention& a) const {
    MixerCore c;
    c.flops_per_key = 2 * real(a.heads) * real(a.head_dim + v_head_dim_of(a));
    c.window = real(a.window);
    c.key_bytes = 2 * real(a.kv_heads) * real(a.head_dim + v_head_dim_of(a));
    c.scores = eager ? real(a.heads) : 0;
    return c;
  }
  MixerCore operator()(const LatentAttention& a) const {
    MixerCore c;
    const Dim key = a.qk_nope_head_dim + a.qk_rope_head_dim;
    c.flops_per_key = 2 * real(a.heads) * real(key + a.v_head_dim);
    c.key_bytes = 2 * real(a.heads) * real(key + a.v_head_dim);
    c.scores = eager ? real(a.heads) : 0;
    return c;
  }
  MixerCore operator()(const CompressedAttention& a) const {
    MixerCore c;
    c.flops_per_key = 4 * real(a.heads) * real(a.head_dim) / real(std::max<Dim>(a.ratio, 1));
    c.window = a.ratio == 0 ? real(a.window) : 0;
    c.key_bytes = 4 * real(a.head_dim);
    return c;
  }
  // Recurrences: the state is decayed, added to and read, two FLOPs each.
  static MixerCore state(double elements) {
    MixerCore c;
    c.state_flops = 6 * elements;
    return c;
  }
  MixerCore operator()(const Mamba1& m) const { return state(real(m.inner) * real(m.state_size)); }
  MixerCore operator()(const Mamba2& m) const { return state(real(m.heads) * real(m.head_dim) * real(m.state_size)); }
  MixerCore operator()(const GatedDeltaNet& n) const {
    return state(real(n.value_heads) * real(n.value_head_dim) * real(n.key_head_dim));
  }
  MixerCore operator()(const KimiDeltaAttention& n) const {
    return state(real(n.heads) * real(n.head_dim) * real(n.head_dim));
  }
  MixerCore operator()(const LightningAttention& n) const {
    return state(real(n.heads) * real(n.head_dim) * real(n.head_dim));
  }
  MixerCore operator()(const ShortConvolution& n) const { return state(real(n.kernel)); }
};

void add_rotary(const Attention& a, bool fused, LayerWork& w) {
  const double elements = real(a.heads + a.kv_heads) * real(a.head_dim);
  if (a.rotary) add(w.inner, elements, fused ? kRotaryFused : kRotarySeparate);
  if (a.qk_norm != QkNorm::none) add(w.inner, elements, fused ? kNormFused : kNormSeparate);
}
void add_rotary(const LatentAttention& a, bool fused, LayerWork& w) {
  const double elements = real(a.heads) * real(2 * (a.qk_nope_head_dim + a.qk_rope_head_dim) + a.v_head_dim);
  add(w.inner, elements, fused ? kRotaryFused : kRotarySeparate);
}
template <class Other>
void add_rotary(const Other&, bool, LayerWork&) {}

void add_mlp(const DenseMlp& m, const ModelArchitecture&, bool fused, LayerWork& w) {
  add(w.inner, real(m.intermediate_size), !m.gated ? kActivation : fused ? kGateFused : kGateSeparate);
}
void add_mlp(const MoeMlp& m, const ModelArchitecture& model, bool fused, LayerWork& w) {
  const Traffic gate = !m.gated ? kActivation : fused ? kGateFused : kGateSeparate;
  add(w.inner, real(m.intermediate_size) * real(m.experts_per_token) + real(m.shared_intermediate_size), gate);
  add(w.inner, real(model.hidden_size) * real(m.experts_per_token), kPermutation);
  w.routed = real(m.experts_per_token);
}

bool multiplies(const ParameterGroup& g) {
  return g.columns > 1 && (g.kind == ParameterKind::linear || g.kind == ParameterKind::expert ||
                           g.kind == ParameterKind::router || g.kind == ParameterKind::head);
}

struct Choices {
  bool fused = false, megatron = false, eight_bit = false;
  std::uint64_t targets = 0;
  bool quantized = false;
};

MatrixProduct product_of(const ParameterGroup& g) {
  MatrixProduct p;
  p.inputs = real(g.columns);
  p.outputs = real(g.rows);
  p.column = g.cut == Cut::column || g.cut == Cut::vocabulary;
  p.row = g.cut == Cut::row;
  p.expert = g.kind == ParameterKind::expert;
  p.count = real(g.active_copies);
  p.copies = real(g.copies);
  return p;
}

// Megatron joins what reads the same input into one matrix.
bool joins(const MatrixProduct& a, const MatrixProduct& b) {
  return a.column && b.column && a.inputs == b.inputs && a.expert == b.expert && a.count == b.count;
}

void add_product(const ParameterGroup& g, const Choices& c, LayerWork& w) {
  const MatrixProduct p = product_of(g);
  const Module module = c.megatron ? joined(g.module) : g.module;
  bool adapted = g.quantizable && (c.targets >> static_cast<unsigned>(module) & 1U) != 0;
  if (c.megatron && !w.products.empty() && joins(w.products.back(), p)) {
    w.products.back().outputs += p.outputs;
    adapted = false;  // counted with the first of them
  } else {
    w.products.push_back(p);
    w.kernels += 1;
  }
  if (adapted) {
    add(w.inner, p.inputs * p.count, kAdapter);
    w.kernels += kAdapterKernels;
  }
  if (c.quantized && g.quantizable) w.kernels += kDequantKernels;
  if (c.eight_bit) add(w.inner, p.inputs * p.count, kCast8);
}

void count(const ParameterGroup& g, const Choices& c, LayerWork& w) {
  const double parameters = real(parameters_per_copy(g).value) * real(g.copies);
  (g.kind == ParameterKind::expert ? w.expert_parameters : w.parameters) += parameters;
  if (c.quantized && g.quantizable) w.quantized += parameters;
}

Choices choices(const TrainingChoice& t, const std::vector<ParameterGroup>& groups) {
  Choices c;
  c.fused = runs_fused(t);
  c.megatron = stack_of(t) == SpeedStack::megatron;
  c.eight_bit = t.precision == Precision::fp8;
  c.targets = adapter_targets(t, groups);
  c.quantized = t.base_weights && is_quantized(*t.base_weights);
  return c;
}

void add_modules(const ModelArchitecture& m, const LayerGroup& group, bool eager_attention, bool fused, LayerWork& w) {
  const double hidden = real(m.hidden_size);
  add(w.stream, hidden * real(group.norms), norm_traffic(m, fused));
  add(w.stream, hidden * 2, kAddition);
  w.kernels += real(group.norms) * (fused ? kFusedKernels : kNormKernels) + kOtherKernels;
  for (const Mixer& mixer : group.mixers) {
    w.cores.push_back(std::visit(CoreVisitor{eager_attention}, mixer));
    std::visit([&](const auto& kind) { add_rotary(kind, fused, w); }, mixer);
    w.kernels += fused ? kFusedKernels : kRotaryKernels;
  }
  for (const Mlp& mlp : group.mlps) std::visit([&](const auto& kind) { add_mlp(kind, m, fused, w); }, mlp);
}

}  // namespace

SpeedStack stack_of(const TrainingChoice& t) {
  if (t.framework == FrameworkId::megatron || t.framework == FrameworkId::scaling) return SpeedStack::megatron;
  const bool compiled = t.compile || t.framework == FrameworkId::liger || t.framework == FrameworkId::unsloth;
  return compiled || t.kernels == Kernels::fused ? SpeedStack::compiled : SpeedStack::eager;
}

bool runs_fused(const TrainingChoice& t) { return stack_of(t) == SpeedStack::compiled || t.kernels == Kernels::fused; }

std::vector<LayerWork> layer_work(const ModelArchitecture& model, const TrainingChoice& training) {
  const std::vector<ParameterGroup> parameters = groups_for(model, training);
  const Choices c = choices(training, parameters);
  std::vector<LayerWork> out(model.groups.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i].layers = real(model.groups[i].count);
    add_modules(model, model.groups[i], training.attention == AttentionKernel::eager, c.fused, out[i]);
  }
  for (const ParameterGroup& g : parameters) {
    if (g.layer_group == kOutsideLayers) continue;
    LayerWork& w = out[static_cast<std::size_t>(g.layer_group)];
    if (multiplies(g)) add_product(g, c, w);
    count(g, c, w);
  }
  return out;
}

LayerWork prediction_work(const ModelArchitecture& m, const TrainingChoice& training, const LayerWork& last) {
  LayerWork w = last;
  w.layers = real(training.mtp_layers);
  MatrixProduct p;
  p.inputs = 2 * real(m.hidden_size);
  p.outputs = real(m.hidden_size);
  p.column = true;
  w.products.push_back(p);
  w.parameters += p.inputs * p.outputs;
  constexpr double kNorms = 3;
  add(w.stream, kNorms * real(m.hidden_size), norm_traffic(m, runs_fused(training)));
  return w;
}

// Asked once for the next token, and once by each module that predicts a further one.
LayerWork head_work(const ModelArchitecture& m, const TrainingChoice& training) {
  LayerWork w;
  w.layers = real(1 + training.mtp_layers);
  MatrixProduct p;
  p.inputs = real(m.embedding_size > 0 ? m.embedding_size : m.hidden_size);
  p.outputs = real(training.objective == Objective::reward ? 1 : head_rows_of(m));
  p.column = true;
  w.products.push_back(p);
  w.parameters = p.inputs * p.outputs;
  const bool separate =
      training.cross_entropy.value_or(CrossEntropy::full_logits) == CrossEntropy::full_logits && !runs_fused(training);
  add(w.inner, p.outputs, separate ? kLossSeparate : kLossFused);
  add(w.stream, real(m.hidden_size), norm_traffic(m, runs_fused(training)));
  w.kernels = kNormKernels + kOtherKernels;
  return w;
}

}  // namespace vramplan
