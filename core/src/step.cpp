#include "vramplan/step.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace vramplan {
namespace {

constexpr Component kGradients = Component::gradients;

bool has_adapters(const Run& run) { return run.adapter_targets != 0; }

// BAdam's layer, of which the lowest is planned: everything above it has gradients of activations.
bool trains_one_layer(const Run& run) { return run.training.optimizer.name == OptimizerName::badam; }

bool runs_reference(const TrainingChoice& t) {
  return t.reference == Reference::model || t.reference == Reference::adapters_off;
}

// FSDP's mixed precision gathers weights, and reduces gradients, in the type of the matrix products.
bool gathers_in_compute_type(const Run& run) { return run.framework.autocast && run.sharding.gathers; }
ElementType working_type(const Run& run) {
  return gathers_in_compute_type(run) ? run.types.compute : run.types.weights;
}

// New gradients are added to those of earlier passes, or copied into a bucket, one by one. FSDP1 joins those of a unit
// first, and FSDP2 reduces a unit's at once unless reduction waits.
bool drops_gradients(const Sharding& sharding, bool accumulates) {
  if (sharding.engine == Engine::megatron) return true;  // into its buffer
  if (sharding.engine == Engine::deepspeed && sharding.stage >= 2) return true;
  if (!accumulates || sharding.engine == Engine::fsdp1) return false;
  return sharding.engine == Engine::fsdp2 ? sharding.defers_reduction : true;
}

// Updates in backward. Whole gradients of a sharded model are divided when the unit's backward has ended; only then can
// they be used.
bool uses_up_gradients(const TrainingChoice& t, const Sharding& sharding) {
  return updates_in_backward(t.optimizer) && sharding.gradients == 1;
}

// What leaves a model under autocast is raised to FP32: copies of 16-bit outputs.
bool raises_outputs(const Run& run, std::int64_t stream_bytes) {
  return run.framework.autocast && stream_bytes < bytes_per_element(ElementType::fp32);
}

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

bool joins_sequences(const FrameworkSwitches& framework, std::int64_t micro_batch) {
  return framework.joins_heads_with_batch && micro_batch > 1;
}

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

// One stage has all layers.
bool holds_all(const Run& run) { return run.layout.pp == 1; }

// The first layer through which gradients flow: below the lowest that is trained, or that carries adapters, autograd
// stops.
Dim first_trained_layer(const Run& run, Dim layers) {
  if (run.training.method == Method::freeze)
    return std::max<Dim>(layers - run.training.trainable_layers.value_or(0), 0);
  if (trains_one_layer(run)) return first_of(*run.model, largest_group(run.inventory));
  if (!has_adapters(run) || !holds_all(run)) return 0;
  Dim first = layers;
  for (std::size_t i = 0; i < run.model->groups.size(); ++i) {
    if ((run.inventory.adapted_groups >> i & 1U) != 0) first = std::min(first, first_of(*run.model, i));
  }
  return first;
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

GradientPolicy block_policy(const Run& run) { return gradient_policy(run, life_of_gradients(run), true); }

// A table that is embedding and head at once. A classifier's head is a matrix of its own.
bool trains_tied_table(const Run& run) {
  return run.model->tie_word_embeddings && trains_everything(run.training) &&
         run.training.objective != Objective::reward;
}

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

Dim walked_layers(const Stage& stage) { return std::accumulate(stage.walked.begin(), stage.walked.end(), Dim{0}); }

// Makes the stacks of a stage. Layers below the first that is trained run without gradients. Nothing below that one
// needs a gradient either, unless a checkpoint asks for one at its input (enable_input_require_grads), the embedding is
// trained, or another stage hands it over: it is a stack of its own.
class Stacks {
 public:
  Stacks(const Run& run, Dim layers, GraphSet& graphs) : run_(run), graphs_(graphs) {
    const bool from_below = trains_outside(run.training, Module::embedding) || (checkpointed() && has_adapters(run));
    const bool handed_over = !run.stage.first || run.layout.vpp > 1;
    const Dim first = from_below ? 0 : first_trained_layer(run, layers);
    const std::vector<Dim> frozen = first_walked(first);
    const std::vector<Dim> edge = first_walked(from_below || handed_over ? first : std::min(first + 1, layers));
    const std::size_t groups = frozen.size();
    for (std::size_t i = 0; i < groups; ++i) push(i, frozen[i], Place::frozen);
    for (std::size_t i = 0; i < groups; ++i) push(i, edge[i] - frozen[i], Place::edge);
    for (std::size_t i = 0; i < groups; ++i) push(i, run.stage.walked[i] - edge[i], Place::above);
  }
  [[nodiscard]] std::vector<LayerStack> take() { return std::move(stacks_); }

 private:
  enum class Place : std::uint8_t { frozen, edge, above };

  [[nodiscard]] bool checkpointed() const { return checkpoints_blocks(run_); }
  [[nodiscard]] bool caches() const {
    return run_.training.recompute == Recompute::selective && run_.framework.caches_products;
  }
  [[nodiscard]] std::vector<Dim> first_walked(Dim layers) const {
    return first_layers(run_.stage.walked, holds_all(run_) ? run_.model->order : std::vector<Dim>{}, layers);
  }
  void push(std::size_t group, Dim count, Place place) {
    // Where others wait beside those that are walked, the group has a stack even when none is walked.
    const bool piped = run_.layout.pp > 1 && run_.stage.held[group] > 0;
    if (count == 0 && !(piped && place == Place::above)) return;
    const bool trained = place != Place::frozen;
    BlockContext context = context_of(run_, trained);
    context.gradient_enters = place == Place::above;
    if (trains_one_layer(run_) && place == Place::edge) context.trains_base = context.trains_norms = true;
    context.caches = caches() && trained;
    const bool checkpoints = checkpointed() && trained;
    stacks_.push_back({next_,
                       count,
                       trained,
                       checkpoints,
                       {graphs_.block(context, group, checkpoints, block_policy(run_))},
                       run_.inventory.layers[group],
                       group,
                       0});
    next_ += count;
  }

  const Run& run_;
  GraphSet& graphs_;
  Dim next_ = 0;
  std::vector<LayerStack> stacks_;
};

std::vector<WalkedGraph> reference_of(const Run& run, GraphSet& set) {
  std::vector<WalkedGraph> graphs;
  if (!runs_reference(run.training)) return graphs;
  const BlockContext context = reference_context(run);
  for (std::size_t i = 0; i < run.model->groups.size(); ++i) graphs.push_back({set.block(context, i, false, {})});
  graphs.push_back({set.head(context, {})});
  return graphs;
}

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

// What a description of an event is told to: `list` for contributions counted before, `term` for count x each x
// ceil(product of factors / ranks), `saved` and `moment` for what a graph keeps; `side_list` and `side` for what FSDP2
// takes on a stream of its own.

// Adds bytes only.
struct ByteSink {
  Bytes bytes;
  void list(const Contributions&, Bytes total) { bytes += total; }
  void side_list(const Contributions&, Bytes total) { bytes += total; }
  template <class... Factors>
  void side(Component component, std::int64_t each, std::int64_t ranks, std::int64_t count, const Factors&... factors) {
    term(component, each, ranks, count, factors...);
  }
  template <class... Factors>
  void term(Component, std::int64_t each, std::int64_t ranks, std::int64_t count, const Factors&... factors) {
    std::int64_t product = 1;
    ((product = saturating_multiply(product, factors.value)), ...);
    if (ranks > 1) product = divide_up(product, ranks);
    bytes += Bytes(saturating_multiply(saturating_multiply(count, each), product));
  }
  // A term whose product is known already.
  template <class... Factors>
  void known(Bytes one, Component, std::int64_t, std::int64_t count, const Factors&...) {
    bytes += one * count;
  }
  void saved(const WalkedGraph& block, std::int64_t layers) { bytes += block.saved * layers; }
  void pinned(const WalkedGraph& block, std::int64_t layers) { bytes += block.pinned * layers; }
  void cached(const WalkedGraph& block, std::int64_t layers) { bytes += block.cached * layers; }
  void entering(const WalkedGraph& block) { bytes += block.entering; }
  void moment(const WalkedGraph&, const Peak& peak, Phase, Component) { bytes += peak.bytes; }
};

// Adds bytes of the main stream only.
struct MainStreamSink : ByteSink {
  void side_list(const Contributions&, Bytes) {}
  template <class... Factors>
  void side(Component, std::int64_t, std::int64_t, std::int64_t, const Factors&...) {}
};

// Keeps what the bytes are.
struct ContributionSink {
  std::vector<Contribution> out;
  void list(const Contributions& list, Bytes) { out.insert(out.end(), list.begin(), list.end()); }
  void side_list(const Contributions& l, Bytes total) { list(l, total); }
  template <class... Factors>
  void side(Component component, std::int64_t each, std::int64_t ranks, std::int64_t count, const Factors&... factors) {
    term(component, each, ranks, count, factors...);
  }
  template <class... Factors>
  void term(Component component, std::int64_t each, std::int64_t ranks, std::int64_t count, const Factors&... factors) {
    one({component, each, {Factor(factors)...}, ranks, count});
  }
  template <class... Factors>
  void known(Bytes, Component component, std::int64_t each, std::int64_t count, const Factors&... factors) {
    term(component, each, 1, count, factors...);
  }
  void one(const Contribution& c) {
    if (c.bytes().value != 0) out.push_back(c);
  }
  void item(const SymbolTable& symbols, const LiveItem& live, std::int64_t times) {
    Contribution c(live.component, constant_bytes(live.size), {}, 1, times);
    for (const Symbol s : live.size.symbols) {
      if (s != Symbol::one) c.factors[c.factor_count++] = {name_of(s), symbols[s]};
    }
    one(c);
  }
  void items(const WalkedGraph& block, Phase phase, std::int64_t times) {
    const LiveSet set = live_at(block.graph(), phase, block.profile().enters_at);
    for (const LiveItem& live : set.items()) item(block.symbols, live, times);
  }
  void saved(const WalkedGraph& block, std::int64_t layers) { items(block, Phase::saved, layers); }
  void pinned(const WalkedGraph& block, std::int64_t layers) { items(block, Phase::pinned, layers); }
  void cached(const WalkedGraph& block, std::int64_t layers) { items(block, Phase::cached, layers); }
  void entering(const WalkedGraph& block) { items(block, Phase::entering, 1); }
  void moment(const WalkedGraph& block, const Peak& peak, Phase phase, Component gradients) {
    const LiveSet set = live_at(block.graph(), phase, peak.op);
    for (const LiveItem& live : set.items()) item(block.symbols, live, 1);
    term(gradients, 1, 1, 1, Factor{"G_running", peak.parameter_gradients.value});
    term(Component::optimizer_temporaries, 1, 1, 1, Factor{"U_running", peak.update.value});
  }
};

bool is_forward(EventKind k) {
  return k == EventKind::forward_embedding || k == EventKind::forward_block || k == EventKind::forward_head ||
         k == EventKind::reference_forward;
}
bool is_backward(EventKind k) {
  return k == EventKind::backward_head || k == EventKind::recompute_block || k == EventKind::backward_block ||
         k == EventKind::backward_embedding;
}
bool in_pass(EventKind k) { return is_forward(k) || is_backward(k); }
Phase phase_of(const Peak& backward) { return backward.update.value > 0 ? Phase::after_backward : Phase::backward; }
bool is_block(EventKind k) {
  return k == EventKind::forward_block || k == EventKind::recompute_block || k == EventKind::backward_block;
}

void add_others(Contributions& out, const Run& run) {
  if (run.second) return;
  const TrainingChoice& t = run.training;
  // Token ids, labels and positions of the batch.
  out.add({Component::buffers,
           3 * bytes_per_element(ElementType::int64),
           {{"b", saturating_multiply(t.micro_batch, sequences_per_sample(t.objective))},
            {"s", divide_up(t.sequence_length, run.layout.cp)}}});
  out.add({Component::cublas_workspace, 1, {{"bytes", run.cublas_workspace.value}}});
  if (run.framework.megatron_modules) {
    add_megatron_buffers(out, {.part = *run.model,
                               .inventory = run.inventory,
                               .types = run.types,
                               .micro_batch = t.micro_batch,
                               .tokens = divide_up(t.sequence_length, run.layout.cp),
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

// Micro-batches that a pipeline makes of the batch of a rank.
std::int64_t pieces_of(const TrainingChoice& t, const FrameworkSwitches& framework, const LayoutChoice& layout,
                       BatchSize batch) {
  return framework.pipeline_cuts_batch && layout.pp > 1 && !t.global_batch ? batch.micro_batch : 1;
}

std::int64_t accumulation_steps(const TrainingChoice& t, const FrameworkSwitches& framework, const LayoutChoice& layout,
                                BatchSize batch) {
  if (!t.global_batch) {
    // A pipeline of which nobody says how often it is fed is full.
    const std::int64_t full = layout.pp > 1 ? layout.pp * (layout.vpp > 1 ? 2 : 1) : 1;
    const std::int64_t fed = framework.pipeline_cuts_batch ? pieces_of(t, framework, layout, batch) : full;
    return std::max(framework.sequences_per_device / batch.micro_batch, fed);
  }
  const std::int64_t per_pass = saturating_multiply(batch.micro_batch, layout.dp);
  return std::max<std::int64_t>(*t.global_batch / per_pass, 1);
}

void set_size(Run& run, const LayoutChoice& layout, BatchSize batch) {
  run.layout = layout;
  run.sharding = sharding_of(run.training, layout);
  run.accumulation_steps = accumulation_steps(run.training, run.framework, layout, batch);
  run.training.micro_batch = batch.micro_batch / pieces_of(run.training, run.framework, layout, batch);
  run.training.sequence_length = batch.sequence_length;
  if (layout.pp > 1) run.stage = stage_of(*run.whole, layout, run.accumulation_steps, run.stage.index);
}

// DeepSpeed's stage 3 fetches module by module and the next ones in advance. A module stays when it is needed again
// within a distance: the last layers from forward to backward, and a layer from its recompute to its backward
// (deepspeed/runtime/zero/partitioned_param_coordinator.py, fetch_sub_module and __params_to_release).
constexpr Params kReuseDistance{1'000'000'000};  // stage3_max_reuse_distance, elements

// Layers of which no more lies between forward and backward than the distance; what does is met twice.
Dim layers_within_reuse(const Run& run, const std::vector<LayerStack>& stacks) {
  Params between(saturating_multiply(run.model->vocab_size, run.model->hidden_size));
  Dim layers = 0;
  for (auto stack = stacks.rbegin(); stack != stacks.rend(); ++stack) {
    for (Dim i = 0; i < stack->count; ++i, ++layers) {
      if (between * 2 >= kReuseDistance) return layers;
      between += stack->parameters;
    }
  }
  return layers;
}

void size_graph(WalkedGraph& w, const FrameworkSwitches& framework, BatchSize batch) {
  w.symbols = sized(w.graph().widths(), framework, batch);
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

}  // namespace

Form form_of(const ModelArchitecture& model, const TrainingChoice& training, const LayoutChoice& layout,
             BatchSize batch, std::int64_t stage) {
  const Sharding sharding = sharding_of(training, layout);
  const FrameworkSwitches framework = switches_for(training, sharding);
  const bool accumulates = accumulation_steps(training, framework, layout, batch) > 1;
  Form form{sharding.engine, sharding.gathers, drops_gradients(sharding, accumulates),
            uses_up_gradients(training, sharding)};
  form.tp = layout.tp, form.pp = layout.pp, form.vpp = layout.vpp, form.cp = layout.cp;
  form.ep = layout.ep, form.etp = expert_tensor_ranks(layout), form.sp = layout.sp, form.stage = stage;
  form.cp_exchange = layout.cp_exchange;
  form.loss_parallel = layout.loss_parallel;
  form.first_stage_layers = layout.first_stage_layers, form.last_stage_layers = layout.last_stage_layers;
  form.joins_sequences = joins_sequences(framework, batch.micro_batch);
  form.filled_windows = filled_windows(model, batch.sequence_length);
  return form;
}

Run prepare(const ModelArchitecture& model, const TrainingChoice& training, const LayoutChoice& layout,
            Bytes cublas_workspace, std::int64_t stage) {
  Run run;
  run.whole = run.model = &model;
  run.training = training;
  run.framework = switches_for(training, sharding_of(training, layout));
  run.stage = stage_of(model, layout, 1, stage);
  if (cuts_model(layout) || run.framework.vocabulary_multiple > 1) {
    run.part =
        std::make_shared<const ModelArchitecture>(part_of(model, layout, run.stage, run.framework.vocabulary_multiple));
    run.model = run.part.get();
  }
  set_size(run, layout, {training.micro_batch, training.sequence_length});
  run.types = state_types(training, run.framework);
  const std::vector<ParameterGroup> groups = groups_for(*run.model, training, {layout.tp, model.tie_word_embeddings});
  run.inventory = take_inventory(*run.model, training, groups, {layout.tp, expert_tensor_ranks(layout)});
  if (run.framework.trains_whole_units)
    run.inventory.with_gradients = run.inventory.total - run.inventory.outside_layers;
  run.adapter_targets = adapter_targets(training, groups);
  run.cublas_workspace = cublas_workspace;
  return run;
}

namespace {

// PPO's value model, which the policy's optimizer trains with it.
Run value_model_run(const Run& run) {
  Run value = prepare(*run.model, value_model_training(run.training), run.layout, {});
  value.accumulation_steps = run.accumulation_steps;
  value.second = true;
  return value;
}

}  // namespace

Step::Step(const Run& run) : Step(run, *std::make_unique<GraphSet>()) {}

Step::Step(const Run& run, GraphSet& graphs)
    : run_(run),
      embedding_{graphs.embedding(embedding_context(run), embedding_policy(run))},
      head_{graphs.head(head_context(run), head_policy(run))},
      stacks_(Stacks(run, walked_layers(run.stage), graphs).take()),
      reference_(reference_of(run, graphs)),
      layers_(walked_layers(run.stage)),
      optimizer_(optimizer_memory(run.inventory, run.training, run.framework, run.types, deals_experts(run.layout))) {
  reused_layers_ = layers_within_reuse(run_, stacks_);
  const BlockContext context = context_of(run_, true);
  has_window_mask_ = any_window_mask(context);
  stream_bytes_ = bytes_per_element(context.residual);
  const SymbolTable widths = widths_for(context, nullptr);
  const Symbol symbol = context.sequence_parallel ? Symbol::hp : Symbol::h;
  stream_width_ = {name_of(symbol), widths[symbol]};
  if (run_.training.value_model) value_model_.emplace_back(value_model_run(run_));
  size_graphs();
  fill_lists();
}

void Step::resize(const LayoutChoice& layout, BatchSize batch, Bytes cublas_workspace) {
  set_size(run_, layout, batch);
  run_.cublas_workspace = cublas_workspace;
  if (!value_model_.empty()) value_model_.front().resize(layout, batch, {});
  size_graphs();
  fill_lists();
}

// The value model's highest moments, which stand for all of its passes.
void Step::size_value_model() {
  if (value_model_.empty()) return;
  value_forward_ = value_model_.front().highest_of(true);
  value_backward_ = value_model_.front().highest_of(false);
}

void Step::size_graphs() {
  size_value_model();
  size_graph(embedding_, run_.framework, batch());
  size_graph(head_, run_.framework, batch());
  for (LayerStack& stack : stacks_) {
    size_graph(stack.block, run_.framework, batch());
    const auto behind = stacks_.begin() + (&stack - stacks_.data()) + 1;
    const bool last_of_group =
        std::none_of(behind, stacks_.end(), [&](const LayerStack& other) { return other.group == stack.group; });
    stack.waiting = last_of_group ? run_.stage.waiting[stack.group] : 0;
  }
  const BatchSize asked = plays_ppo() ? BatchSize{rollout_sequences(), batch().sequence_length} : batch();
  for (WalkedGraph& graph : reference_) size_graph(graph, run_.framework, asked);
  stream_ = Bytes(stream_bytes_) * batch().micro_batch * tokens() * stream_width_.value;
}

// Of a sequence, on this rank.
Dim Step::tokens() const { return divide_up(run_.training.sequence_length, run_.layout.cp); }

// Sequences that run together, and their length.
BatchSize Step::batch() const {
  const TrainingChoice& t = run_.training;
  const std::int64_t each = run_.second ? 1 : sequences_per_sample(t.objective);
  return {saturating_multiply(t.micro_batch, each), t.sequence_length};
}

namespace {

// Of a model that scores: one output in the place of the vocabulary.
Inventory scoring_inventory(const Run& run) {
  TrainingChoice t = run.training;
  t.objective = Objective::reward;
  return take_inventory(*run.model, t, groups_for(*run.model, t));
}

}  // namespace

void Step::fill_lists() {
  for (Contributions* list : {&weights_, &states_, &gradients_, &kept_, &temporaries_, &buffers_, &others_}) {
    list->clear();
  }
  add_weights(weights_, run_.inventory, run_.training, run_.types, run_.sharding);
  if (run_.training.reference == Reference::model) {
    add_reference_weights(weights_, run_.inventory, run_.types, run_.sharding);
  }
  if (run_.training.reward_model == RewardModel::model) {
    add_reference_weights(weights_, scoring_inventory(run_), run_.types, run_.sharding);
  }
  add_master_weights(states_, run_.inventory, run_.training, run_.types, run_.sharding);
  master_weights_bytes_ = states_.total();
  add_optimizer_states(states_, optimizer_, run_.sharding);
  add_gradients(gradients_, run_.inventory, run_.types, run_.sharding);
  const ElementType unreduced = run_.framework.reduces_in_fp32 ? ElementType::fp32 : working_type(run_);
  add_gradients_between_passes(kept_, run_.inventory, run_.types, run_.sharding, unreduced);
  add_optimizer_temporaries(temporaries_, optimizer_, run_.inventory, run_.types, run_.sharding);
  const ZeroSizes sizes = zero_sizes(run_.sharding, run_.model->hidden_size);
  add_backward_buffers(buffers_, run_.inventory, run_.types, run_.sharding, sizes);
  add_others(others_, run_);
  add_standing_buffers(others_, run_.inventory, run_.types, run_.sharding, sizes);
  weights_bytes_ = weights_.total();
  states_bytes_ = states_.total();
  gradients_bytes_ = gradients_.total();
  kept_bytes_ = kept_.total();
  temporaries_bytes_ = temporaries_.total();
  buffers_bytes_ = buffers_.total();
  others_bytes_ = others_.total();
}

bool Step::valid() const {
  return std::all_of(value_model_.begin(), value_model_.end(), [](const Step& s) { return s.valid(); }) &&
         !embedding_.graph().overflowed() && !head_.graph().overflowed() &&
         std::none_of(reference_.begin(), reference_.end(),
                      [](const WalkedGraph& w) { return w.graph().overflowed(); }) &&
         std::none_of(stacks_.begin(), stacks_.end(), [](const LayerStack& s) { return s.block.graph().overflowed(); });
}

const LayerStack& Step::stack_of(std::int32_t layer) const {
  for (const LayerStack& stack : stacks_) {
    if (layer < stack.first + stack.count) return stack;
  }
  return stacks_.back();
}

std::vector<Event> Step::events() const {
  const Stage& stage = run_.stage;
  std::vector<Event> events{{EventKind::load}};
  if (generates()) events.push_back({EventKind::generation});
  if (runs_reference() && !reference_runs_last()) events.push_back({EventKind::reference_forward});
  if (!value_model_.empty()) events.push_back({EventKind::value_forward});
  if (stage.first) events.push_back({EventKind::forward_embedding});
  const auto layers = static_cast<std::int32_t>(layers_);
  for (std::int32_t i = 0; i < layers; ++i) events.push_back({EventKind::forward_block, i});
  if (stage.last) events.push_back({EventKind::forward_head});
  if (runs_reference() && reference_runs_last()) events.push_back({EventKind::reference_forward});
  if (stage.last) events.push_back({EventKind::backward_head});
  for (std::int32_t i = layers; i-- > 0;) {
    if (!stack_of(i).trained) break;
    if (stack_of(i).checkpointed) events.push_back({EventKind::recompute_block, i});
    events.push_back({EventKind::backward_block, i});
  }
  if (runs_embedding_back()) events.push_back({EventKind::backward_embedding});
  if (!value_model_.empty()) events.push_back({EventKind::value_backward});
  for (const EventKind kind : {EventKind::gradient_reduction, EventKind::optimizer_step, EventKind::steady})
    events.push_back({kind});
  return events;
}

// Gradients that are complete before the event runs, in the order in which backward makes them: head, layers from the
// last, embedding. Those of FSDP's root unit stay whole until the embedding has its own; the others' shards take the
// type of the weights that they belong to, which FSDP2 makes on the stream that reduces.
template <class Sink>
void Step::describe_gradients_done(Event event, Sink& sink) const {
  if (event.kind == EventKind::backward_head) return;
  const Sharding& sharding = run_.sharding;
  const std::int64_t ranks = sharding.gradients;
  const bool trains_base = run_.inventory.trained_base.value > 0;
  const std::int64_t widened =
      trains_base ? bytes_per_element(run_.types.weights) / bytes_per_element(working_type(run_)) : 1;
  const Factor of_head{"G_head", head_.profile().parameter_gradients.value};
  if (!ends_are_units()) {
    sink.term(kGradients, 1, sharding.is_fsdp() ? 1 : ranks, 1, of_head);
  } else if (!sharding.host_gradients) {
    sink.side(kGradients, widened, ranks, 1, of_head);
  }
  if (sharding.host_gradients) return;
  for (const LayerStack& stack : stacks_) {
    const Dim end = stack.first + stack.count;
    const Dim done = event.kind == EventKind::backward_embedding
                         ? stack.count
                         : std::clamp<Dim>(end - 1 - event.layer, 0, stack.count);
    const Factor of_layer{"G_layer", stack.block.profile().parameter_gradients.value};
    if (uses_side_streams()) {
      sink.side(kGradients, widened, ranks, done, of_layer);
    } else {
      sink.term(kGradients, widened, ranks, done, of_layer);
    }
  }
}

// Gradients that nothing is added to any more.
template <class Sink>
void Step::describe_list_of_gradients(const Contributions& list, Bytes total, Sink& sink) const {
  if (uses_side_streams() && !run_.sharding.defers_reduction) {
    sink.side_list(list, total);
  } else {
    sink.list(list, total);
  }
}

// The gradient of a tied table, which autograd keeps from the head to the embedding, where it is not one of those that
// are done: it is to be used up, to be added to that of earlier passes, or to leave.
template <class Sink>
void Step::describe_waiting_gradient(Event event, Sink& sink) const {
  if (!trains_tied_table(run_) || !run_.stage.first || !run_.stage.last) return;
  if (!is_backward(event.kind) || event.kind == EventKind::backward_head) return;
  sink.term(kGradients, bytes_per_element(working_type(run_)), 1, 1, Factor{"V", run_.model->vocab_size},
            Factor{"h", run_.model->hidden_size});
}

template <class Sink>
void Step::describe_gradients(Event event, Sink& sink) const {
  const Sharding& s = run_.sharding;
  if (updates_in_backward(run_.training.optimizer)) {
    if (uses_up_gradients(run_.training, s)) describe_waiting_gradient(event, sink);
    return;
  }
  if (s.engine == Engine::megatron) return;  // in a buffer that stands (states/megatron.cpp)
  const bool zero_2_or_3 = s.engine == Engine::deepspeed && s.stage >= 2;
  const bool before_first_pass = event.kind == EventKind::reference_forward && !reference_runs_last();
  const bool beside = event.kind == EventKind::value_forward || event.kind == EventKind::value_backward;
  const bool from_last_pass = run_.accumulation_steps > 1 && !before_first_pass && (in_pass(event.kind) || beside);
  if (from_last_pass || zero_2_or_3) describe_waiting_gradient(event, sink);
  if (event.kind == EventKind::optimizer_step) {
    describe_list_of_gradients(gradients_, gradients_bytes_, sink);
  } else if (event.kind == EventKind::gradient_reduction) {
    const bool whole = s.engine == Engine::deepspeed;
    describe_list_of_gradients(whole ? kept_ : gradients_, whole ? kept_bytes_ : gradients_bytes_, sink);
  } else if (zero_2_or_3) {
    // Stage 3 has one place for all gradients of the rank; stage 2 makes a new one in each pass and adds it to the
    // last.
    if (s.stage == 3 || from_last_pass) sink.list(kept_, kept_bytes_);
    if (s.stage == 2 && is_backward(event.kind)) sink.list(gradients_, gradients_bytes_);
  } else if (from_last_pass) {
    describe_list_of_gradients(kept_, kept_bytes_, sink);
  } else if (event.kind == EventKind::value_backward) {
    sink.list(gradients_, gradients_bytes_);
  } else if (is_backward(event.kind)) {
    describe_gradients_done(event, sink);
  }
}

// What communication holds beside the gradients themselves.
template <class Sink>
void Step::describe_communication(Event event, Sink& sink) const {
  constexpr Component kBuffers = Component::communication_buffers;
  const Sharding& s = run_.sharding;
  const bool reduces = event.kind == EventKind::gradient_reduction;
  const bool goes_back = is_backward(event.kind) || event.kind == EventKind::value_backward;
  if (goes_back || (reduces && s.stage < 3)) sink.list(buffers_, buffers_bytes_);
  if (reduces && s.engine == Engine::deepspeed && s.stage == 1 && !s.host_gradients) {
    // The rank's part is copied out of the bucket, whose gradients have gone by then.
    const std::int64_t trained = run_.inventory.trained().value;
    const std::int64_t bucket = zero_sizes(s, run_.model->hidden_size).reduce_bucket;
    const std::int64_t part = divide_up(trained, s.optimizer) - std::min(bucket, trained);
    sink.term(kBuffers, bytes_per_element(run_.types.weights), 1, 1, Factor{"P_part", std::max<std::int64_t>(part, 0)});
  }
  if (s.engine == Engine::fsdp2 && s.gathers) describe_reduction(event, sink);
  if (reduces && run_.framework.reduction_bucket > 0 && s.ranks > 1) describe_bucket(sink);
}

namespace {

// Gradients are joined one after another until they are more than a bucket (Aleph-Alpha/scaling,
// core/optimizer/allreduce.py). The embedding's comes first, any other may be the last of a bucket.
std::int64_t largest_bucket(const Inventory& n, std::int64_t bucket) {
  std::int64_t first = 0, last = 0;
  for (const TrainedTensor& tensor : n.tensors) {
    std::int64_t& largest = tensor.kind == ParameterKind::embedding ? first : last;
    largest = std::max(largest, tensor.elements());
  }
  return std::min(n.trained().value, std::max(first, bucket + last));
}

}  // namespace

// The joined gradients, and the FP32 copy in which ranks add them up.
template <class Sink>
void Step::describe_bucket(Sink& sink) const {
  sink.term(Component::communication_buffers,
            bytes_per_element(run_.types.weights) + bytes_per_element(ElementType::fp32), 1, 1,
            Factor{"bucket", largest_bucket(run_.inventory, run_.framework.reduction_bucket)});
}

// FSDP2 drops the input of a reduction when the next one starts (_fully_shard/_fsdp_param_group.py, post_backward).
template <class Sink>
void Step::describe_reduction(Event event, Sink& sink) const {
  if (event.kind != EventKind::backward_block && event.kind != EventKind::recompute_block) return;
  const bool widens = run_.framework.reduces_in_fp32 && run_.inventory.trained_base.value > 0;
  const std::int64_t widened =
      widens ? bytes_per_element(ElementType::fp32) / bytes_per_element(working_type(run_)) : 1;
  const bool after_head = event.layer + 1 == layers_;
  if (after_head && !(ends_are_units() && run_.stage.last)) return;
  const WalkedGraph& above = after_head ? head_ : stack_of(event.layer + 1).block;
  sink.term(Component::communication_buffers, widened, 1, 1,
            Factor{after_head ? "G_head" : "G_layer", above.profile().parameter_gradients.value});
}

// Elements of a unit, or bytes where they are packed.
Factor Step::unit_of(Params elements) const {
  if (!is_quantized(run_.types.base)) return {"P_layer", elements.value};
  const BlockFormat format = storage_of(run_.types.base);
  return {"P_layer", divide_up(saturating_multiply(elements.value, format.bytes), format.elements)};
}

// Whole layers of a stack under FSDP: the one that runs, and in backward the layer before, which FSDP2 gathers in
// advance (_fully_shard/_fsdp_param_group.py, _backward_prefetch). FSDP1 does so where the framework asks for it.
Dim Step::gathered_layers(const LayerStack& stack, Event event) const {
  const Sharding& s = run_.sharding;
  const auto holds = [&](Dim layer) { return layer >= stack.first && layer < stack.first + stack.count ? Dim{1} : 0; };
  const bool second = s.engine == Engine::fsdp2;
  const bool head = event.kind == EventKind::forward_head || event.kind == EventKind::backward_head;
  if (!s.reshards && run_.layout.pp > 1) {  // other micro-batches have come by all of them
    const bool last = &stack == &stacks_.back() || (&stack + 1)->group != stack.group;
    return stack.count + (last ? run_.stage.held[stack.group] - run_.stage.walked[stack.group] : 0);
  }
  if (!s.reshards) {
    const Dim whole = head ? stack.count : is_block(event.kind) ? event.layer + 1 - stack.first : 0;
    return std::clamp<Dim>(whole, 0, stack.count);
  }
  if (event.kind == EventKind::forward_block) return holds(event.layer);
  const bool keeps_last = second && run_.framework.keeps_last_unit && !run_.layout.reshard.has_value();
  if (event.kind == EventKind::forward_head) return keeps_last ? holds(layers_ - 1) : 0;
  const bool ahead = second || run_.framework.gathers_ahead;
  if (event.kind == EventKind::backward_head) return ahead ? holds(layers_ - 1) : 0;
  if (event.kind == EventKind::reference_forward) return holds(layers_ - 1);
  if (!is_block(event.kind)) return 0;
  return holds(event.layer) + (ahead ? holds(event.layer - 1) : 0);
}

// Buffers out of which FSDP2 copies whole layers. In forward one lives until the next unit needs one
// (wait_for_unshard).
Dim Step::gather_buffers(const LayerStack& stack, Event event) const {
  if (run_.sharding.engine != Engine::fsdp2) return 0;
  const auto holds = [&](Dim layer) { return layer >= stack.first && layer < stack.first + stack.count ? Dim{1} : 0; };
  if (event.kind == EventKind::forward_block) return holds(event.layer);
  return event.kind == EventKind::forward_head && run_.sharding.reshards ? holds(layers_ - 1) : 0;
}

// What lies outside the layers: one unit, whole from forward to the end of backward, or the embedding and the head each
// for itself. A tied table is in one unit.
template <class Sink>
void Step::describe_ends(Event event, Sink& sink) const {
  const std::int64_t bytes = bytes_per_element(run_.types.compute);
  const auto gathered = [&](std::string_view name, Params elements) {
    sink.term(Component::gathered_parameters, bytes, 1, 1, Factor{name, elements.value});
  };
  if (!ends_are_units()) return gathered("P_root", run_.inventory.outside_layers);
  const bool at_embedding = event.kind == EventKind::forward_embedding || event.kind == EventKind::backward_embedding;
  const bool at_head = event.kind == EventKind::forward_head || event.kind == EventKind::backward_head;
  if (at_embedding || !run_.sharding.reshards) gathered("P_embedding", embedding_unit());
  if (at_head || (run_.layout.pp > 1 && run_.stage.last))
    gathered("P_head", run_.inventory.outside_layers - embedding_unit());
}

template <class Sink>
void Step::describe_sharded(Event event, Sink& sink) const {
  if (!run_.sharding.gathers || !(is_forward(event.kind) || is_backward(event.kind))) return;
  if (run_.sharding.engine == Engine::deepspeed) return describe_fetched(event, sink);
  const std::int64_t bytes = bytes_per_element(run_.types.compute);
  const bool second_root = event.kind == EventKind::reference_forward && reference_runs_last() &&
                           run_.training.reference == Reference::model;
  describe_ends(event, sink);
  if (second_root) describe_ends(event, sink);
  const std::int64_t each = is_quantized(run_.types.base) ? 1 : bytes;
  for (const LayerStack& stack : stacks_) {
    const Factor unit = unit_of(stack.parameters);
    sink.term(Component::gathered_parameters, each, 1, gathered_layers(stack, event), unit);
    sink.side(Component::gathered_parameters, each, 1, gather_buffers(stack, event), unit);
  }
}

// DeepSpeed's stage 3: the module that runs, the next ones, and those that are needed again soon.
template <class Sink>
void Step::describe_fetched(Event event, Sink& sink) const {
  constexpr Component kGathered = Component::gathered_parameters;
  const bool packed = is_quantized(run_.types.base);
  const std::int64_t bytes = bytes_per_element(run_.types.weights);
  const std::int64_t each = packed ? 1 : bytes;
  const Params fetch = run_.inventory.largest_fetch;
  const Params in_advance(zero_sizes(run_.sharding, run_.model->hidden_size).prefetch_bucket);
  sink.term(kGathered, each, 1, 1, unit_of(std::max(in_advance, fetch)));
  if (is_block(event.kind)) {
    const Params layer = stack_of(event.layer).parameters;
    const bool stays = event.kind != EventKind::forward_block || event.layer >= layers_ - reused_layers_;
    const Params most = std::max(fetch, Params(kReuseDistance.value / 2));
    sink.term(kGathered, each, 1, 1, unit_of(stays ? std::min(layer, most) : fetch));
  } else {
    sink.term(kGathered, bytes, 1, 1, Factor{"V", run_.model->vocab_size}, Factor{"h", run_.model->hidden_size});
  }
  const bool head = event.kind == EventKind::forward_head || event.kind == EventKind::backward_head;
  const Dim below = head ? layers_ : std::max<Dim>(event.layer, 0);
  for (const LayerStack& stack : stacks_) {
    const Dim first = std::max(stack.first, layers_ - reused_layers_);
    const Dim end = std::min(stack.first + stack.count, below);
    sink.term(kGathered, each, 1, std::max<Dim>(end - first, 0), unit_of(stack.parameters));
  }
}

// Whole gradients of earlier micro-batches are there when the last one ends a unit's backward: the gradients of the
// unit's weights, the flat one made of them, and what the pass itself still holds.
template <class Sink>
void Step::describe_unit_end(Sink& sink) const {
  if (!keeps_whole() || !run_.framework.trains_whole_units) return;
  describe_sharded({EventKind::backward_block, static_cast<std::int32_t>(layers_ - 1)}, sink);
  describe_kept_logits(sink);
  sink.term(Component::communication_buffers, bytes_per_element(run_.types.weights), 1, 2,
            Factor{"P_layer", run_.inventory.largest_layer.value});
}

template <class Sink>
void Step::describe_kept_logits(Sink& sink) const {
  if (run_.framework.loss != LossKind::kept_chunked) return;
  sink.term(Component::logits, bytes_per_element(ElementType::fp32), 1, 1, Factor{"b", run_.training.micro_batch},
            Factor{"s", run_.training.sequence_length}, Factor{"V", head_rows_of(*run_.model)});
}

template <class Sink>
void Step::describe_running(Event event, Sink& sink) const {
  const Component gradients = run_.sharding.gathers ? Component::communication_buffers : kGradients;
  switch (event.kind) {
    case EventKind::forward_embedding:
      return sink.moment(embedding_, embedding_.forward_with_grad, Phase::forward_with_grad, gradients);
    case EventKind::forward_head:
      return sink.moment(head_, head_.forward_with_grad, Phase::forward_with_grad, gradients);
    case EventKind::reference_forward: {
      const WalkedGraph& highest = highest_of_reference();
      return sink.moment(highest, highest.forward_without_grad, Phase::forward_without_grad, gradients);
    }
    case EventKind::backward_head: return sink.moment(head_, head_.backward, phase_of(head_.backward), gradients);
    case EventKind::backward_embedding:
      return sink.moment(embedding_, embedding_.backward, phase_of(embedding_.backward), gradients);
    default: break;
  }
  if (!is_block(event.kind)) return;
  const LayerStack& stack = stack_of(event.layer);
  const WalkedGraph& block = stack.block;
  if (event.kind == EventKind::backward_block) {
    sink.moment(block, block.backward, phase_of(block.backward), gradients);
  } else if (event.kind == EventKind::forward_block && (stack.checkpointed || !stack.trained)) {
    sink.moment(block, block.forward_without_grad, Phase::forward_without_grad, gradients);
  } else {
    sink.moment(block, block.forward_with_grad, Phase::forward_with_grad, gradients);
  }
}

// The input of a block that runs forward is there, and that of the last block stays
// (unsloth_zoo/gradient_checkpointing.py, LAST_GC_INDEX); the others come back through buffers.
Dim Step::not_offloaded(Event event, const LayerStack& stack) const {
  const bool holds_last = stack.first + stack.count == layers_;
  if (event.kind == EventKind::forward_head || event.kind == EventKind::backward_head) return holds_last ? 1 : 0;
  const bool own = is_block(event.kind) && event.layer >= stack.first && event.layer < stack.first + stack.count;
  return own && (event.kind == EventKind::forward_block || event.layer + 1 == layers_) ? 1 : 0;
}

// Inputs of checkpointed blocks that are still on the GPU when they are offloaded: the newest wait for their copy
// (max_fwd_stash_size of torchtune/training/_activation_offloading.py, which TRL took over).
constexpr Dim kOffloadStash = 5;

// Forward sends them to the host behind a stash of the newest, which the final norm empties; backward holds the one of
// the layer that runs and the one before it.
Dim Step::checkpoints_on_gpu(Event event) const {
  if (!run_.training.offload.activations) return layers_;
  if (!is_block(event.kind)) return 0;
  return event.kind == EventKind::forward_block ? kOffloadStash - 1 : 1;
}

// What earlier layers have left for backward, and what later ones have not given up.
template <class Sink>
void Step::describe_kept(Event event, Sink& sink) const {
  if (event.kind == EventKind::reference_forward && !reference_runs_last()) return;
  const bool after_head = event.kind == EventKind::reference_forward;
  if (after_head) sink.saved(head_, 1);
  const bool at_embedding = event.kind == EventKind::forward_embedding || event.kind == EventKind::backward_embedding;
  if (!at_embedding && run_.stage.first) sink.saved(embedding_, 1);
  const bool forward = is_forward(event.kind);
  const bool at_head = after_head || event.kind == EventKind::forward_head || event.kind == EventKind::backward_head;
  const auto stream_term = [&](Component component, std::int64_t times) {
    if (times == 0) return;
    sink.known(stream_, component, stream_bytes_, times, Factor{"b", batch().micro_batch}, Factor{"s", tokens()},
               stream_width_);
  };
  Dim on_gpu = checkpoints_on_gpu(event);
  for (auto stack = stacks_.rbegin(); stack != stacks_.rend(); ++stack) {
    const Dim below = at_head                ? stack->count
                      : is_block(event.kind) ? std::clamp<Dim>(event.layer - stack->first, 0, stack->count)
                                             : 0;
    if (!stack->trained) continue;
    if (!stack->checkpointed) {
      sink.saved(stack->block, below);
      continue;
    }
    sink.cached(stack->block, below);
    sink.pinned(stack->block, forward ? below : stack->count);
    const bool own = is_block(event.kind) && event.layer >= stack->first && event.layer < stack->first + stack->count;
    const bool kept = run_.framework.keeps_stream_in_backward && !forward;
    const Dim above = kept && !at_head ? stack->count - below - (own ? 1 : 0) : 0;
    const Dim waiting = std::min(below, on_gpu);
    on_gpu -= waiting;
    stream_term(Component::checkpoints,
                run_.framework.offloads_checkpoints ? not_offloaded(event, *stack) : waiting + (own ? 1 : 0) + above);
    // The hook of the layer above holds the gradient that enters the block that runs: it counts there.
    stream_term(Component::activation_gradients, above > 0 && own ? above - 1 : above);
    if (forward && !after_head) {
      sink.term(Component::autocast_weights, 1, 1, below,
                Factor{"W_cast", stack->block.profile().cached_weight_copies.value});
    }
  }
  if (!forward && !at_head) describe_kept_logits(sink);
  if (event.kind != EventKind::recompute_block) return;
  if (recomputes_before_backward(run_.framework)) {
    stream_term(Component::activation_gradients, 1);
  } else {
    sink.entering(stack_of(event.layer).block);
  }
}

// Activations of micro-batches that wait while the newest one runs.
template <class Sink>
void Step::describe_waiting(Sink& sink) const {
  sink.saved(embedding_, run_.stage.embeddings_waiting);
  for (const LayerStack& stack : stacks_) {
    if (!stack.checkpointed) {
      sink.saved(stack.block, stack.waiting);
    } else {
      sink.cached(stack.block, stack.waiting);
      sink.pinned(stack.block, stack.waiting);
      sink.known(stream_, Component::checkpoints, stream_bytes_, stack.waiting, Factor{"b", batch().micro_batch},
                 Factor{"s", tokens()}, stream_width_);
    }
  }
}

// A pipeline of two buffers keeps what its last stage makes of a micro-batch until the next but one has been made, and
// of the last two until the step has ended (Aleph-Alpha/scaling, core/nn/parallel_module/parallel_module.py,
// _execute_loss_fn, and pipeline_schedule/train.py, required_buffer_count).
std::int64_t Step::earlier_logits(EventKind kind) const {
  if (!run_.stage.last || !run_.framework.keeps_stage_outputs) return 0;
  if (kind == EventKind::gradient_reduction || kind == EventKind::optimizer_step) {
    return std::min<std::int64_t>(run_.accumulation_steps, 2);
  }
  const bool before_head = is_forward(kind) && kind != EventKind::forward_head;
  return in_pass(kind) ? std::min<std::int64_t>(run_.accumulation_steps - 1, before_head ? 2 : 1) : 0;
}

template <class Sink>
void Step::describe_earlier_logits(Event event, Sink& sink) const {
  sink.term(Component::logits, bytes_per_element(run_.types.compute), 1, earlier_logits(event.kind),
            Factor{"b", run_.training.micro_batch}, Factor{"s", tokens()},
            Factor{"V", saturating_multiply(head_rows_of(*run_.model), run_.layout.tp)});
}

// What such a pipeline holds of the streams between stages: one buffer for each side to receive into, and what a stage
// handed on, until its backward has run.
template <class Sink>
void Step::describe_handed_on(Event event, Sink& sink) const {
  if (!run_.framework.keeps_stage_outputs || run_.layout.pp == 1) return;
  const auto streams = [&](Component component, std::int64_t times) {
    sink.known(stream_, component, stream_bytes_, times, Factor{"b", batch().micro_batch}, Factor{"s", tokens()},
               stream_width_);
  };
  const bool last = run_.stage.last;
  streams(Component::communication_buffers, (run_.stage.first ? 0 : 1) + (last ? 0 : 1));
  if (!last && in_pass(event.kind))
    streams(Component::activations_residual, run_.stage.embeddings_waiting + (is_backward(event.kind) ? 1 : 0));
}

template <class Sink>
void Step::describe_standing(Sink& sink) const {
  sink.list(weights_, weights_bytes_);
  sink.list(states_, states_bytes_);
  sink.list(others_, others_bytes_);
}

// Between its forward and its backward, while another model runs.
template <class Sink>
void Step::describe_paused(bool in_forward, Sink& sink) const {
  constexpr Event kAfterForward{EventKind::reference_forward};
  describe_standing(sink);
  describe_gradients(kAfterForward, sink);
  describe_kept(kAfterForward, sink);
  if (!in_forward) describe_communication({EventKind::backward_head}, sink);
  // Autocast's copies of weights go when both models have run forward; without checkpoints a graph keeps them.
  for (const LayerStack& stack : stacks_) {
    if (!in_forward || !checkpoints() || !stack.trained) continue;
    sink.term(Component::autocast_weights, 1, 1, stack.count,
              Factor{"W_cast", stack.block.profile().cached_weight_copies.value});
  }
}

// PPO's value model runs forward before the policy and backward after it: autograd takes what was made last first.
template <class Sink>
void Step::describe_value_model(Event event, Sink& sink) const {
  const Step& value = value_model_.front();
  switch (event.kind) {
    case EventKind::value_forward: return value.describe(value_forward_, sink);
    case EventKind::value_backward: return value.describe(value_backward_, sink);
    case EventKind::load:
    case EventKind::gradient_reduction:
    case EventKind::optimizer_step: return value.describe(event, sink);
    case EventKind::generation:
    case EventKind::reference_forward:
    case EventKind::steady: return value.describe({EventKind::steady}, sink);
    default: return value.describe_paused(is_forward(event.kind), sink);
  }
}

// Inputs of layers that a checkpoint or a graph still holds.
Dim Step::inputs_counted(Event event) const {
  const bool head = event.kind == EventKind::forward_head || event.kind == EventKind::backward_head;
  Dim held = 0;
  for (const LayerStack& stack : stacks_) {
    if (!stack.trained) continue;
    held += head                   ? stack.count
            : is_block(event.kind) ? std::clamp<Dim>(event.layer + 1 - stack.first, 0, stack.count)
                                   : 0;
  }
  return held;
}

// What the policy answered, by the names that PPO gives it: to the end of the optimizer's step.
template <class Sink>
void Step::describe_outputs(Event event, Sink& sink) const {
  const bool head = event.kind == EventKind::forward_head || event.kind == EventKind::backward_head;
  const bool later = is_backward(event.kind) || event.kind == EventKind::value_backward ||
                     event.kind == EventKind::gradient_reduction || event.kind == EventKind::optimizer_step;
  if (!run_.framework.keeps_outputs || (!head && !later)) return;
  const Factor sequences{"b", run_.training.micro_batch}, length{"s", run_.training.sequence_length};
  const bool raised = raises_outputs(run_, stream_bytes_);
  const Dim elsewhere = raised ? 0 : inputs_counted(event) + (head ? 1 : 0);
  sink.term(Component::activations_residual, raised ? bytes_per_element(ElementType::fp32) : stream_bytes_, 1,
            layers_ + 1 - elsewhere, sequences, length, Factor{"h", run_.model->hidden_size});
  if (head) return;
  const ElementType logits = run_.framework.autocast ? ElementType::fp32 : run_.types.compute;
  sink.term(Component::logits, bytes_per_element(logits), 1, 1, sequences, length,
            Factor{"V", head_rows_of(*run_.model)});
}

template <class Sink>
void Step::describe(Event event, Sink& sink) const {
  describe_own(event, sink);
  if (value_model_.empty()) return;
  describe_value_model(event, sink);
  describe_outputs(event, sink);
}

template <class Sink>
void Step::describe_own(Event event, Sink& sink) const {
  if (event.kind == EventKind::load) return sink.list(weights_, weights_bytes_);
  describe_standing(sink);
  describe_gradients(event, sink);
  describe_communication(event, sink);
  describe_earlier_logits(event, sink);
  describe_handed_on(event, sink);
  if (event.kind == EventKind::optimizer_step) sink.list(temporaries_, temporaries_bytes_);
  if (event.kind == EventKind::generation && generates()) return describe_generation(sink);
  if (event.kind == EventKind::gradient_reduction) describe_unit_end(sink);
  if (event.kind == EventKind::reference_forward && !runs_reference()) return;
  if (event.kind == EventKind::reference_forward && plays_ppo()) describe_rollout(sink);
  if (!in_pass(event.kind)) return;
  describe_sharded(event, sink);
  if (has_window_mask_ && (is_forward(event.kind) || checkpoints())) {
    const Factor length{"s", run_.training.sequence_length};
    sink.term(Component::activations_attention, bytes_per_element(ElementType::bool8), 1, 1, length, length);
  }
  describe_kept(event, sink);
  if (run_.layout.pp > 1) describe_waiting(sink);
  describe_running(event, sink);
}

const WalkedGraph& Step::highest_of_reference() const {
  return *std::max_element(reference_.begin(), reference_.end(), [](const WalkedGraph& a, const WalkedGraph& b) {
    return a.forward_without_grad.bytes < b.forward_without_grad.bytes;
  });
}

namespace {

// Keys and values that one layer caches for one token of a sequence, and how many tokens of it.
struct Cached {
  Dim width = 0, tokens = 0;
};
Cached cached_by(const Attention& a, Dim length) {
  return {a.kv_heads * (a.head_dim + v_head_dim_of(a)), a.window > 0 ? std::min(a.window, length) : length};
}
// Transformers caches the expanded keys and values (modeling_deepseek_v3.py).
Cached cached_by(const LatentAttention& a, Dim length) {
  return {a.heads * (a.qk_nope_head_dim + a.qk_rope_head_dim + a.v_head_dim), length};
}
Cached cached_by(const CompressedAttention& a, Dim length) { return {2 * a.head_dim, length}; }
// The states of recurrent layers do not grow with the answer, and are small beside keys and values.
template <class Recurrent>
Cached cached_by(const Recurrent&, Dim) {
  return {};
}

}  // namespace

std::int64_t Step::all_sequences() const { return saturating_multiply(batch().micro_batch, run_.accumulation_steps); }

// PPO answers and judges so many at a time (experimental/ppo/ppo_config.py, local_rollout_forward_batch_size).
constexpr std::int64_t kPpoRollout = 64;

std::int64_t Step::rollout_sequences() const {
  return plays_ppo() ? std::min(all_sequences(), kPpoRollout) : all_sequences();
}

template <class Sink>
void Step::describe_cache(Sink& sink, std::int64_t written) const {
  // PPO's policy writes outside autocast.
  const std::int64_t bytes = bytes_per_element(plays_ppo() ? run_.types.weights : run_.types.compute);
  const Factor sequences{"b_all", written};
  for (const LayerGroup& group : run_.model->groups) {
    for (const Mixer& mixer : group.mixers) {
      const Cached cached =
          std::visit([&](const auto& m) { return cached_by(m, run_.training.sequence_length); }, mixer);
      sink.term(Component::kv_cache, bytes, 1, group.count, sequences, Factor{"s", cached.tokens},
                Factor{"w_kv", cached.width});
    }
  }
}

// PPO asks for the scores of all tokens that it writes, which are FP32 (experimental/ppo/ppo_trainer.py, generate).
template <class Sink>
void Step::describe_scores(Sink& sink, std::int64_t sequences) const {
  sink.term(Component::logits, bytes_per_element(ElementType::fp32), 1, 1, Factor{"b_all", sequences},
            Factor{"sk", run_.training.generation->completion_length}, Factor{"V", head_rows_of(*run_.model)});
}

// While the reference judges: the scores of all answers, and every hidden state of its own. The value model and the
// reward model do the same after it, without logits.
template <class Sink>
void Step::describe_rollout(Sink& sink) const {
  describe_scores(sink, all_sequences());
  sink.term(Component::working_memory, bytes_per_element(run_.types.leftovers), 1, layers_ + 1,
            Factor{"b_all", rollout_sequences()}, Factor{"s", run_.training.sequence_length},
            Factor{"h", run_.model->hidden_size});
}

// Scores come a token at a time and are stacked when a group of answers is written; the groups are copied into one.
template <class Sink>
void Step::describe_writing(Sink& sink) const {
  ByteSink writing, joining;
  describe_cache(writing, rollout_sequences());
  describe_scores(writing, saturating_add(all_sequences(), rollout_sequences()));
  describe_scores(joining, saturating_multiply(all_sequences(), 2));
  if (joining.bytes > writing.bytes) return describe_scores(sink, saturating_multiply(all_sequences(), 2));
  describe_cache(sink, rollout_sequences());
  describe_scores(sink, saturating_add(all_sequences(), rollout_sequences()));
}

// The answers to all micro-batches of a step are written at once (trl/trainer/grpo_config.py, steps_per_generation). An
// engine beside training has its weights and its cache in a share of the card of its own.
template <class Sink>
void Step::describe_generation(Sink& sink) const {
  if (run_.training.generation->engine_share > 0) return;
  if (plays_ppo()) return describe_writing(sink);
  describe_cache(sink, all_sequences());
  const std::int64_t bytes = bytes_per_element(run_.types.compute);
  // Whole weights while the model writes (ds3_gather_for_generation; summon_full_params under FSDP).
  if (run_.sharding.weights > 1) {
    sink.term(Component::gathered_parameters, bytes, 1, 1, Factor{"P", run_.inventory.total.value});
  }
}

Bytes Step::kept_per_layer(const LayerStack& stack) const {
  if (!stack.trained || run_.framework.offloads_checkpoints) return {};
  return stack.checkpointed ? stack.block.input + stack.block.cached : stack.block.saved;
}

Contributions Step::host_memory() const {
  Contributions out;
  add_host_memory(out, run_.inventory, run_.training, run_.framework, run_.types, run_.sharding,
                  run_.accumulation_steps > 1);
  for (const Step& value : value_model_) {
    for (const Contribution& c : value.host_memory()) out.add(c);
  }
  const bool all_but_last = run_.framework.offloads_checkpoints;
  if (!all_but_last && !run_.training.offload.activations) return out;
  Dim offloaded = all_but_last ? -1 : 0;
  for (const LayerStack& stack : stacks_) offloaded += stack.trained ? stack.count : 0;
  out.add({Component::checkpoints,
           stream_bytes_,
           {{"b", batch().micro_batch}, {"s", tokens()}, stream_width_},
           1,
           offloaded});
  return out;
}

Bytes Step::live(Event event) const {
  ByteSink sink;
  describe(event, sink);
  return sink.bytes;
}

std::vector<Contribution> Step::contributions(Event event) const {
  ContributionSink sink;
  describe(event, sink);
  return sink.out;
}

template <class Visit>
void Step::visit_candidates(Visit consider) const {
  for (const EventKind kind : {EventKind::gradient_reduction, EventKind::optimizer_step}) consider({kind});
  if (run_.stage.first) consider({EventKind::forward_embedding});
  if (run_.stage.last) {
    for (const EventKind kind : {EventKind::forward_head, EventKind::backward_head}) consider({kind});
  }
  if (runs_embedding_back()) consider({EventKind::backward_embedding});
  if (generates()) consider({EventKind::generation});
  if (runs_reference()) consider({EventKind::reference_forward});
  if (!value_model_.empty()) {
    consider({EventKind::value_forward});
    consider({EventKind::value_backward});
  }
  for (const LayerStack& stack : stacks_) {
    if (stack.count == 0) continue;
    const Dim last = stack.first + stack.count - 1;
    // Forward only adds from layer to layer; in backward the ends differ from what lies between.
    consider({EventKind::forward_block, static_cast<std::int32_t>(last)});
    if (!stack.trained) continue;
    const Bytes gradients = recomputes_before_backward(run_.framework) ? stream_ : stack.block.entering;
    const bool recomputes =
        stack.checkpointed && stack.block.forward_with_grad.bytes + gradients > stack.block.backward.bytes;
    for (const Dim layer : {stack.first, std::min(stack.first + 1, last), std::max(last - 1, stack.first), last}) {
      const auto i = static_cast<std::int32_t>(layer);
      if (recomputes) consider({EventKind::recompute_block, i});
      consider({EventKind::backward_block, i});
    }
  }
}

Bytes Step::left_in_cache() const {
  Bytes most;
  for (const LayerStack& stack : stacks_) most = std::max(most, stack.block.left_in_cache);
  return checkpoints() ? most : Bytes{};
}

Event Step::highest_of(bool forward) const {
  Event best{forward ? EventKind::forward_embedding : EventKind::backward_head};
  Bytes most = live(best);
  visit_candidates([&](Event event) {
    if (forward ? !is_forward(event.kind) : !is_backward(event.kind)) return;
    const Bytes bytes = live(event);
    if (bytes > most) best = event, most = bytes;
  });
  return best;
}

Step::Highest Step::highest() const {
  Highest best{{EventKind::steady}, live({EventKind::steady}), {}};
  Bytes at_head;
  visit_candidates([&](Event event) {
    const Bytes bytes = live(event);
    if (event.kind == EventKind::forward_head || event.kind == EventKind::backward_head) {
      at_head = std::max(at_head, bytes);
    }
    if (bytes > best.bytes) best = {event, bytes, {}};
  });
  best.held = std::max(best.bytes, at_head + left_in_cache());
  return best;
}

bool Step::uses_side_streams() const { return run_.sharding.engine == Engine::fsdp2 && run_.sharding.gathers; }

bool Step::ends_are_units() const {
  return uses_side_streams() && run_.framework.ends_are_units && !run_.model->tie_word_embeddings;
}

// What the embedding has of the parameters outside the layers.
Params Step::embedding_unit() const {
  if (!run_.stage.first) return Params(0);
  return std::min(run_.inventory.outside_layers,
                  Params(saturating_multiply(run_.model->vocab_size, run_.model->hidden_size)));
}

// The buffer of a unit lives until the next unit has been copied out of its own (wait_for_unshard): two at a time, of
// neighbours. The gradients of the whole rank lie on the other stream in the end (foreach_reduce).
Step::SidePools Step::side_pools() const {
  if (!uses_side_streams()) return {};
  std::int64_t layer = 0;
  for (const LayerStack& stack : stacks_) layer = std::max(layer, unit_of(stack.parameters).value);
  const std::int64_t bytes = bytes_per_element(run_.types.compute);
  const Params outside = run_.inventory.outside_layers;
  const Params end = ends_are_units() ? std::max(embedding_unit(), outside - embedding_unit()) : outside;
  const Bytes unit = Bytes(is_quantized(run_.types.base) ? 1 : bytes) * layer;
  const Bytes neighbour = std::max(Bytes(bytes) * end.value, layers_ > 1 ? unit : Bytes{});
  const bool on_side = !run_.sharding.defers_reduction && !updates_in_backward(run_.training.optimizer);
  return {unit + neighbour, on_side ? gradients_bytes_ : Bytes{}};
}

// In the place of logits that the caller has given up before backward, what backward makes in a wider type does not
// fit.
Bytes Step::logits_hole(Event event) const {
  if (!run_.framework.leaves_logits_hole || event.kind != EventKind::backward_head) return {};
  const Bytes token = Bytes(bytes_per_element(run_.types.compute)) * head_rows_of(*run_.model);
  return token * batch().micro_batch * tokens();
}

Bytes Step::highest_on_main_stream() const {
  Bytes most;
  const auto consider = [&](Event event) {
    MainStreamSink sink;
    describe(event, sink);
    most = std::max(most, sink.bytes + logits_hole(event));
  };
  consider({EventKind::steady});
  visit_candidates(consider);
  return most;
}

// By the first step of the optimizer.
Bytes Step::states_made() const {
  Bytes made = states_bytes_ - master_weights_bytes_;
  for (const Step& value : value_model_) made += value.states_made();
  return made;
}

// Updates in backward make states while backward goes on: its end is as high as in later steps.
Bytes Step::highest_of_first_step() const {
  const bool states_come_last = !updates_in_backward(run_.training.optimizer);
  Bytes most = live({EventKind::steady});
  visit_candidates([&](Event event) {
    const bool without = states_come_last && event.kind != EventKind::optimizer_step;
    most = std::max(most, without ? live(event) - states_made() : live(event));
  });
  return most;
}

}  // namespace vramplan
