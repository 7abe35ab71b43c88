#include "vramplan/step.hpp"

#include <algorithm>
#include <utility>

namespace vramplan {
namespace {

constexpr Component kGradients = Component::gradients;

bool has_adapters(const Run& run) { return run.adapter_targets != 0; }

// Whole gradients of a sharded model are divided when the unit's backward has ended; only then can they be used.
bool drops_gradients(const Run& run) {
  return updates_in_backward(run.training.optimizer) && run.sharding.gradients == 1;
}

BlockContext context_of(const Run& run, bool trained_layer) {
  BlockContext c;
  const bool sharded = run.sharding.weights > 1;
  const ElementType working = run.framework.autocast && sharded ? run.types.compute : run.types.weights;
  c.model = run.model;
  c.framework = run.framework;
  c.sequence_length = run.training.sequence_length;
  c.rank = run.training.lora.rank;
  c.compute = run.types.compute;
  c.weights = working;
  c.leftovers = run.framework.autocast && sharded ? run.types.compute : run.types.leftovers;
  c.residual = c.leftovers;
  c.gradients = working;
  c.quantized = is_quantized(run.types.base);
  const Method method = run.training.method;
  c.trains_base = trains_all_weights(method) || (method == Method::freeze && trained_layer);
  c.trains_leftovers = trains_all_weights(method);
  c.trains_norms = c.trains_base;
  // Sharded gradients of a pass are made whole and reduced before they are added.
  c.accumulates = run.accumulation_steps > 1 && run.sharding.gradients == 1;
  c.drops_gradients = drops_gradients(run);
  c.gradient_enters = trained_layer;
  c.attention = run.training.attention;
  c.adapter = {run.adapter_targets, run.training.lora.dropout.value_or(0) > 0, method == Method::dora,
               run.types.adapters};
  return c;
}

// The first layer through which gradients flow: with frozen lower layers autograd stops there.
Dim first_trained_layer(const Run& run, Dim layers) {
  if (run.training.method != Method::freeze) return 0;
  return std::max<Dim>(layers - run.training.trainable_layers.value_or(0), 0);
}

GradientPolicy gradient_policy(const Run& run, GradientLife life, bool in_block) {
  if (!drops_gradients(run)) return {};
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

// The gradient of a tied table waits for that of the embedding.
GradientPolicy head_policy(const Run& run) {
  if (run.model->tie_word_embeddings) return {};
  return gradient_policy(run, life_of_gradients(run), false);
}

// The last gradient of backward. Of a tied table it is added to the head's, which then is one gradient too many.
GradientPolicy embedding_policy(const Run& run) {
  GradientPolicy policy = gradient_policy(run, GradientLife::own_update, false);
  if (!run.model->tie_word_embeddings) return policy;
  policy.temporaries = std::max(policy.temporaries - policy.gradient, Bytes{});
  return policy;
}

WalkedGraph walked(Graph graph, const GradientPolicy& policy = {}) {
  BlockProfile profiled = profile(graph, policy);
  return {std::move(graph), std::move(profiled)};
}

std::vector<LayerStack> stacks_of(const Run& run, Dim layers) {
  std::vector<LayerStack> stacks;
  const Dim first_trained = first_trained_layer(run, layers);
  const bool checkpointed = run.training.recompute == Recompute::full;
  Dim first = 0;
  for (const LayerGroup& group : run.model->groups) {
    const auto push = [&](Dim at, Dim count, bool trained, bool gradient_enters) {
      if (count == 0) return;
      BlockContext context = context_of(run, trained);
      context.gradient_enters = gradient_enters;
      stacks.push_back(
          {at, count, trained, walked(block_graph(context, group, checkpointed && trained), block_policy(run))});
    };
    const Dim frozen = std::clamp<Dim>(first_trained - first, 0, group.count);
    push(first, frozen, false, false);
    // The first layer that trains: nothing below it needs a gradient, unless a checkpoint asks for one at its input
    // (enable_input_require_grads) or the embedding is trained.
    const bool starts = first + frozen == first_trained && !trains_all_weights(run.training.method) &&
                        !(checkpointed && has_adapters(run));
    const Dim edge = starts ? std::min<Dim>(1, group.count - frozen) : 0;
    push(first + frozen, edge, true, false);
    push(first + frozen + edge, group.count - frozen - edge, true, true);
    first += group.count;
  }
  return stacks;
}

// One mask serves all layers that have the window.
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
  void saved(const WalkedGraph& block, std::int64_t layers) { bytes += block.saved * layers; }
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
  void saved(const WalkedGraph& block, std::int64_t layers) {
    const LiveSet set = live_at(block.graph, Phase::saved, 0);
    for (const LiveItem& live : set.items()) item(block.symbols, live, layers);
  }
  void moment(const WalkedGraph& block, const Peak& peak, Phase phase, Component gradients) {
    const LiveSet set = live_at(block.graph, phase, peak.op);
    for (const LiveItem& live : set.items()) item(block.symbols, live, 1);
    term(gradients, 1, 1, 1, Factor{"G_running", peak.parameter_gradients.value});
    term(Component::optimizer_temporaries, 1, 1, 1, Factor{"U_running", peak.update.value});
  }
};

bool is_forward(EventKind k) {
  return k == EventKind::forward_embedding || k == EventKind::forward_block || k == EventKind::forward_head;
}
bool is_backward(EventKind k) {
  return k == EventKind::backward_head || k == EventKind::recompute_block || k == EventKind::backward_block ||
         k == EventKind::backward_embedding;
}
Phase phase_of(const Peak& backward) { return backward.update.value > 0 ? Phase::after_backward : Phase::backward; }
bool is_block(EventKind k) {
  return k == EventKind::forward_block || k == EventKind::recompute_block || k == EventKind::backward_block;
}

void add_others(Contributions& out, const Run& run) {
  const TrainingChoice& t = run.training;
  // Token ids, labels and positions of the batch.
  out.add({Component::buffers,
           3 * bytes_per_element(ElementType::int64),
           {{"b", t.micro_batch}, {"s", t.sequence_length}}});
  out.add({Component::cublas_workspace, 1, {{"bytes", run.cublas_workspace.value}}});
  // DistributedDataParallel keeps the gradients a second time, in its buckets
  // (torch/csrc/distributed/c10d/reducer.cpp).
  if (run.layout.dp > 1 && run.layout.zero == 0) {
    out.add({Component::communication_buffers,
             bytes_per_element(run.types.weights),
             {{"P_trained", run.inventory.trained_base.value}}});
    out.add({Component::communication_buffers,
             bytes_per_element(run.types.adapters),
             {{"P_adapter", run.inventory.adapters.value}}});
  }
}

std::int64_t accumulation_steps(const TrainingChoice& t, const LayoutChoice& layout, BatchSize batch) {
  if (!t.global_batch) return 1;
  const std::int64_t per_pass = saturating_multiply(batch.micro_batch, layout.dp);
  return std::max<std::int64_t>(*t.global_batch / per_pass, 1);
}

void set_size(Run& run, const LayoutChoice& layout, BatchSize batch) {
  run.layout = layout;
  run.sharding = sharding_of(layout);
  run.accumulation_steps = accumulation_steps(run.training, layout, batch);
  run.training.micro_batch = batch.micro_batch;
  run.training.sequence_length = batch.sequence_length;
}

void size_graph(WalkedGraph& w, const FrameworkSwitches& framework, BatchSize batch) {
  w.symbols = sized(w.graph.widths(), framework, batch);
  const ProductTable products = products_of(w.symbols);
  w.input = w.profile.input.at(products);
  w.saved = w.profile.saved.at(products);
  w.forward_without_grad = w.profile.forward_without_grad.at(products);
  w.forward_with_grad = w.profile.forward_with_grad.at(products);
  w.backward = w.profile.backward.at(products);
}

}  // namespace

Form form_of(const ModelArchitecture& model, const TrainingChoice& training, const LayoutChoice& layout,
             BatchSize batch) {
  const Sharding sharding = sharding_of(layout);
  Form form{sharding.weights > 1, sharding.gradients == 1, accumulation_steps(training, layout, batch) > 1, 0};
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
            Bytes cublas_workspace) {
  Run run;
  run.model = &model;
  run.training = training;
  set_size(run, layout, {training.micro_batch, training.sequence_length});
  run.framework = switches_for(training, run.sharding.weights > 1);
  run.types = state_types(training, run.framework);
  const std::vector<ParameterGroup> groups = parameter_groups(model);
  run.inventory = take_inventory(model, training, groups);
  run.adapter_targets = adapter_targets(training, groups);
  run.cublas_workspace = cublas_workspace;
  return run;
}

Step::Step(const Run& run)
    : run_(run),
      embedding_(walked(embedding_graph(context_of(run, true)), embedding_policy(run))),
      head_(walked(head_graph(context_of(run, true)), head_policy(run))),
      stacks_(stacks_of(run, layers_of(*run.model))),
      layers_(layers_of(*run.model)) {
  const BlockContext context = context_of(run_, true);
  has_window_mask_ = any_window_mask(context);
  stream_bytes_ = bytes_per_element(context.residual);
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
  const BatchSize batch{run_.training.micro_batch, run_.training.sequence_length};
  size_graph(embedding_, run_.framework, batch);
  size_graph(head_, run_.framework, batch);
  for (LayerStack& stack : stacks_) size_graph(stack.block, run_.framework, batch);
}

void Step::fill_lists() {
  for (Contributions* list : {&weights_, &states_, &gradients_, &temporaries_, &others_}) list->clear();
  add_weights(weights_, run_.inventory, run_.training, run_.types, run_.sharding);
  add_master_weights(weights_, run_.inventory, run_.training, run_.types, run_.sharding);
  add_optimizer_states(states_, run_.inventory, run_.training, run_.framework, run_.types, run_.sharding);
  add_gradients(gradients_, run_.inventory, run_.types, run_.sharding);
  add_optimizer_temporaries(temporaries_, run_.inventory, run_.training, run_.framework, run_.types, run_.sharding);
  add_others(others_, run_);
  weights_bytes_ = weights_.total();
  states_bytes_ = states_.total();
  gradients_bytes_ = gradients_.total();
  temporaries_bytes_ = temporaries_.total();
  others_bytes_ = others_.total();
}

bool Step::valid() const {
  return !embedding_.graph.overflowed() && !head_.graph.overflowed() &&
         std::none_of(stacks_.begin(), stacks_.end(), [](const LayerStack& s) { return s.block.graph.overflowed(); });
}

const LayerStack& Step::stack_of(std::int32_t layer) const {
  for (const LayerStack& stack : stacks_) {
    if (layer < stack.first + stack.count) return stack;
  }
  return stacks_.back();
}

std::vector<Event> Step::events() const {
  std::vector<Event> events{{EventKind::load}, {EventKind::forward_embedding}};
  const auto layers = static_cast<std::int32_t>(layers_);
  for (std::int32_t i = 0; i < layers; ++i) events.push_back({EventKind::forward_block, i});
  events.push_back({EventKind::forward_head});
  events.push_back({EventKind::backward_head});
  for (std::int32_t i = layers; i-- > 0;) {
    if (!stack_of(i).trained) break;
    if (checkpoints()) events.push_back({EventKind::recompute_block, i});
    events.push_back({EventKind::backward_block, i});
  }
  if (trains_all_weights(run_.training.method)) events.push_back({EventKind::backward_embedding});
  for (const EventKind kind : {EventKind::gradient_reduction, EventKind::optimizer_step, EventKind::steady})
    events.push_back({kind});
  return events;
}

// Gradients that are complete before the event runs, in the order in which backward makes them: head, layers from the
// last, embedding.
template <class Sink>
void Step::describe_gradients_done(Event event, Sink& sink) const {
  if (event.kind == EventKind::backward_head) return;
  const std::int64_t ranks = run_.sharding.gradients;
  sink.term(kGradients, 1, ranks, 1, Factor{"G_head", head_.profile.parameter_gradients.value});
  for (const LayerStack& stack : stacks_) {
    const Dim end = stack.first + stack.count;
    const Dim done = event.kind == EventKind::backward_embedding
                         ? stack.count
                         : std::clamp<Dim>(end - 1 - event.layer, 0, stack.count);
    sink.term(kGradients, 1, ranks, done, Factor{"G_layer", stack.block.profile.parameter_gradients.value});
  }
}

// Of updates in backward, the one gradient that outlives its graph: a tied table's, from the head to the embedding.
template <class Sink>
void Step::describe_waiting_gradient(Event event, Sink& sink) const {
  const bool waits = run_.model->tie_word_embeddings && trains_all_weights(run_.training.method);
  if (!waits || !drops_gradients(run_)) return;
  if (!is_backward(event.kind) || event.kind == EventKind::backward_head) return;
  sink.term(kGradients, bytes_per_element(run_.types.weights), 1, 1, Factor{"V", run_.model->vocab_size},
            Factor{"h", run_.model->hidden_size});
}

template <class Sink>
void Step::describe_gradients(Event event, Sink& sink) const {
  if (updates_in_backward(run_.training.optimizer)) return describe_waiting_gradient(event, sink);
  const bool complete = event.kind == EventKind::gradient_reduction || event.kind == EventKind::optimizer_step;
  const bool from_last_pass = run_.accumulation_steps > 1 && (is_forward(event.kind) || is_backward(event.kind));
  if (complete || from_last_pass) {
    sink.list(gradients_, gradients_bytes_);
  } else if (is_backward(event.kind)) {
    describe_gradients_done(event, sink);
  }
}

// Fully sharded weights: the unit that runs is gathered whole; the root unit (embedding, head, final norm) stays
// gathered from forward to the end of backward (torch/distributed/fsdp/_runtime_utils.py).
template <class Sink>
void Step::describe_sharded(Event event, Sink& sink) const {
  if (run_.sharding.weights <= 1 || !(is_forward(event.kind) || is_backward(event.kind))) return;
  const std::int64_t bytes = bytes_per_element(run_.types.compute);
  sink.term(Component::gathered_parameters, bytes, 1, 1, Factor{"P_root", run_.inventory.outside_layers.value});
  const Params layer = run_.inventory.largest_layer;
  if (is_quantized(run_.types.base)) {
    const BlockFormat format = storage_of(run_.types.base);
    const std::int64_t packed = divide_up(saturating_multiply(layer.value, format.bytes), format.elements);
    sink.term(Component::gathered_parameters, 1, 1, 1, Factor{"P_layer", packed});
  } else {
    sink.term(Component::gathered_parameters, bytes, 1, 1, Factor{"P_layer", layer.value});
  }
}

template <class Sink>
void Step::describe_running(Event event, Sink& sink) const {
  const Component gradients = run_.sharding.gradients > 1 ? Component::communication_buffers : kGradients;
  switch (event.kind) {
    case EventKind::forward_embedding:
      return sink.moment(embedding_, embedding_.forward_with_grad, Phase::forward_with_grad, gradients);
    case EventKind::forward_head:
      return sink.moment(head_, head_.forward_with_grad, Phase::forward_with_grad, gradients);
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

template <class Sink>
void Step::describe(Event event, Sink& sink) const {
  sink.list(weights_, weights_bytes_);
  if (event.kind == EventKind::load) return;
  sink.list(states_, states_bytes_);
  sink.list(others_, others_bytes_);
  describe_gradients(event, sink);
  if (event.kind == EventKind::optimizer_step) sink.list(temporaries_, temporaries_bytes_);
  if (!is_forward(event.kind) && !is_backward(event.kind)) return;
  describe_sharded(event, sink);
  if (has_window_mask_) {
    const Factor length{"s", run_.training.sequence_length};
    sink.term(Component::activations_attention, bytes_per_element(run_.types.compute), 1, 1,
              Factor{"b", run_.training.micro_batch}, length, length);
  }

  const bool forward = is_forward(event.kind);
  const bool at_head = event.kind == EventKind::forward_head || event.kind == EventKind::backward_head;
  const auto stream_term = [&](Component component, std::int64_t times) {
    if (times == 0) return;
    sink.term(component, stream_bytes_, 1, times, Factor{"b", run_.training.micro_batch},
              Factor{"s", run_.training.sequence_length}, Factor{"h", run_.model->hidden_size});
  };
  for (const LayerStack& stack : stacks_) {
    const Dim below = at_head                ? stack.count
                      : is_block(event.kind) ? std::clamp<Dim>(event.layer - stack.first, 0, stack.count)
                                             : 0;
    if (!stack.trained) continue;
    if (!checkpoints()) {
      sink.saved(stack.block, below);
      continue;
    }
    const bool own = is_block(event.kind) && event.layer >= stack.first && event.layer < stack.first + stack.count;
    const bool kept = run_.framework.keeps_stream_in_backward && !forward;
    const Dim above = kept && !at_head ? stack.count - below - (own ? 1 : 0) : 0;
    stream_term(Component::checkpoints, below + (own ? 1 : 0) + above);
    stream_term(Component::activation_gradients, above);
    if (forward) {
      sink.term(Component::autocast_weights, 1, 1, below,
                Factor{"W_cast", stack.block.profile.cached_weight_copies.value});
    }
  }
  if (event.kind == EventKind::recompute_block) stream_term(Component::activation_gradients, 1);
  describe_running(event, sink);
}

Bytes Step::kept_per_layer(const LayerStack& stack) const {
  if (!stack.trained) return {};
  return checkpoints() ? stack.block.input : stack.block.saved;
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
  for (const EventKind kind : {EventKind::forward_embedding, EventKind::forward_head, EventKind::backward_head,
                               EventKind::gradient_reduction, EventKind::optimizer_step}) {
    consider({kind});
  }
  if (trains_all_weights(run_.training.method)) consider({EventKind::backward_embedding});
  for (const LayerStack& stack : stacks_) {
    for (const Dim layer : {stack.first, stack.first + stack.count - 1}) {
      const auto i = static_cast<std::int32_t>(layer);
      consider({EventKind::forward_block, i});
      if (!stack.trained) continue;
      if (checkpoints()) consider({EventKind::recompute_block, i});
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
    most = std::max(most, without ? live(event) - states_bytes_ : live(event));
  });
  return most;
}

}  // namespace vramplan
