#include "vramplan/after_training.hpp"

#include <algorithm>

#include "vramplan/framework.hpp"
#include "vramplan/parameters.hpp"

namespace vramplan {
namespace {

constexpr std::int64_t kHalf = 2;    // bytes of a number in 16 bits
constexpr std::int64_t kSingle = 4;  // in FP32

// In FP32 the update of the largest weight twice: the product of its factors, and that product scaled. DoRA has the
// update, the sum with the weight, and the sum scaled by the magnitudes.
constexpr std::int64_t kUpdates = 2;
constexpr std::int64_t kDoraUpdates = 3;

struct Parts {
  const TrainingChoice* training = nullptr;
  std::vector<ParameterGroup> groups;
  Inventory inventory;
  FrameworkSwitches framework;
  StateTypes types;
};

Parts parts_of(const PlanRequest& request, const ModelArchitecture& model) {
  Parts p;
  p.training = &request.training;
  p.groups = groups_for(model, request.training);
  p.inventory = take_inventory(model, request.training, p.groups);
  p.framework = switches_for(request.training, Sharding{});
  p.types = state_types(request.training, p.framework);
  return p;
}

Params largest_target(const Parts& p) {
  Params largest;
  for (const ParameterGroup& g : adapted_groups(*p.training, p.groups)) {
    largest = std::max(largest, parameters_per_copy(g));
  }
  return largest;
}

Bytes adapter_bytes(const Parts& p) {
  return Bytes(p.inventory.adapters.value) * bytes_per_element(p.types.adapters) +
         Bytes(p.inventory.copies.value) * bytes_per_element(p.types.leftovers);
}

// Adapters are read in FP32, whatever they were saved in (peft, autocast_adapter_dtype). Host and card hold the same.
MergeMemory merge_memory(const Parts& p) {
  const bool dora = p.training->method == Method::dora;
  const Bytes updates = Bytes(largest_target(p).value) * kSingle * (dora ? kDoraUpdates : kUpdates);
  const Bytes trained = Bytes((p.inventory.adapters + p.inventory.copies).value) * kSingle;
  const Bytes sum = Bytes(p.inventory.total.value) * kHalf + trained + updates;
  return {sum, sum};
}

// A trained model is saved in the type in which it trained; one with adapters in the type of what they merge into.
Bytes weight_file(const Parts& p) {
  const bool whole = !has_adapters(p.training->method) && p.types.weights == ElementType::fp32;
  return Bytes(p.inventory.total.value) * (whole ? kSingle : kHalf);
}

// Weights that train (all of the model where no adapters do), optimizer states of all ranks, FP32 copies.
Bytes training_state(const Parts& p) {
  TrainingChoice unpaged = *p.training;
  unpaged.optimizer.paged = false;
  Contributions states;
  add_optimizer_states(states, optimizer_memory(p.inventory, unpaged, p.framework, p.types), Sharding{});
  add_master_weights(states, p.inventory, *p.training, p.types, Sharding{});
  const bool adapters = has_adapters(p.training->method);
  return states.total() + (adapters ? adapter_bytes(p) : weight_file(p));
}

// Linear weights of the blocks in the format, its constants, and everything else in 16 bits.
Bytes stored_in(const Parts& p, WeightFormat format) {
  Contributions constants;
  add_quantization_constants(constants, p.inventory, format, 1);
  const BlockFormat storage = storage_of(format);
  return bytes_in_blocks(p.inventory.block_linear.value, storage) + Bytes(p.inventory.leftovers.value) * kHalf +
         constants.total();
}

ServingCache cache_for(const PlanRequest& request, const ModelArchitecture& model) {
  const ServingChoice serving = request.serving.value_or(ServingChoice{});
  ServingCache cache{serving.context.value_or(0), serving.users, cache_of(model, 1), recurrent_states_of(model), {}};
  cache.total = (cache_of(model, serving.context.value_or(0)) + cache.states) * serving.users;
  return cache;
}

}  // namespace

AfterTraining after_training(const PlanRequest& request, const ModelArchitecture& model) {
  const Parts p = parts_of(request, model);
  AfterTraining out;
  if (has_adapters(request.training.method)) {
    out.merge = merge_memory(p);
    out.checkpoints.adapters = adapter_bytes(p);
  }
  out.merged = Bytes(p.inventory.total.value) * kHalf;
  out.checkpoints.weights = weight_file(p);
  out.checkpoints.training_state = training_state(p);
  out.cache = cache_for(request, model);
  for (const WeightFormat format : {WeightFormat::bf16, WeightFormat::int8, WeightFormat::nf4}) {
    const Bytes weights = stored_in(p, format);
    out.serving.push_back({format, weights, weights + out.cache.total});
  }
  return out;
}

}  // namespace vramplan
