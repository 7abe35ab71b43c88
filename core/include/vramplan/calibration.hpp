// What cards, links and frameworks reach of what is on paper: the one table of the speed stage.
//
// Fitted by tests/fit on the published runs of tests/tables/layouts.jsonl (median error by slice in
// tests/tables/speed.cpp); nothing in it belongs to a model or a run. Where nobody published runs (families `consumer`,
// `instinct` and `other`; Blackwell outside Megatron) the shares are those of the families that have some, and the band
// is the widest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace vramplan {

enum class GpuFamily : std::uint8_t { ampere, hopper, blackwell, blackwell_ultra, consumer, instinct, other };
inline constexpr std::size_t kGpuFamilies = 7;
// eager: PyTorch modules one after another; compiled: the same through torch.compile or with fused kernels; megatron:
// Megatron-Core with Transformer Engine, and what is built like it.
enum class SpeedStack : std::uint8_t { eager, compiled, megatron };
inline constexpr std::size_t kSpeedStacks = 3;

struct FamilyRates {
  // By stack: of the dense peak in 16 and in 8 bits, what large products reach; of the 16-bit peak, FlashAttention.
  std::array<double, kSpeedStacks> matmul{}, matmul8{}, attention{};
  double memory = 0;           // of the memory's bandwidth
  double link = 0;             // of one direction of the scale-up link
  double tensor_exposed = 0;   // of the messages of tensor parallelism, what no computation hides
  double routing_seconds = 0;  // of the host, for the experts of one layer in one pass
};

// Measured over estimated: nine runs in ten are inside.
struct ErrorBand {
  double low = 1, high = 1;
};

struct Calibration {
  std::array<FamilyRates, kGpuFamilies> family{};
  double tile = 0;                 // a side of a matrix product at which it reaches half of its rate
  double network = 0;              // of the network's line rate
  double expert_exposed = 0;       // of the messages of expert parallelism, what no computation hides
  double data_hidden = 0;          // of the computation beside it, what can hide messages of data parallelism
  double step_seconds = 0;         // of a step besides
  double launch_seconds = 0;       // of the host for one kernel
  double hop_in = 0, hop_out = 0;  // seconds for a rank of a ring, inside a domain and between two
  std::array<ErrorBand, kSpeedStacks> dense{};  // by stack
  ErrorBand experts, unmeasured;
};

// clang-format off
inline constexpr Calibration kCalibration{
    .family = {{
        {{0.79, 0.87, 0.73}, {0.50, 0.50, 0.50}, {0.32, 0.55, 0.33}, 0.85, 0.78, 1.00, 0.0030},
        {{0.62, 0.62, 0.71}, {0.51, 0.76, 0.76}, {0.18, 0.20, 0.65}, 0.85, 0.80, 0.75, 0.0069},
        {{0.45, 0.45, 0.47}, {0.45, 0.60, 0.65}, {0.18, 0.20, 0.24}, 0.85, 0.75, 0.67, 0.0032},
        {{0.45, 0.45, 0.47}, {0.45, 0.60, 0.76}, {0.18, 0.20, 0.24}, 0.85, 0.75, 0.20, 0.0014},
        {{0.70, 0.70, 0.70}, {0.60, 0.60, 0.60}, {0.32, 0.35, 0.35}, 0.85, 0.75, 1.00, 0.0030},
        {{0.45, 0.45, 0.45}, {0.40, 0.40, 0.40}, {0.20, 0.25, 0.25}, 0.80, 0.70, 1.00, 0.0030},
        {{0.60, 0.60, 0.60}, {0.50, 0.50, 0.50}, {0.20, 0.25, 0.25}, 0.80, 0.70, 1.00, 0.0030},
    }},
    .tile = 298,
    .network = 0.75,
    .expert_exposed = 0.77,
    .data_hidden = 0.73,
    .step_seconds = 0.030,
    .launch_seconds = 12e-6,
    .hop_in = 2e-6,
    .hop_out = 25e-6,
    .dense = {{{0.79, 1.39}, {0.88, 1.25}, {0.87, 1.28}}},
    .experts = {0.66, 1.53},
    .unmeasured = {0.6, 2.0},
};
// clang-format on

}  // namespace vramplan
