// What follows from a run before anything of it is walked.
#pragma once

#include "vramplan/step.hpp"

namespace vramplan {

// Another layout and batch for a run that is prepared.
void set_size(Run& run, const LayoutChoice& layout, BatchSize batch);

inline bool has_adapters(const Run& run) { return run.adapter_targets != 0; }

// One stage has all layers.
inline bool holds_all(const Run& run) { return run.layout.pp == 1; }

// A selective checkpoint around a whole block, whose policy keeps some products.
inline bool caches_products(const Run& run) {
  return run.training.recompute == Recompute::selective && run.framework.caches_products;
}
// Whether whole blocks run again in backward.
inline bool checkpoints_blocks(const Run& run) {
  return run.training.recompute == Recompute::full || caches_products(run);
}

inline bool generates(const Run& run) { return run.training.generation.has_value(); }
inline bool plays_ppo(const Run& run) { return run.training.objective == Objective::ppo; }
// DPO asks the reference when the policy has answered, all that it saved being there; GRPO asks it before.
inline bool reference_runs_last(const Run& run) { return !generates(run); }
inline bool runs_embedding_back(const Run& run) {
  return run.stage.first && trains_outside(run.training, Module::embedding);
}

// Sequences that run together, and their length.
inline BatchSize batch_of(const Run& run) {
  const TrainingChoice& t = run.training;
  const std::int64_t each = run.second ? 1 : sequences_per_sample(t.objective);
  return {saturating_multiply(t.micro_batch, each), t.sequence_length};
}
// Of a sequence, on this rank.
inline Dim tokens_of(const Run& run) { return divide_up(run.training.sequence_length, run.layout.cp); }

// FSDP's mixed precision gathers weights, and reduces gradients, in the type of the matrix products.
inline bool gathers_in_compute_type(const Run& run) { return run.framework.autocast && run.sharding.gathers; }
inline ElementType working_type(const Run& run) {
  return gathers_in_compute_type(run) ? run.types.compute : run.types.weights;
}

// New gradients are added to those of earlier passes, or copied into a bucket, one by one. FSDP1 joins those of a unit
// first, and FSDP2 reduces a unit's at once unless reduction waits.
inline bool drops_gradients(const Sharding& sharding, bool accumulates) {
  if (sharding.engine == Engine::megatron) return true;  // into its buffer
  if (sharding.engine == Engine::deepspeed && sharding.stage >= 2) return true;
  if (!accumulates || sharding.engine == Engine::fsdp1) return false;
  return sharding.engine == Engine::fsdp2 ? sharding.defers_reduction : true;
}

// Updates in backward. Whole gradients of a sharded model are divided when the unit's backward has ended; only then can
// they be used.
inline bool uses_up_gradients(const TrainingChoice& t, const Sharding& sharding) {
  return updates_in_backward(t.optimizer) && sharding.gradients == 1;
}

// A table that is embedding and head at once. A classifier's head is a matrix of its own.
inline bool trains_tied_table(const Run& run) {
  return run.model->tie_word_embeddings && trains_everything(run.training) &&
         run.training.objective != Objective::reward;
}

// What leaves a model under autocast is raised to FP32: copies of 16-bit outputs.
inline bool raises_outputs(const Run& run, std::int64_t stream_bytes) {
  return run.framework.autocast && stream_bytes < bytes_per_element(ElementType::fp32);
}

inline bool joins_sequences(const FrameworkSwitches& framework, std::int64_t micro_batch) {
  return framework.joins_heads_with_batch && micro_batch > 1;
}

}  // namespace vramplan
