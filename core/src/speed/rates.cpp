#include "rates.hpp"

#include <algorithm>

#include "work.hpp"

namespace vramplan {
namespace {

constexpr double kTera = 1e12, kGiga = 1e9;
constexpr double kBitsPerByte = 8;

// PCIe, one direction, achieved: 52 GB/s over 16 lanes of generation 5 (stas00-network, nvbandwidth); each generation
// doubles the one before.
constexpr double kPcieLaneOfFirst = 52e9 / 16 / 16;

// GeForce cards do not reach each other over PCIe: the driver lacks it, and what one sends to another goes through host
// memory, at half of the rate. Measured with both ways in use: 12.9 GB/s each way between three RTX 4090 with 16 lanes
// of generation 4 each (tinygrad-p2p-6), 8.4 between two in a desktop (muellerzr-4090-p2p).
constexpr double kThroughHost = 0.5;

// Gb/s for each GPU in NVIDIA's reference designs: 200 beside A100 and RTX PRO cards, 400 beside Hopper and B200, 800
// beside B300 and GB300 (hardware facts in sources.json: nvidia-reference-designs).
constexpr double kNetworkOlder = 200, kNetwork = 400, kNetworkNewest = 800;

double pcie_bytes_per_second(const Gpu& gpu) {
  double lane = kPcieLaneOfFirst;
  for (std::int64_t generation = 1; generation < gpu.pcie_generation; ++generation) lane *= 2;
  return lane * static_cast<double>(std::max<std::int64_t>(gpu.pcie_lanes, 1));
}

// From one card to another.
double peer_bytes_per_second(const Gpu& gpu) {
  const bool is_geforce = gpu.vendor == "NVIDIA" && gpu.form_factor == FormFactor::desktop;
  return pcie_bytes_per_second(gpu) * (is_geforce ? kThroughHost : 1);
}

double reference_network(GpuFamily family) {
  if (family == GpuFamily::ampere || family == GpuFamily::consumer) return kNetworkOlder;
  return family == GpuFamily::blackwell_ultra ? kNetworkNewest : kNetwork;
}

GpuFamily server_family(const Gpu& gpu) {
  if (gpu.architecture == "Ampere") return GpuFamily::ampere;
  if (gpu.architecture == "Hopper") return GpuFamily::hopper;
  if (gpu.architecture == "Blackwell") return GpuFamily::blackwell;
  return gpu.architecture == "Blackwell Ultra" ? GpuFamily::blackwell_ultra : GpuFamily::other;
}

}  // namespace

GpuFamily family_of(const Gpu& gpu) {
  if (gpu.vendor == "AMD" && gpu.architecture.starts_with("CDNA")) return GpuFamily::instinct;
  if (gpu.vendor != "NVIDIA") return GpuFamily::other;
  return gpu.memory_type.starts_with("HBM") ? server_family(gpu) : GpuFamily::consumer;
}

double peak_tflops(const Gpu& gpu, Precision precision) {
  switch (precision) {
    case Precision::bf16:
    case Precision::bf16_amp: return gpu.bf16_tflops;
    case Precision::fp16:
    case Precision::fp16_amp: return gpu.fp16_tflops;
    case Precision::fp8: return gpu.fp8_tflops;
    case Precision::fp32: return gpu.fp32_tflops;
  }
  return 0;
}

Rates rates_of(const Gpu& gpu, const NodeShape& node, const TrainingChoice& training, const Calibration& calibration) {
  const FamilyRates& family = calibration.family[static_cast<std::size_t>(family_of(gpu))];
  const auto stack = static_cast<std::size_t>(stack_of(training));
  const bool eight_bit = training.precision == Precision::fp8;
  Rates r;
  r.peak = peak_tflops(gpu, training.precision) * kTera;
  const double peak16 = eight_bit ? gpu.bf16_tflops * kTera : r.peak;
  r.matmul = r.peak * (eight_bit ? family.matmul8 : family.matmul)[stack];
  r.matmul16 = peak16 * family.matmul[stack];
  r.attention = peak16 * family.attention[stack];
  r.memory = gpu.memory_bandwidth_gb_per_s * kGiga * family.memory;
  r.pcie = pcie_bytes_per_second(gpu);
  r.peer = peer_bytes_per_second(gpu);
  r.scale_up = node.domain > 1 && gpu.link_gb_per_s > 0 ? gpu.link_gb_per_s / 2 * kGiga * family.link : r.peer;
  r.network = node.network_gbit_per_s_per_gpu * kGiga / kBitsPerByte * calibration.network;
  return r;
}

ErrorBand error_of(const Gpu& gpu, const TrainingChoice& training, bool has_experts, const Calibration& calibration) {
  const GpuFamily family = family_of(gpu);
  const SpeedStack stack = stack_of(training);
  const bool older = family == GpuFamily::ampere || family == GpuFamily::hopper;
  const bool blackwell = family == GpuFamily::blackwell || family == GpuFamily::blackwell_ultra;
  const bool measured = older || (blackwell && stack == SpeedStack::megatron);
  if (!measured) return calibration.unmeasured;
  return has_experts ? calibration.experts : calibration.dense[static_cast<std::size_t>(stack)];
}

NodeShape node_shape(const Gpu& gpu, std::int64_t per_node, std::optional<double> network) {
  NodeShape n;
  n.per_node = std::max<std::int64_t>(per_node, 1);
  const bool spans_nodes = gpu.max_per_server > 0 && gpu.link_domain > gpu.max_per_server;
  const bool linked = gpu.link != ScaleUpLink::none && gpu.link_gb_per_s > 0;
  n.domain = !linked ? 1 : spans_nodes ? gpu.link_domain : std::min(gpu.link_domain, n.per_node);
  n.network_gbit_per_s_per_gpu = network.value_or(reference_network(family_of(gpu)));
  return n;
}

std::optional<std::string_view> speed_refusal(const Gpu& gpu, const TrainingChoice& training) {
  if (peak_tflops(gpu, training.precision) <= 0) return "no_rate";
  if (gpu.memory_bandwidth_gb_per_s <= 0) return "no_bandwidth";
  return std::nullopt;
}

}  // namespace vramplan
