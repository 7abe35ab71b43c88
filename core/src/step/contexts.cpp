// The contexts in which the blocks, the ends and the reference are built, and how long gradients live there.
#include "step/contexts.hpp"

#include <algorithm>

#include "step/run.hpp"

namespace vramplan {
namespace {

Dim per_thousand(double ratio) { return static_cast<Dim>(ratio * 1000 + 0.5); }

// Whether ranks of context parallelism exchange heads. TransformerEngine's all-to-all wants the heads of a rank to be
// divisible, of keys too, and knows no values of another width (context_parallel.py, AttnFuncWithCPAndQKVOA2A).
bool exchanges_heads(const ModelArchitecture& part, const LayoutChoice& layout) {
  if (layout.cp_exchange) return *layout.cp_exchange == ContextExchange::all_to_all;
  const auto divides = [&](const Mixer& mixer) {
    if (std::holds_alternative<LatentAttention>(mixer)) return false;
    const auto* a = std::get_if<Attention>(&mixer);
    return a == nullptr || (a->heads % layout.cp == 0 && a->kv_heads % layout.cp == 0);
  };
  return std::all_of(part.groups.begin(), part.groups.end(), [&](const LayerGroup& group) {
    return std::all_of(group.mixers.begin(), group.mixers.end(), divides);
  });
}

std::uint32_t recomputed_modules(const TrainingChoice& t) {
  std::uint32_t modules = 0;
  if (t.recompute != Recompute::selective) return modules;
  for (const RecomputeModule m : t.recompute_modules) modules |= 1U << static_cast<unsigned>(m);
  return modules;
}

GradientPolicy gradient_policy(const Run& run, GradientLife life, bool in_block) {
  if (!uses_up_gradients(run.training, run.sharding)) return {};
  const TensorUpdate update = largest_update(run.inventory, run.training, run.framework, run.types, in_block);
  if (update.elements == 0) return {};
  return {life, update.temporaries, Bytes(bytes_per_element(run.types.weights)) * update.elements};
}

GradientLife life_of_gradients(const Run& run) {
  const OptimizerName name = run.training.optimizer.name;
  const bool later = name == OptimizerName::lomo || name == OptimizerName::adalomo;
  return later ? GradientLife::next_update : GradientLife::own_update;
}

}  // namespace

BlockContext context_of(const Run& run, bool trained_layer) {
  BlockContext c;
  const ElementType working = working_type(run);
  c.model = run.model;
  c.framework = run.framework;
  c.sequence_length = run.training.sequence_length;
  c.tensor_ranks = run.layout.tp;
  c.sequence_ranks = run.layout.cp;
  c.sequence_parallel = run.layout.sp;
  c.gathers_logits = run.framework.gathers_logits || !run.layout.loss_parallel;
  c.expert_tensor_ranks = expert_tensor_ranks(run.layout);
  c.expert_imbalance = per_thousand(run.training.moe.imbalance);
  c.expert_capacity = per_thousand(run.training.moe.capacity_factor.value_or(0));
  c.joins_sequences = joins_sequences(run.framework, run.training.micro_batch);
  c.exchanges_heads = exchanges_heads(*run.model, run.layout);
  c.recomputed = recomputed_modules(run.training);
  c.rank = run.training.lora.rank;
  c.predictions = run.training.mtp_layers;
  c.checkpoints_predictions = run.training.recompute == Recompute::full;
  c.compute = run.types.compute;
  c.weights = working;
  c.leftovers = gathers_in_compute_type(run) ? run.types.compute : run.types.leftovers;
  c.tables = gathers_in_compute_type(run) ? run.types.compute : run.types.tables;
  c.residual = c.leftovers;
  c.gradients = working;
  c.quantized = is_quantized(run.types.base);
  c.multiplies_int8 = run.types.base == WeightFormat::int8;
  const Method method = run.training.method;
  c.trains_base = trains_everything(run.training) || (method == Method::freeze && trained_layer) ||
                  run.framework.trains_whole_units;
  c.trains_embedding = trains_outside(run.training, Module::embedding);
  c.trains_head = trains_outside(run.training, Module::head);
  c.trains_norms = c.trains_base;
  c.accumulates = drops_gradients(run.sharding, run.accumulation_steps > 1);
  c.uses_up_gradients = uses_up_gradients(run.training, run.sharding);
  c.gradient_enters = trained_layer;
  c.attention = run.training.attention;
  c.keeps_streams = run.framework.keeps_outputs && !raises_outputs(run, bytes_per_element(c.residual));
  const bool drops = run.framework.drops_out && run.training.lora.dropout.value_or(0) > 0;
  c.adapter = {run.adapter_targets, drops, method == Method::dora, run.types.adapters};
  return c;
}

// The final norm trains with the whole model only.
BlockContext head_context(const Run& run) {
  BlockContext c = context_of(run, true);
  c.trains_norms = trains_everything(run.training);
  return c;
}

// The base model, of which nothing is trained. PPO calls the models themselves, not what Accelerate made of them: no
// autocast.
BlockContext reference_context(const Run& run) {
  BlockContext c = context_of(run, false);
  if (run.training.objective == Objective::ppo) {
    c.framework.autocast = false;
    c.compute = run.types.weights;
    c.keeps_streams = false;
  }
  c.trains_base = c.trains_embedding = c.trains_head = c.trains_norms = false;
  c.adapter = {};
  return c;
}

// The embedding's output needs a gradient when the table is trained, or when checkpoints with adapters ask for one.
BlockContext embedding_context(const Run& run) {
  BlockContext c = context_of(run, true);
  c.gradient_enters = c.trains_embedding || (run.training.recompute == Recompute::full && has_adapters(run));
  return c;
}

GradientPolicy block_policy(const Run& run) { return gradient_policy(run, life_of_gradients(run), true); }

// The gradient of a tied table waits for that of the embedding.
GradientPolicy head_policy(const Run& run) {
  if (trains_tied_table(run)) return {};
  return gradient_policy(run, life_of_gradients(run), false);
}

// The last gradient of backward. Of a tied table it is added to the head's, which then is one gradient too many.
GradientPolicy embedding_policy(const Run& run) {
  GradientPolicy policy = gradient_policy(run, GradientLife::own_update, false);
  if (!trains_tied_table(run)) return policy;
  policy.temporaries = std::max(policy.temporaries - policy.gradient, Bytes{});
  return policy;
}

}  // namespace vramplan
