// Data parallelism: which engine divides weights, gradients and optimizer states over the ranks, and what it keeps
// whole.
#pragma once

#include <cstdint>

#include "vramplan/request.hpp"

namespace vramplan {

// ddp: torch.nn.parallel.DistributedDataParallel, with ZeroRedundancyOptimizer at stage 1, or one rank; fsdp1:
// FullyShardedDataParallel, flat parameters by unit; fsdp2: fully_shard, each parameter for itself; deepspeed: its
// ZeRO optimizers, on one rank too.
// megatron: Megatron-Core's DistributedDataParallel, FP32 gradients in one buffer, with the distributed optimizer at
// stage 1.
enum class Engine : std::uint8_t { ddp, fsdp1, fsdp2, deepspeed, megatron };

struct Sharding {
  std::int64_t weights = 1, gradients = 1, optimizer = 1;  // ranks that share them
  // The same for experts, which other ranks share where they are dealt out.
  struct {
    std::int64_t weights = 1, gradients = 1, optimizer = 1;
  } experts{};
  bool whole_adapters = false;  // every rank holds and updates all adapters
  Engine engine = Engine::ddp;
  std::int64_t ranks = 1;         // that see data of their own
  std::int64_t stage = 0;         // of ZeRO
  bool gathers = false;           // weights come together to compute, unit by unit
  bool reshards = true;           // and go again after their forward, not only after their backward
  bool defers_reduction = false;  // gradients stay whole until the last pass of an accumulation (no_sync)
  // Shards that live in host memory.
  bool host_weights = false, host_gradients = false, host_states = false;

  [[nodiscard]] bool is_fsdp() const { return engine == Engine::fsdp1 || engine == Engine::fsdp2; }
};

// FSDP's SHARD_GRAD_OP is stage 2: weights are divided between steps and whole from forward to backward. DeepSpeed's
// stage 2 keeps them whole.
[[nodiscard]] Sharding sharding_of(const TrainingChoice& training, const LayoutChoice& layout);

}  // namespace vramplan
