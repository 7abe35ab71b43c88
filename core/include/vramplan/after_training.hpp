// What comes after training: merging adapters, files on disk, and serving.
//
// Merging: peft/tuners/lora/layer.py (get_delta_weight, merge) and variants.py (DoraLinearVariant.merge_unsafe).
// Serving: vllm/v1/kv_cache_interface.py and model_executor/layers/mamba/mamba_utils.py; latent attention caches its
// compressed keys and values (arXiv 2405.04434), a window keeps no more than its length.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "vramplan/model.hpp"
#include "vramplan/request.hpp"
#include "vramplan/states.hpp"
#include "vramplan/units.hpp"

namespace vramplan {

// The base model in 16 bits, the adapters, and the update of one weight while it is added.
struct MergeMemory {
  Bytes host;  // merged in host memory
  Bytes card;  // merged on one card: tensors alone, as in `allocated`
};

// Sizes of files. `training_state`: what a run that goes on needs besides the frozen base model.
struct Checkpoints {
  std::optional<Bytes> adapters;
  Bytes weights;  // all of the model, adapters merged in
  Bytes training_state;
};

// What users at the same time keep, in 16 bits: keys and values grow with the context, states of recurrent layers do
// not.
struct ServingCache {
  std::int64_t context = 0;
  std::int64_t users = 0;
  Bytes per_token;  // while no window is full
  Bytes states;     // of one user
  Bytes total;      // of all users at the full context
};

// Weights in a format, and these with the cache; over all GPUs together.
struct ServingMemory {
  WeightFormat weights = WeightFormat::bf16;
  Bytes weight_bytes;
  Bytes total;
};

struct AfterTraining {
  std::optional<MergeMemory> merge;  // of adapters
  Bytes merged;                      // the model in the type in which it is published and served
  Checkpoints checkpoints;
  ServingCache cache;
  std::vector<ServingMemory> serving;  // 16, 8 and 4 bits
};

// `request` with its defaults resolved.
[[nodiscard]] AfterTraining after_training(const PlanRequest& request, const ModelArchitecture& model);

// Keys and values of one sequence of `tokens`, over all layers, and the states of recurrent layers.
[[nodiscard]] Bytes cache_of(const ModelArchitecture& model, std::int64_t tokens);
[[nodiscard]] Bytes recurrent_states_of(const ModelArchitecture& model);

}  // namespace vramplan
