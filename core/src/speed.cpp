#include "vramplan/speed.hpp"

#include <algorithm>

#include "speed/evaluation.hpp"
#include "speed/rates.hpp"
#include "speed/work.hpp"
#include "vramplan/states.hpp"

namespace vramplan {
namespace {

constexpr double kSecondsPerDay = 86'400, kSecondsPerHour = 3'600, kWattsPerKilowatt = 1'000;

double real(std::int64_t n) { return static_cast<double>(n); }

// Bytes moved to make one 16-bit weight of one in few bits. 4 bits: what Qwen-7B lost on an A100 between LoRA and QLoRA
// at 256 to 8,192 tokens (qwen-readme): 55 ms a pass over 6.5e9 weights, at 1.73 TB/s; torchtune's 8B on an RTX 4090
// agrees. 8 bits: read, written, read.
constexpr double kFourBitTraffic = 15, kEightBitTraffic = 5;

double dequantization_bytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::fp32:
    case WeightFormat::bf16:
    case WeightFormat::fp16: return 0;
    case WeightFormat::int8:
    case WeightFormat::fp8: return kEightBitTraffic;
    case WeightFormat::nf4:
    case WeightFormat::nf4_dq:
    case WeightFormat::fp4:
    case WeightFormat::int4_gptq:
    case WeightFormat::mxfp4: return kFourBitTraffic;
  }
  return 0;
}

// Autocast reads an FP32 weight and writes a 16-bit one.
double cast_bytes(const TrainingChoice& t) {
  const bool mixed = t.precision == Precision::bf16_amp || t.precision == Precision::fp16_amp;
  return mixed && t.base_weights == WeightFormat::fp32 && stack_of(t) != SpeedStack::megatron ? 6 : 0;
}

// States of one parameter in bytes, as AdamW and its kin keep them.
double state_bytes(const OptimizerChoice& o) {
  const double values = o.name == OptimizerName::sgd ? (o.momentum ? 1 : 0) : o.name == OptimizerName::lion ? 1 : 2;
  switch (o.states.value_or(StateFormat::fp32)) {
    case StateFormat::fp32: return 4 * values;
    case StateFormat::bf16:
    case StateFormat::fp16: return 2 * values;
    case StateFormat::int8: return values;
    case StateFormat::int4: return values / 2;
    case StateFormat::factored: return 4;
  }
  return 4 * values;
}

// The weight and its states read and written, the gradient read, and read twice more to clip it; multi-tensor kernels
// make temporaries besides.
double optimizer_bytes(const OptimizerChoice& o) {
  constexpr double kWeight = 8, kGradient = 4, kClip = 8, kTemporaries = 24;
  return kWeight + kGradient + kClip + 2 * state_bytes(o) + (o.foreach.value_or(false) ? kTemporaries : 0);
}

bool has_experts(const std::vector<LayerWork>& groups) {
  return std::any_of(groups.begin(), groups.end(), [](const LayerWork& w) { return w.routed > 0; });
}

double flops_of(const std::vector<LayerWork>& groups, const LayerWork& head,
                const std::optional<LayerWork>& prediction) {
  double flops = 0;
  const auto count = [&](const LayerWork& w) {
    for (const MatrixProduct& p : w.products) flops += w.layers * 2 * p.inputs * p.outputs * p.count;
  };
  for (const LayerWork& w : groups) count(w);
  count(head);
  if (prediction) count(*prediction);
  return flops;
}

void count_parameters(const ModelArchitecture& model, SpeedModel::Prepared& p) {
  const TrainingChoice& t = p.training;
  const Inventory inventory = take_inventory(model, t, groups_for(model, t));
  p.layers = real(layers_of(model));
  p.outside = real(inventory.outside_layers.value);
  p.trained = real(inventory.trained_base.value);
  p.adapters = real(inventory.adapters.value + inventory.copies.value);
  const bool few = t.method == Method::freeze && t.trainable_layers && p.layers > 0;
  p.trained_layers = few ? std::min(1.0, real(*t.trainable_layers) / p.layers) : 1;
  p.weight_gradients = has_adapters(t.method) ? 0 : 1;
}

}  // namespace

SpeedModel::SpeedModel(const ModelArchitecture& model, const TrainingChoice& training, const Gpu& gpu,
                       const NodeShape& node, const Calibration& calibration) {
  Prepared& p = prepared_;
  p.training = training;
  p.node = node;
  p.calibration = calibration;
  p.shares = calibration.family[static_cast<std::size_t>(family_of(gpu))];
  p.rates = rates_of(gpu, node, training, calibration);
  p.fused = runs_fused(training);
  p.groups = layer_work(model, training);
  p.head = head_work(model, training);
  if (training.mtp_layers > 0) p.prediction = prediction_work(model, training, p.groups.back());
  p.hidden = real(model.hidden_size);
  p.error = error_of(gpu, training, has_experts(p.groups), calibration);
  p.product_flops = flops_of(p.groups, p.head, p.prediction);
  p.element = training.precision == Precision::fp32 ? 4 : 2;
  p.dequantization = dequantization_bytes(training.base_weights.value_or(WeightFormat::bf16));
  p.cast = cast_bytes(training);
  p.optimizer_bytes = optimizer_bytes(training.optimizer);
  count_parameters(model, p);
}

// FSDP's stage 2 divides the weights between steps; DeepSpeed's and Megatron's keep them whole.
bool SpeedModel::Prepared::divides_weights(std::int64_t stage) const {
  const bool whole = training.framework == FrameworkId::deepspeed || training.framework == FrameworkId::megatron;
  return stage == 3 || (stage == 2 && !whole);
}

Speed SpeedModel::operator()(const LayoutChoice& layout, BatchSize batch, Recompute recompute) const {
  return Evaluation(prepared_, layout, batch, recompute).speed();
}

Budget budget_of(const Speed& speed, double tokens, const Gpu& gpu, std::int64_t gpus) {
  const Band& rate = speed.tokens_per_second;
  const double seconds = tokens / rate.expected;
  Budget b;
  b.tokens = tokens;
  b.days = {tokens / rate.high / kSecondsPerDay, seconds / kSecondsPerDay, tokens / rate.low / kSecondsPerDay};
  b.energy_kwh = real(gpu.tdp_w) * real(gpus) * seconds / kSecondsPerHour / kWattsPerKilowatt;
  return b;
}

}  // namespace vramplan
