// Figures of core/data and of the sources named in device.hpp; the shares are a planning rule, not a vendor's figure.
#include "vramplan/device.hpp"

#include <algorithm>

namespace vramplan {
namespace {

// Rounded down: a share never promises more than there is. The remainder keeps the product from overflowing.
Bytes per_mille(Bytes bytes, std::int64_t share) {
  return Bytes(bytes.value / 1000 * share + bytes.value % 1000 * share / 1000);
}

std::int64_t driver_share(const Gpu& gpu) {
  if (gpu.form_factor == FormFactor::desktop) return device::kGeForceShare;
  const bool is_graphics_card = gpu.form_factor == FormFactor::workstation || gpu.memory_type.starts_with("GDDR");
  return is_graphics_card ? device::kWorkstationShare : device::kDataCentreShare;
}

Bytes process_total(const Gpu& gpu) {
  if (gpu.torch_total.value > 0) return gpu.torch_total;
  if (gpu.usable_basis == UsableBasis::process_total) return gpu.usable;
  return per_mille(gpu.usable, driver_share(gpu));
}

// The number before the point; 0 when there is none.
std::int64_t major_version(std::string_view compute_capability) {
  std::int64_t number = 0;
  for (const char c : compute_capability.substr(0, 3)) {
    if (c < '0' || c > '9') break;
    number = number * 10 + (c - '0');
  }
  return number;
}

// NVIDIA cards whose compute capability is not known yet are newer than those whose is.
Bytes nvidia_workspace(const Gpu& gpu) {
  const bool older = !gpu.compute_capability.empty() && major_version(gpu.compute_capability) < 9;
  return older ? device::kCublasWorkspace : device::kCublasWorkspaceHopper;
}

Bytes amd_workspace(const Gpu& gpu) {
  const bool instinct = gpu.gfx.starts_with("gfx94") || gpu.gfx.starts_with("gfx95") || gpu.gfx == "gfx1250";
  return instinct ? device::kHipblasWorkspaceInstinct : device::kHipblasWorkspace;
}

bool is_gaudi(const Gpu& gpu) { return gpu.architecture.starts_with("Gaudi"); }

TensorFormat format_of(Precision precision) {
  switch (precision) {
    case Precision::bf16_amp:
    case Precision::bf16: return TensorFormat::bf16;
    case Precision::fp16_amp:
    case Precision::fp16: return TensorFormat::fp16;
    case Precision::fp8: return TensorFormat::fp8;
    case Precision::fp32: break;
  }
  return TensorFormat::fp32;
}

std::string_view lack_of(TensorFormat format) {
  switch (format) {
    case TensorFormat::fp32: return "no_fp32_units";
    case TensorFormat::fp16: return "no_fp16_units";
    case TensorFormat::bf16: return "no_bf16_units";
    case TensorFormat::fp8: return "no_fp8_units";
    case TensorFormat::fp4: break;
  }
  return "no_fp4_units";
}

}  // namespace

Bytes usable_bytes(const Gpu& gpu) {
  if (gpu.usable.value <= 0) return Bytes(0);
  const Bytes total = process_total(gpu);
  return gpu.unified_memory ? per_mille(total, device::kUnifiedShare) : total;
}

Bytes cuda_context(const Gpu* gpu) { return cuda_context_range(gpu).expected; }

Estimate cuda_context_range(const Gpu* /*gpu*/) { return device::kContext; }

Bytes cublas_workspace(const Gpu* gpu) {
  if (gpu == nullptr) return device::kCublasWorkspaceHopper;
  if (gpu->vendor == "NVIDIA") return nvidia_workspace(*gpu);
  if (gpu->vendor == "AMD") return amd_workspace(*gpu);
  return Bytes(0);
}

Bytes nccl_buffers(std::int64_t ranks, std::int64_t groups) { return nccl_range(ranks, groups).expected; }

Estimate nccl_range(std::int64_t ranks, std::int64_t groups) {
  if (ranks <= 1 || groups <= 0) return {};
  const Bytes measured = ranks == 2 ? device::kNcclTwoRanks : device::kNcclManyRanks;
  const Bytes further = measured * (groups - 1);
  return {measured + further, device::kNcclFirstPlanned + further, device::kNcclFirstHigh + further};
}

std::optional<std::string_view> precision_refusal(const Gpu& gpu, Precision precision) {
  const TensorFormat format = format_of(precision);
  if (gpu.has(format)) return std::nullopt;
  return lack_of(format);
}

std::optional<std::string_view> state_format_refusal(const Gpu& gpu, StateFormat format) {
  if (format == StateFormat::int8 && is_gaudi(gpu)) return "no_8bit_optimizers";
  return std::nullopt;
}

std::optional<std::string_view> weight_format_caution(const Gpu& gpu, WeightFormat format) {
  const bool is_4bit = format == WeightFormat::nf4 || format == WeightFormat::nf4_dq || format == WeightFormat::fp4;
  if (is_4bit && is_gaudi(gpu)) return "bitsandbytes_4bit_partial";
  return std::nullopt;
}

}  // namespace vramplan
