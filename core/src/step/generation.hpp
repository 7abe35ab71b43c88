// The policy writes its answers, and the reference judges them: caches of keys and values, scores of tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <variant>

#include "step/model_in_step.hpp"
#include "step/run.hpp"
#include "step/sinks.hpp"

namespace vramplan {

// Keys and values that one layer caches for one token of a sequence, and how many tokens of it.
struct Cached {
  Dim width = 0, tokens = 0;
};
inline Cached cached_by(const Attention& a, Dim length) {
  return {a.kv_heads * (a.head_dim + v_head_dim_of(a)), a.window > 0 ? std::min(a.window, length) : length};
}
// Transformers caches the expanded keys and values (modeling_deepseek_v3.py).
inline Cached cached_by(const LatentAttention& a, Dim length) {
  return {a.heads * (a.qk_nope_head_dim + a.qk_rope_head_dim + a.v_head_dim), length};
}
inline Cached cached_by(const CompressedAttention& a, Dim length) { return {2 * a.head_dim, length}; }
// The states of recurrent layers do not grow with the answer, and are small beside keys and values.
template <class Recurrent>
Cached cached_by(const Recurrent&, Dim) {
  return {};
}

// Answers of a step; of them, those that one pass writes or judges.
inline std::int64_t all_sequences(const Run& run) {
  return saturating_multiply(batch_of(run).micro_batch, run.accumulation_steps);
}

// PPO answers and judges so many at a time (experimental/ppo/ppo_config.py, local_rollout_forward_batch_size).
inline constexpr std::int64_t kPpoRollout = 64;

inline std::int64_t rollout_sequences(const Run& run) {
  return plays_ppo(run) ? std::min(all_sequences(run), kPpoRollout) : all_sequences(run);
}

template <class Sink>
void describe_cache(const ModelInStep& m, std::int64_t written, Sink& sink) {
  // PPO's policy writes outside autocast.
  const std::int64_t bytes = bytes_per_element(plays_ppo(m.run) ? m.run.types.weights : m.run.types.compute);
  const Factor sequences{"b_all", written};
  for (const LayerGroup& group : m.run.model->groups) {
    for (const Mixer& mixer : group.mixers) {
      const Cached cached =
          std::visit([&](const auto& kind) { return cached_by(kind, m.run.training.sequence_length); }, mixer);
      sink.term(Component::kv_cache, bytes, 1, group.count, sequences, Factor{"s", cached.tokens},
                Factor{"w_kv", cached.width});
    }
  }
}

// PPO asks for the scores of all tokens that it writes, which are FP32 (experimental/ppo/ppo_trainer.py, generate).
template <class Sink>
void describe_scores(const ModelInStep& m, std::int64_t sequences, Sink& sink) {
  sink.term(Component::logits, bytes_per_element(ElementType::fp32), 1, 1, Factor{"b_all", sequences},
            Factor{"sk", m.run.training.generation->completion_length}, Factor{"V", head_rows_of(*m.run.model)});
}

// While the reference judges: the scores of all answers, and every hidden state of its own. The value model and the
// reward model do the same after it, without logits.
template <class Sink>
void describe_rollout(const ModelInStep& m, Sink& sink) {
  describe_scores(m, all_sequences(m.run), sink);
  sink.term(Component::working_memory, bytes_per_element(m.run.types.leftovers), 1, m.layers + 1,
            Factor{"b_all", rollout_sequences(m.run)}, Factor{"s", m.run.training.sequence_length},
            Factor{"h", m.run.model->hidden_size});
}

// Scores come a token at a time and are stacked when a group of answers is written; the groups are copied into one.
template <class Sink>
void describe_writing(const ModelInStep& m, Sink& sink) {
  ByteSink writing, joining;
  describe_cache(m, rollout_sequences(m.run), writing);
  describe_scores(m, saturating_add(all_sequences(m.run), rollout_sequences(m.run)), writing);
  describe_scores(m, saturating_multiply(all_sequences(m.run), 2), joining);
  if (joining.bytes > writing.bytes) return describe_scores(m, saturating_multiply(all_sequences(m.run), 2), sink);
  describe_cache(m, rollout_sequences(m.run), sink);
  describe_scores(m, saturating_add(all_sequences(m.run), rollout_sequences(m.run)), sink);
}

// The answers to all micro-batches of a step are written at once (trl/trainer/grpo_config.py, steps_per_generation). An
// engine beside training has its weights and its cache in a share of the card of its own.
template <class Sink>
void describe_generation(const ModelInStep& m, Sink& sink) {
  if (m.run.training.generation->engine_share > 0) return;
  if (plays_ppo(m.run)) return describe_writing(m, sink);
  describe_cache(m, all_sequences(m.run), sink);
  const std::int64_t bytes = bytes_per_element(m.run.types.compute);
  // Whole weights while the model writes (ds3_gather_for_generation; summon_full_params under FSDP).
  if (m.run.sharding.weights > 1) {
    sink.term(Component::gathered_parameters, bytes, 1, 1, Factor{"P", m.run.inventory.total.value});
  }
}

}  // namespace vramplan
