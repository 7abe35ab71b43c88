// What a model has in a step: its graphs in the size that is asked, and its weights, states and buffers.
#include "step/model_in_step.hpp"

#include <utility>
#include <variant>

#include "step/contexts.hpp"
#include "step/generation.hpp"
#include "step/run.hpp"
#include "step/sharded_weights.hpp"
#include "step/stacks.hpp"

namespace vramplan {
namespace {

// One mask of truth values serves all layers that have the window and all sequences; checkpoints keep it.
bool any_window_mask(const BlockContext& context) {
  for (const LayerGroup& group : context.model->groups) {
    for (const Mixer& mixer : group.mixers) {
      const auto* attention = std::get_if<Attention>(&mixer);
      if (attention != nullptr && masks_window(context, *attention)) return true;
    }
  }
  return false;
}

// PPO's value model, which the policy's optimizer trains with it.
Run value_model_run(const Run& run) {
  Run value = prepare(*run.model, value_model_training(run.training), run.layout, {});
  value.accumulation_steps = run.accumulation_steps;
  value.second = true;
  return value;
}

void size_graph(WalkedGraph& w, const FrameworkSwitches& framework, BatchSize batch) {
  set_size(w.symbols, framework, batch);
  const ProductTable products = products_of(w.symbols);
  w.input = w.profile().input.at(products);
  w.saved = w.profile().saved.at(products);
  w.pinned = w.profile().pinned.at(products);
  w.cached = w.profile().cached.at(products);
  w.entering = w.profile().entering.at(products);
  w.forward_without_grad = w.profile().forward_without_grad.at(products);
  w.left_in_cache = w.profile().left_in_cache.at(products).bytes;
  w.forward_with_grad = w.profile().forward_with_grad.at(products);
  w.backward = w.profile().backward.at(products);
}

void size_graphs(ModelInStep& m) {
  const Run& run = m.run;
  const BatchSize batch = batch_of(run);
  size_graph(m.embedding, run.framework, batch);
  size_graph(m.head, run.framework, batch);
  for (LayerStack& stack : m.stacks) {
    size_graph(stack.block, run.framework, batch);
    stack.waiting = stack.last_of_group ? run.stage.waiting[stack.group] : 0;
  }
  const BatchSize asked = plays_ppo(run) ? BatchSize{rollout_sequences(run), batch.sequence_length} : batch;
  for (WalkedGraph& graph : m.reference) size_graph(graph, run.framework, asked);
  m.stream = Bytes(m.stream_bytes) * batch.micro_batch * tokens_of(run) * m.stream_width.value;
}

// Of a model that scores: one output in the place of the vocabulary.
Inventory scoring_inventory(const Run& run) {
  TrainingChoice t = run.training;
  t.objective = Objective::reward;
  return take_inventory(*run.model, t, groups_for(*run.model, t));
}

void add_others(Contributions& out, const Run& run) {
  if (run.second) return;
  const TrainingChoice& t = run.training;
  // Token ids, labels and positions of the batch.
  out.add({Component::buffers,
           3 * bytes_per_element(ElementType::int64),
           {{"b", saturating_multiply(t.micro_batch, sequences_per_sample(t.objective))}, {"s", tokens_of(run)}}});
  out.add({Component::cublas_workspace, 1, {{"bytes", run.cublas_workspace.value}}});
  if (run.framework.megatron_modules) {
    add_megatron_buffers(out, {.part = *run.model,
                               .inventory = run.inventory,
                               .types = run.types,
                               .micro_batch = t.micro_batch,
                               .tokens = tokens_of(run),
                               .gathers_for_head = run.stage.last && run.layout.sp && trains_outside(t, Module::head),
                               .gradients = t.fp32_gradients.value_or(true) ? ElementType::fp32 : run.types.weights,
                               .fp8_copies = run.framework.fp8 && !t.fp8_parameters,
                               .cublas_workspace = run.cublas_workspace});
  }
  // Unsloth dequantizes into one buffer that grows to the largest matrix (unsloth/kernels/utils.py), and brings
  // offloaded checkpoints back through two (one, when less than 512 MiB is free).
  if (run.framework.adapter_fusion == AdapterFusion::unsloth && is_quantized(run.types.base)) {
    out.add({Component::dequantized_weights,
             bytes_per_element(run.types.compute),
             {{"P_largest", run.inventory.largest_quantized.value}}});
  }
  if (run.framework.offloads_checkpoints) {
    out.add({Component::checkpoints,
             bytes_per_element(context_of(run, true).residual),
             {{"b", t.micro_batch}, {"s", t.sequence_length}, {"h", run.model->hidden_size}},
             1,
             2});
  }
}

void add_all_weights(Contributions& out, const Run& run) {
  add_weights(out, run.inventory, run.training, run.types, run.sharding);
  if (run.training.reference == Reference::model) {
    add_reference_weights(out, run.inventory, run.types, run.sharding);
  }
  if (run.training.reward_model == RewardModel::model) {
    add_reference_weights(out, scoring_inventory(run), run.types, run.sharding);
  }
}

void add_held(Contributions& out, const ModelInStep& m, Holding holding) {
  const Run& r = m.run;
  const auto sizes = [&] { return zero_sizes(r.sharding, r.model->hidden_size); };
  switch (holding) {
    case Holding::weights: return add_all_weights(out, r);
    case Holding::master_weights: return add_master_weights(out, r.inventory, r.training, r.types, r.sharding);
    case Holding::states: return add_optimizer_states(out, m.optimizer, r.sharding);
    case Holding::gradients: return add_gradients(out, r.inventory, r.types, r.sharding);
    case Holding::kept: {
      const ElementType unreduced = r.framework.reduces_in_fp32 ? ElementType::fp32 : working_type(r);
      return add_gradients_between_passes(out, r.inventory, r.types, r.sharding, unreduced);
    }
    case Holding::temporaries: return add_optimizer_temporaries(out, m.optimizer, r.inventory, r.types, r.sharding);
    case Holding::buffers: return add_backward_buffers(out, r.inventory, r.types, r.sharding, sizes());
    case Holding::others:
      add_others(out, r);
      return add_standing_buffers(out, r.inventory, r.types, r.sharding, sizes());
  }
}

}  // namespace

ModelInStep model_in_step(Run prepared, GraphSet& graphs) {
  ModelInStep m;
  m.run = std::move(prepared);
  const Run& run = m.run;
  m.optimizer = optimizer_memory(run.inventory, run.training, run.framework, run.types, deals_experts(run.layout));
  m.embedding = WalkedGraph(graphs.embedding(embedding_context(run), embedding_policy(run)));
  m.head = WalkedGraph(graphs.head(head_context(run), head_policy(run)));
  m.stacks = stacks_of(run, graphs);
  m.reference = reference_of(run, graphs);
  for (const LayerStack& stack : m.stacks) m.layers += stack.count;
  m.reused_layers = layers_within_reuse(run, m.stacks);
  const BlockContext context = context_of(run, true);
  m.has_window_mask = any_window_mask(context);
  m.stream_bytes = bytes_per_element(context.residual);
  const SymbolTable widths = widths_for(context, nullptr);
  const Symbol symbol = context.sequence_parallel ? Symbol::hp : Symbol::h;
  m.stream_width = {name_of(symbol), widths[symbol]};
  if (run.training.value_model) {
    GraphSet own;
    m.value_model.push_back(model_in_step(value_model_run(run), own));
  }
  return m;
}

Contributions contributions_of(const ModelInStep& m, Holding holding) {
  Contributions out;
  add_held(out, m, holding);
  return out;
}

void measure(ModelInStep& m) {
  size_graphs(m);
  for (std::size_t h = 0; h < kHoldingCount; ++h) {
    Contributions sum(Contributions::Keeps::sum);
    add_held(sum, m, static_cast<Holding>(h));
    m.held[h] = sum.total();
  }
}

}  // namespace vramplan
