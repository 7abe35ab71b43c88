#include "vramplan/step.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace vramplan {
namespace {

constexpr Component kGradients = Component::gradients;

bool has_adapters(const Run& run) { return run.adapter_targets != 0; }

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

BlockContext context_of(const Run& run, bool trained_layer) {
  BlockContext c;
  const ElementType working = working_type(run);
  c.model = run.model;
  c.framework = run.framework;
  c.sequence_length = run.training.sequence_length;
  c.tensor_ranks = run.layout.tp;
  c.sequence_ranks = run.layout.cp;
  c.sequence_parallel = run.layout.sp;
  c.expert_tensor_ranks = expert_tensor_ranks(run.layout);
  c.expert_imbalance = per_thousand(run.training.moe.imbalance);
  c.expert_capacity = per_thousand(run.training.moe.capacity_factor.value_or(0));
  c.exchanges_heads = exchanges_heads(*run.model, run.layout);
  c.recomputed = recomputed_modules(run.training);
  c.rank = run.training.lora.rank;
  c.compute = run.types.compute;
  c.weights = working;
  c.leftovers = gathers_in_compute_type(run) ? run.types.compute : run.types.leftovers;
  c.residual = c.leftovers;
  c.gradients = working;
  c.quantized = is_quantized(run.types.base);
  c.multiplies_int8 = run.types.base == WeightFormat::int8;
  const Method method = run.training.method;
  c.trains_base =
      trains_all_weights(method) || (method == Method::freeze && trained_layer) || run.framework.trains_whole_units;
  c.trains_embedding = trains_outside(run.training, Module::embedding);
  c.trains_head = trains_outside(run.training, Module::head);
  c.trains_norms = c.trains_base;
  c.accumulates = drops_gradients(run.sharding, run.accumulation_steps > 1);
  c.uses_up_gradients = uses_up_gradients(run.training, run.sharding);
  c.gradient_enters = trained_layer;
  c.attention = run.training.attention;
  c.adapter = {run.adapter_targets, run.training.lora.dropout.value_or(0) > 0, method == Method::dora,
               run.types.adapters};
  return c;
}

// The final norm trains with the whole model only.
BlockContext head_context(const Run& run) {
  BlockContext c = context_of(run, true);
  c.trains_norms = trains_all_weights(run.training.method);
  return c;
}

// The base model, of which nothing is trained.
BlockContext reference_context(const Run& run) {
  BlockContext c = context_of(run, false);
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

// The first layer through which gradients flow: with frozen lower layers autograd stops there.
Dim first_trained_layer(const Run& run, Dim layers) {
  if (run.training.method != Method::freeze) return 0;
  return std::max<Dim>(layers - run.training.trainable_layers.value_or(0), 0);
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
  return run.model->tie_word_embeddings && trains_all_weights(run.training.method) &&
         run.training.objective != Objective::reward;
}

// The gradient of a tied table waits for that of the embedding; one that is added up over chunks, for the last of them.
GradientPolicy head_policy(const Run& run) {
  if (trains_tied_table(run) || run.framework.loss == LossKind::in_type_chunked) return {};
  return gradient_policy(run, life_of_gradients(run), false);
}

// The last gradient of backward. Of a tied table it is added to the head's, which then is one gradient too many.
GradientPolicy embedding_policy(const Run& run) {
  GradientPolicy policy = gradient_policy(run, GradientLife::own_update, false);
  if (!trains_tied_table(run)) return policy;
  policy.temporaries = std::max(policy.temporaries - policy.gradient, Bytes{});
  return policy;
}

WalkedGraph walked(Graph graph, const GradientPolicy& policy = {}) {
  BlockProfile profiled = profile(graph, policy);
  return {std::move(graph), std::move(profiled)};
}

Dim walked_layers(const Stage& stage) { return std::accumulate(stage.walked.begin(), stage.walked.end(), Dim{0}); }

std::vector<LayerStack> stacks_of(const Run& run, Dim layers) {
  std::vector<LayerStack> stacks;
  const Dim first_trained = first_trained_layer(run, layers);
  const bool checkpointed = run.training.recompute == Recompute::full;
  Dim first = 0;
  for (std::size_t i = 0; i < run.model->groups.size(); ++i) {
    const LayerGroup& group = run.model->groups[i];
    const Dim walked_layers = run.stage.walked[i];
    // Where others wait beside those that are walked, the group has a stack even when none is walked.
    const bool piped = run.layout.pp > 1 && run.stage.held[i] > 0;
    const auto push = [&](Dim at, Dim count, bool trained, bool gradient_enters) {
      if (count == 0 && !(piped && gradient_enters)) return;
      BlockContext context = context_of(run, trained);
      context.gradient_enters = gradient_enters;
      stacks.push_back({at, count, trained,
                        walked(block_graph(context, group, checkpointed && trained), block_policy(run)),
                        run.inventory.layers[i], i, 0});
    };
    const Dim frozen = std::clamp<Dim>(first_trained - first, 0, walked_layers);
    push(first, frozen, false, false);
    // The first layer that trains: nothing below it needs a gradient, unless a checkpoint asks for one at its input
    // (enable_input_require_grads) or the embedding is trained.
    // What another stage hands over asks for a gradient.
    const bool starts = first + frozen == first_trained && !trains_outside(run.training, Module::embedding) &&
                        !(checkpointed && has_adapters(run)) && run.stage.first && run.layout.vpp == 1;
    const Dim edge = starts ? std::min<Dim>(1, walked_layers - frozen) : 0;
    push(first + frozen, edge, true, false);
    push(first + frozen + edge, walked_layers - frozen - edge, true, true);
    first += walked_layers;
  }
  return stacks;
}

std::vector<WalkedGraph> reference_of(const Run& run) {
  std::vector<WalkedGraph> graphs;
  if (!runs_reference(run.training)) return graphs;
  const BlockContext context = reference_context(run);
  for (const LayerGroup& group : run.model->groups) graphs.push_back(walked(block_graph(context, group, false)));
  graphs.push_back(walked(head_graph(context)));
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
// ceil(product of factors / ranks), `saved` and `moment` for what a graph keeps.

// Adds bytes only.
struct ByteSink {
  Bytes bytes;
  void list(const Contributions&, Bytes total) { bytes += total; }
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
  void entering(const WalkedGraph& block) { bytes += block.entering; }
  void moment(const WalkedGraph&, const Peak& peak, Phase, Component) { bytes += peak.bytes; }
};

// Keeps what the bytes are.
struct ContributionSink {
  std::vector<Contribution> out;
  void list(const Contributions& list, Bytes) { out.insert(out.end(), list.begin(), list.end()); }
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
    const LiveSet set = live_at(block.graph, phase, block.profile.enters_at);
    for (const LiveItem& live : set.items()) item(block.symbols, live, times);
  }
  void saved(const WalkedGraph& block, std::int64_t layers) { items(block, Phase::saved, layers); }
  void pinned(const WalkedGraph& block, std::int64_t layers) { items(block, Phase::pinned, layers); }
  void entering(const WalkedGraph& block) { items(block, Phase::entering, 1); }
  void moment(const WalkedGraph& block, const Peak& peak, Phase phase, Component gradients) {
    const LiveSet set = live_at(block.graph, phase, peak.op);
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
                               .gathers_for_head = run.stage.last && run.layout.sp,
                               .fp8 = run.framework.fp8,
                               .cublas_workspace = run.cublas_workspace});
  }
  // Unsloth dequantizes into one buffer that grows to the largest matrix (unsloth/kernels/utils.py), and brings
  // offloaded checkpoints back through two (one, when less than 512 MiB is free).
  if (run.framework.fuses_adapters && is_quantized(run.types.base)) {
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

std::int64_t accumulation_steps(const TrainingChoice& t, const FrameworkSwitches& framework, const LayoutChoice& layout,
                                BatchSize batch) {
  if (!t.global_batch) {
    // A pipeline of which nobody says how often it is fed is full.
    const std::int64_t full = layout.pp > 1 ? layout.pp * (layout.vpp > 1 ? 2 : 1) : 1;
    return std::max(framework.sequences_per_device / batch.micro_batch, full);
  }
  const std::int64_t per_pass = saturating_multiply(batch.micro_batch, layout.dp);
  return std::max<std::int64_t>(*t.global_batch / per_pass, 1);
}

void set_size(Run& run, const LayoutChoice& layout, BatchSize batch) {
  run.layout = layout;
  run.sharding = sharding_of(run.training, layout);
  run.accumulation_steps = accumulation_steps(run.training, run.framework, layout, batch);
  run.training.micro_batch = batch.micro_batch;
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
  w.symbols = sized(w.graph.widths(), framework, batch);
  const ProductTable products = products_of(w.symbols);
  w.input = w.profile.input.at(products);
  w.saved = w.profile.saved.at(products);
  w.pinned = w.profile.pinned.at(products);
  w.entering = w.profile.entering.at(products);
  w.forward_without_grad = w.profile.forward_without_grad.at(products);
  w.forward_with_grad = w.profile.forward_with_grad.at(products);
  w.backward = w.profile.backward.at(products);
}

}  // namespace

Form form_of(const ModelArchitecture& model, const TrainingChoice& training, const LayoutChoice& layout,
             BatchSize batch, std::int64_t stage) {
  const Sharding sharding = sharding_of(training, layout);
  const bool accumulates = accumulation_steps(training, switches_for(training, sharding), layout, batch) > 1;
  Form form{sharding.engine, sharding.gathers, drops_gradients(sharding, accumulates),
            uses_up_gradients(training, sharding)};
  form.tp = layout.tp, form.pp = layout.pp, form.vpp = layout.vpp, form.cp = layout.cp;
  form.ep = layout.ep, form.etp = expert_tensor_ranks(layout), form.sp = layout.sp, form.stage = stage;
  for (const LayerGroup& group : model.groups) {
    for (const Mixer& mixer : group.mixers) {
      const auto* attention = std::get_if<Attention>(&mixer);
      if (attention != nullptr && attention->window > 0 && batch.sequence_length >= attention->window) {
        ++form.filled_windows;
      }
    }
  }
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
  const std::vector<ParameterGroup> groups = groups_for(*run.model, training.objective);
  run.inventory = take_inventory(*run.model, training, groups);
  if (run.framework.trains_whole_units)
    run.inventory.with_gradients = run.inventory.total - run.inventory.outside_layers;
  run.adapter_targets = adapter_targets(training, groups);
  run.cublas_workspace = cublas_workspace;
  return run;
}

Step::Step(const Run& run)
    : run_(run),
      embedding_(walked(embedding_graph(embedding_context(run)), embedding_policy(run))),
      head_(walked(head_graph(head_context(run)), head_policy(run))),
      stacks_(stacks_of(run, walked_layers(run.stage))),
      reference_(reference_of(run)),
      layers_(walked_layers(run.stage)),
      optimizer_(optimizer_memory(run.inventory, run.training, run.framework, run.types, deals_experts(run.layout))) {
  reused_layers_ = layers_within_reuse(run_, stacks_);
  const BlockContext context = context_of(run_, true);
  has_window_mask_ = any_window_mask(context);
  stream_bytes_ = bytes_per_element(context.residual);
  const SymbolTable widths = widths_for(context, nullptr);
  const Symbol symbol = context.sequence_parallel ? Symbol::hp : Symbol::h;
  stream_width_ = {name_of(symbol), widths[symbol]};
  size_graphs();
  fill_lists();
}

void Step::resize(const LayoutChoice& layout, BatchSize batch, Bytes cublas_workspace) {
  set_size(run_, layout, batch);
  run_.cublas_workspace = cublas_workspace;
  size_graphs();
  fill_lists();
}

void Step::size_graphs() {
  size_graph(embedding_, run_.framework, batch());
  size_graph(head_, run_.framework, batch());
  for (LayerStack& stack : stacks_) {
    size_graph(stack.block, run_.framework, batch());
    const bool last_of_group = &stack == &stacks_.back() || (&stack + 1)->group != stack.group;
    stack.waiting = last_of_group ? run_.stage.waiting[stack.group] : 0;
  }
  for (WalkedGraph& graph : reference_) size_graph(graph, run_.framework, batch());
  stream_ = Bytes(stream_bytes_) * batch().micro_batch * tokens() * stream_width_.value;
}

// Of a sequence, on this rank.
Dim Step::tokens() const { return divide_up(run_.training.sequence_length, run_.layout.cp); }

// Sequences that run together, and their length.
BatchSize Step::batch() const {
  const TrainingChoice& t = run_.training;
  return {saturating_multiply(t.micro_batch, sequences_per_sample(t.objective)), t.sequence_length};
}

void Step::fill_lists() {
  for (Contributions* list : {&weights_, &states_, &gradients_, &kept_, &temporaries_, &buffers_, &others_}) {
    list->clear();
  }
  add_weights(weights_, run_.inventory, run_.training, run_.types, run_.sharding);
  if (run_.training.reference == Reference::model) {
    add_reference_weights(weights_, run_.inventory, run_.types, run_.sharding);
  }
  add_master_weights(states_, run_.inventory, run_.training, run_.types, run_.sharding);
  master_weights_bytes_ = states_.total();
  add_optimizer_states(states_, optimizer_, run_.sharding);
  add_gradients(gradients_, run_.inventory, run_.types, run_.sharding);
  add_gradients_between_passes(kept_, run_.inventory, run_.types, run_.sharding, working_type(run_));
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
  return !embedding_.graph.overflowed() && !head_.graph.overflowed() &&
         std::none_of(reference_.begin(), reference_.end(),
                      [](const WalkedGraph& w) { return w.graph.overflowed(); }) &&
         std::none_of(stacks_.begin(), stacks_.end(), [](const LayerStack& s) { return s.block.graph.overflowed(); });
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
  if (stage.first) events.push_back({EventKind::forward_embedding});
  const auto layers = static_cast<std::int32_t>(layers_);
  for (std::int32_t i = 0; i < layers; ++i) events.push_back({EventKind::forward_block, i});
  if (stage.last) events.push_back({EventKind::forward_head});
  if (runs_reference() && reference_runs_last()) events.push_back({EventKind::reference_forward});
  if (stage.last) events.push_back({EventKind::backward_head});
  for (std::int32_t i = layers; i-- > 0;) {
    if (!stack_of(i).trained) break;
    if (checkpoints()) events.push_back({EventKind::recompute_block, i});
    events.push_back({EventKind::backward_block, i});
  }
  if (runs_embedding_back()) events.push_back({EventKind::backward_embedding});
  for (const EventKind kind : {EventKind::gradient_reduction, EventKind::optimizer_step, EventKind::steady})
    events.push_back({kind});
  return events;
}

// Gradients that are complete before the event runs, in the order in which backward makes them: head, layers from the
// last, embedding. Those of FSDP's root unit stay whole until the embedding has its own; the others' shards take the
// type of the weights that they belong to.
template <class Sink>
void Step::describe_gradients_done(Event event, Sink& sink) const {
  if (event.kind == EventKind::backward_head) return;
  const Sharding& sharding = run_.sharding;
  const std::int64_t ranks = sharding.gradients;
  sink.term(kGradients, 1, sharding.is_fsdp() ? 1 : ranks, 1,
            Factor{"G_head", head_.profile.parameter_gradients.value});
  if (sharding.host_gradients) return;
  const bool trains_base = run_.inventory.trained_base.value > 0;
  const std::int64_t widened =
      trains_base ? bytes_per_element(run_.types.weights) / bytes_per_element(working_type(run_)) : 1;
  for (const LayerStack& stack : stacks_) {
    const Dim end = stack.first + stack.count;
    const Dim done = event.kind == EventKind::backward_embedding
                         ? stack.count
                         : std::clamp<Dim>(end - 1 - event.layer, 0, stack.count);
    sink.term(kGradients, widened, ranks, done, Factor{"G_layer", stack.block.profile.parameter_gradients.value});
  }
}

// Of updates in backward, the one gradient that outlives its graph: a tied table's, from the head to the embedding.
template <class Sink>
void Step::describe_waiting_gradient(Event event, Sink& sink) const {
  if (!trains_tied_table(run_) || !uses_up_gradients(run_.training, run_.sharding)) return;
  if (!is_backward(event.kind) || event.kind == EventKind::backward_head) return;
  sink.term(kGradients, bytes_per_element(run_.types.weights), 1, 1, Factor{"V", run_.model->vocab_size},
            Factor{"h", run_.model->hidden_size});
}

template <class Sink>
void Step::describe_gradients(Event event, Sink& sink) const {
  if (updates_in_backward(run_.training.optimizer)) return describe_waiting_gradient(event, sink);
  const Sharding& s = run_.sharding;
  if (s.engine == Engine::megatron) return;  // in a buffer that stands (states/megatron.cpp)
  const bool zero_2_or_3 = s.engine == Engine::deepspeed && s.stage >= 2;
  const bool before_first_pass = event.kind == EventKind::reference_forward && !reference_runs_last();
  const bool from_last_pass = run_.accumulation_steps > 1 && !before_first_pass && in_pass(event.kind);
  if (event.kind == EventKind::optimizer_step) {
    sink.list(gradients_, gradients_bytes_);
  } else if (event.kind == EventKind::gradient_reduction) {
    const bool whole = s.engine == Engine::deepspeed;
    sink.list(whole ? kept_ : gradients_, whole ? kept_bytes_ : gradients_bytes_);
  } else if (zero_2_or_3) {
    // Stage 3 has one place for all gradients of the rank; stage 2 makes a new one in each pass and adds it to the
    // last.
    if (s.stage == 3 || from_last_pass) sink.list(kept_, kept_bytes_);
    if (s.stage == 2 && is_backward(event.kind)) sink.list(gradients_, gradients_bytes_);
  } else if (from_last_pass) {
    sink.list(kept_, kept_bytes_);
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
  if (is_backward(event.kind) || (reduces && s.stage < 3)) sink.list(buffers_, buffers_bytes_);
  if (reduces && s.engine == Engine::deepspeed && s.stage == 1 && !s.host_gradients) {
    // The rank's part is copied out of the bucket, whose gradients have gone by then.
    const std::int64_t trained = run_.inventory.trained().value;
    const std::int64_t bucket = zero_sizes(s, run_.model->hidden_size).reduce_bucket;
    const std::int64_t part = divide_up(trained, s.optimizer) - std::min(bucket, trained);
    sink.term(kBuffers, bytes_per_element(run_.types.weights), 1, 1, Factor{"P_part", std::max<std::int64_t>(part, 0)});
  }
  // FSDP2 drops the input of a reduction when the next one starts (_fully_shard/_fsdp_param_group.py, post_backward).
  const bool runs_back = event.kind == EventKind::backward_block || event.kind == EventKind::recompute_block;
  if (s.engine == Engine::fsdp2 && s.gathers && runs_back && event.layer + 1 < layers_) {
    sink.term(kBuffers, 1, 1, 1, Factor{"G_layer", stack_of(event.layer + 1).block.profile.parameter_gradients.value});
  }
}

// Elements of a unit, or bytes where they are packed.
Factor Step::unit_of(Params elements) const {
  if (!is_quantized(run_.types.base)) return {"P_layer", elements.value};
  const BlockFormat format = storage_of(run_.types.base);
  return {"P_layer", divide_up(saturating_multiply(elements.value, format.bytes), format.elements)};
}

// Whole layers of a stack under FSDP: the one that runs. FSDP2 copies it out of a buffer, which in forward lives until
// the next layer needs one, and in backward it gathers the layer before in advance
// (_fully_shard/_fsdp_param_group.py, wait_for_unshard and _backward_prefetch). FSDP1 does so where the framework asks
// for it.
Dim Step::gathered_layers(const LayerStack& stack, Event event) const {
  const Sharding& s = run_.sharding;
  const auto holds = [&](Dim layer) { return layer >= stack.first && layer < stack.first + stack.count ? Dim{1} : 0; };
  const bool second = s.engine == Engine::fsdp2;
  const bool head = event.kind == EventKind::forward_head || event.kind == EventKind::backward_head;
  if (!s.reshards) {
    const Dim whole = head ? stack.count : is_block(event.kind) ? event.layer + 1 - stack.first : 0;
    const Dim buffer = second && event.kind == EventKind::forward_block ? holds(event.layer) : 0;
    return std::clamp<Dim>(whole, 0, stack.count) + buffer;
  }
  if (event.kind == EventKind::forward_block) return holds(event.layer) * (second ? 2 : 1);
  if (event.kind == EventKind::forward_head) return second ? holds(layers_ - 1) : 0;
  const bool ahead = second || run_.framework.gathers_ahead;
  if (event.kind == EventKind::backward_head) return ahead ? holds(layers_ - 1) : 0;
  if (event.kind == EventKind::reference_forward) return holds(layers_ - 1);
  if (!is_block(event.kind)) return 0;
  return holds(event.layer) + (ahead ? holds(event.layer - 1) : 0);
}

// The root unit (embedding, head, final norm) stays gathered from forward to the end of backward.
template <class Sink>
void Step::describe_sharded(Event event, Sink& sink) const {
  if (!run_.sharding.gathers || !(is_forward(event.kind) || is_backward(event.kind))) return;
  if (run_.sharding.engine == Engine::deepspeed) return describe_fetched(event, sink);
  const std::int64_t bytes = bytes_per_element(run_.types.compute);
  const bool second_root = event.kind == EventKind::reference_forward && reference_runs_last() &&
                           run_.training.reference == Reference::model;
  sink.term(Component::gathered_parameters, bytes, 1, second_root ? 2 : 1,
            Factor{"P_root", run_.inventory.outside_layers.value});
  for (const LayerStack& stack : stacks_) {
    sink.term(Component::gathered_parameters, is_quantized(run_.types.base) ? 1 : bytes, 1,
              gathered_layers(stack, event), unit_of(stack.parameters));
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
  } else if (event.kind == EventKind::forward_block && (checkpoints() || !stack.trained)) {
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
    if (!checkpoints()) {
      sink.saved(stack->block, below);
      continue;
    }
    sink.pinned(stack->block, forward ? below : stack->count);
    const bool own = is_block(event.kind) && event.layer >= stack->first && event.layer < stack->first + stack->count;
    const bool kept = run_.framework.keeps_stream_in_backward && !forward;
    const Dim above = kept && !at_head ? stack->count - below - (own ? 1 : 0) : 0;
    const Dim waiting = std::min(below, on_gpu);
    on_gpu -= waiting;
    stream_term(Component::checkpoints,
                run_.framework.offloads_checkpoints ? not_offloaded(event, *stack) : waiting + (own ? 1 : 0) + above);
    stream_term(Component::activation_gradients, above);
    if (forward && !after_head) {
      sink.term(Component::autocast_weights, 1, 1, below,
                Factor{"W_cast", stack->block.profile.cached_weight_copies.value});
    }
  }
  if (!forward && !at_head) describe_kept_logits(sink);
  if (event.kind != EventKind::recompute_block) return;
  if (recomputes_before_backward()) {
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
    if (!checkpoints()) {
      sink.saved(stack.block, stack.waiting);
    } else {
      sink.pinned(stack.block, stack.waiting);
      sink.known(stream_, Component::checkpoints, stream_bytes_, stack.waiting, Factor{"b", batch().micro_batch},
                 Factor{"s", tokens()}, stream_width_);
    }
  }
}

template <class Sink>
void Step::describe(Event event, Sink& sink) const {
  sink.list(weights_, weights_bytes_);
  if (event.kind == EventKind::load) return;
  sink.list(states_, states_bytes_);
  sink.list(others_, others_bytes_);
  describe_gradients(event, sink);
  describe_communication(event, sink);
  if (event.kind == EventKind::optimizer_step) sink.list(temporaries_, temporaries_bytes_);
  if (event.kind == EventKind::generation && generates()) return describe_generation(sink);
  if (event.kind == EventKind::gradient_reduction) describe_unit_end(sink);
  if (event.kind == EventKind::reference_forward && !runs_reference()) return;
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
  const Dim v_head = a.v_head_dim > 0 ? a.v_head_dim : a.head_dim;
  return {a.kv_heads * (a.head_dim + v_head), a.window > 0 ? std::min(a.window, length) : length};
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

// The answers to all micro-batches of a step are written at once (trl/trainer/grpo_config.py, steps_per_generation). An
// engine beside training has its weights and its cache in a share of the card of its own.
template <class Sink>
void Step::describe_generation(Sink& sink) const {
  if (run_.training.generation->engine_share > 0) return;
  const std::int64_t bytes = bytes_per_element(run_.types.compute);
  const Factor sequences{"b_all", saturating_multiply(batch().micro_batch, run_.accumulation_steps)};
  for (const LayerGroup& group : run_.model->groups) {
    for (const Mixer& mixer : group.mixers) {
      const Cached cached =
          std::visit([&](const auto& m) { return cached_by(m, run_.training.sequence_length); }, mixer);
      sink.term(Component::kv_cache, bytes, 1, group.count, sequences, Factor{"s", cached.tokens},
                Factor{"w_kv", cached.width});
    }
  }
  // Whole weights while the model writes (ds3_gather_for_generation; summon_full_params under FSDP).
  if (run_.sharding.weights > 1) {
    sink.term(Component::gathered_parameters, bytes, 1, 1, Factor{"P", run_.inventory.total.value});
  }
}

Bytes Step::kept_per_layer(const LayerStack& stack) const {
  if (!stack.trained || run_.framework.offloads_checkpoints) return {};
  return checkpoints() ? stack.block.input : stack.block.saved;
}

Contributions Step::host_memory() const {
  Contributions out;
  add_host_memory(out, run_.inventory, run_.training, run_.framework, run_.types, run_.sharding,
                  run_.accumulation_steps > 1);
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
  for (const LayerStack& stack : stacks_) {
    if (stack.count == 0) continue;
    const Dim last = stack.first + stack.count - 1;
    // Forward only adds from layer to layer; in backward the ends differ from what lies between.
    consider({EventKind::forward_block, static_cast<std::int32_t>(last)});
    if (!stack.trained) continue;
    const Bytes gradients = recomputes_before_backward() ? stream_ : stack.block.entering;
    const bool recomputes =
        checkpoints() && stack.block.forward_with_grad.bytes + gradients > stack.block.backward.bytes;
    for (const Dim layer : {stack.first, std::min(stack.first + 1, last), std::max(last - 1, stack.first), last}) {
      const auto i = static_cast<std::int32_t>(layer);
      if (recomputes) consider({EventKind::recompute_block, i});
      consider({EventKind::backward_block, i});
    }
  }
}

Step::Highest Step::highest() const {
  Highest best{{EventKind::steady}, live({EventKind::steady})};
  visit_candidates([&](Event event) {
    const Bytes bytes = live(event);
    if (bytes > best.bytes) best = {event, bytes};
  });
  return best;
}

// Updates in backward make states while backward goes on: its end is as high as in later steps.
Bytes Step::highest_of_first_step() const {
  const bool states_come_last = !updates_in_backward(run_.training.optimizer);
  Bytes most = live({EventKind::steady});
  visit_candidates([&](Event event) {
    const bool without = states_come_last && event.kind != EventKind::optimizer_step;
    most = std::max(most, without ? live(event) - (states_bytes_ - master_weights_bytes_) : live(event));
  });
  return most;
}

}  // namespace vramplan
