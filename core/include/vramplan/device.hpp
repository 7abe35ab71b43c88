// What one device gives to a process and takes for itself, and which formats it lacks.
//
// Every constant has a unit, and a source: an id in core/data/sources.json. Where a function takes a Gpu pointer,
// nullptr means that no GPU was chosen; then it answers for a data-centre card of the Hopper generation.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "vramplan/catalogue.hpp"
#include "vramplan/element_type.hpp"
#include "vramplan/estimate.hpp"
#include "vramplan/request.hpp"
#include "vramplan/units.hpp"

namespace vramplan {

namespace device {
using namespace literals;

// PyTorch's "total capacity" over nvidia-smi's memory.total, in thousandths, where no torch total is known: the driver
// and its firmware keep the rest. Seen: 981-985 on GeForce; 986-993 on workstation and server cards with GDDR memory,
// large ones, and the slice weighs more on small ones; 989-996 on cards with HBM. Source: torch-total-rule.
inline constexpr std::int64_t kGeForceShare = 980;
inline constexpr std::int64_t kWorkstationShare = 985;
inline constexpr std::int64_t kDataCentreShare = 990;
// The operating system and its page cache share a unified pool; 10 to 15 % must stay free. Source: dgx-spark-notes.
inline constexpr std::int64_t kUnifiedShare = 900;
inline constexpr std::string_view kUsableSource = "torch-total-rule";

// CUDA context and the kernels that a training run loads. Measured: 0.25 GiB (RTX 3090, torch 2.7, invokeai-9413),
// 0.47 GiB with and 0.92 GiB without lazy loading (A100, torch 2.1), 0.55-0.71 GiB on multi-GPU nodes. It depends on
// driver, CUDA version and kernels more than on the card, and nobody published a figure by architecture.
inline constexpr Estimate kContext{256_MiB, 512_MiB, 1_GiB};
inline constexpr std::string_view kContextSource = "stas00-performance";

// cuBLAS workspace that PyTorch takes from its allocator, for each handle and stream: 2 x 4 MiB + 8 x 16 KiB, and
// 32 MiB from compute capability 9.0 on; hipBLAS 32 MiB, and 128 MiB on gfx94x and gfx95x.
inline constexpr Bytes kCublasWorkspace = 8320_KiB;
inline constexpr Bytes kCublasWorkspaceHopper = 32_MiB;
inline constexpr Bytes kHipblasWorkspace = 32_MiB;
inline constexpr Bytes kHipblasWorkspaceInstinct = 128_MiB;
inline constexpr std::string_view kCublasSource = "pytorch-cublas-handle-pool";

// NCCL buffers of one communicator: 342 MB measured with two GPUs and 392 MB with four to eight
// (aiconfigurator-systems); the first collective of a training run took 1.45 GiB, part of it context
// (stas00-performance). Planned with 1.0 GiB for the first communicator, at most 2 GiB; each further one adds what was
// measured for a communicator alone.
inline constexpr Bytes kNcclTwoRanks{342'000'000};
inline constexpr Bytes kNcclManyRanks{392'000'000};
inline constexpr Bytes kNcclFirstPlanned = 1_GiB;
inline constexpr Bytes kNcclFirstHigh = 2_GiB;
inline constexpr std::string_view kNcclSource = "aiconfigurator-systems";
}  // namespace device

// All bytes that one process can use, context and communication included: the driver's total less the driver's own
// slice. PyTorch's total where it is known, else a share of the driver's total (above). 0 when `gpu.usable` is 0:
// then there is no verdict.
[[nodiscard]] Bytes usable_bytes(const Gpu& gpu);

// The context and loaded kernels of one process: `expected` of cuda_context_range.
[[nodiscard]] Bytes cuda_context(const Gpu* gpu);
[[nodiscard]] Estimate cuda_context_range(const Gpu* gpu);

// One handle on one stream; backward has a stream of its own where it overlaps with forward. Part of `allocated`.
// 0 on devices that run neither cuBLAS nor hipBLAS.
[[nodiscard]] Bytes cublas_workspace(const Gpu* gpu);

// Communication buffers of one rank that is a member of `groups` communicators (data, tensor, pipeline, expert, ...),
// `ranks` in all. 0 for one rank or no group. Not part of `reserved`.
[[nodiscard]] Bytes nccl_buffers(std::int64_t ranks, std::int64_t groups);
[[nodiscard]] Estimate nccl_range(std::int64_t ranks, std::int64_t groups);

// Why a run in this precision is refused: no_fp32_units, no_fp16_units, no_bf16_units, no_fp8_units; nothing when the
// card can do it. BF16 on Volta and Turing is refused although PyTorch emulates it: nobody trains that way.
[[nodiscard]] std::optional<std::string_view> precision_refusal(const Gpu& gpu, Precision precision);

// Why optimizer states in this format are refused: no_8bit_optimizers (bitsandbytes has none for Gaudi).
// Source: bitsandbytes-accelerators.
[[nodiscard]] std::optional<std::string_view> state_format_refusal(const Gpu& gpu, StateFormat format);

// Why the base weights deserve a warning: bitsandbytes_4bit_partial (Gaudi: "partially supported"). No card of the
// catalogue is refused a weight format: bitsandbytes supports its 8-bit and 4-bit weights on NVIDIA from compute
// capability 6.0, on AMD gfx90a, gfx94x, gfx95x, gfx110x and gfx120x, and on Intel Arc B. Source as above.
[[nodiscard]] std::optional<std::string_view> weight_format_caution(const Gpu& gpu, WeightFormat format);

}  // namespace vramplan
