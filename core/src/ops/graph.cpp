// Tensor lifetimes in one block, after PyTorch's eager mode: reference counts in forward; in backward the engine of
// torch/csrc/autograd/engine.cpp (a node's saved variables are released when it has run) and the in-place accumulation
// of torch/csrc/autograd/input_buffer.cpp.
#include <algorithm>
#include <limits>
#include <utility>

#include "vramplan/ops.hpp"

namespace vramplan {
namespace {

constexpr std::int16_t kEndOfBlock = std::numeric_limits<std::int16_t>::max();

// Kept from forward to backward.
bool is_kept(const Tensor& t) { return t.first_save >= 0 && t.made_again < 0; }

// Forward: bytes alive while each operation runs.
class ForwardWalk {
 public:
  ForwardWalk(const Graph& graph, bool with_grad) : graph_(graph), with_grad_(with_grad) {
    alive_.fill(false);
    if (graph.input != kNoTensor) make(graph.input);
    // With gradients a block that caches runs for the second time.
    for (std::size_t t = 0; t < graph.tensors().size() && with_grad; ++t) {
      if (graph.tensors()[t].cached) make(static_cast<TensorId>(t));
    }
  }

  // Runs operation i and answers the bytes alive while it runs; `settle` then drops what nobody needs any more.
  Polynomial run(std::size_t i) {
    const Op& op = graph_.ops()[i];
    for (std::size_t k = 0; k < op.output_count; ++k) make(op.outputs[k]);
    return live_ + op.forward_bytes;
  }
  void settle(std::size_t i) {
    const Op& op = graph_.ops()[i];
    for (std::size_t k = 0; k < op.input_count; ++k) drop_after(op.inputs[k], i);
    for (std::size_t k = 0; k < op.output_count; ++k) drop_after(op.outputs[k], i);
  }
  [[nodiscard]] bool alive(std::size_t t) const { return alive_[t]; }

 private:
  void make(TensorId id) {
    const auto t = static_cast<std::size_t>(id);
    if (alive_[t]) return;
    alive_[t] = true;
    if (!graph_.tensors()[t].external) live_ += graph_.tensors()[t].bytes;
  }
  void drop_after(TensorId id, std::size_t i) {
    const TensorId base = graph_.at(id).base;
    if (base != kNoTensor) drop_after(base, i);
    const auto t = static_cast<std::size_t>(id);
    const Tensor& tensor = graph_.tensors()[t];
    if (!alive_[t] || tensor.last_use > static_cast<std::int16_t>(i)) return;
    if (tensor.pinned || (with_grad_ ? is_kept(tensor) : tensor.cached)) return;
    alive_[t] = false;
    if (!tensor.external) live_ -= tensor.bytes;
  }

  const Graph& graph_;
  bool with_grad_;
  Polynomial live_;
  std::array<bool, Graph::kMaxTensors> alive_;
};

// Backward: saved tensors, gradients of activations and parameter gradients alive while each operation runs.
class BackwardWalk {
 public:
  explicit BackwardWalk(const Graph& graph) : graph_(graph) {
    gradient_of_.fill(kNone);
    for (std::size_t t = 0; t < graph.tensors().size(); ++t) {
      const Tensor& tensor = graph.tensors()[t];
      saved_[t] = is_kept(tensor) && !tensor.external;
      makes_again_ = makes_again_ || tensor.made_again >= 0;
      if (saved_[t]) live_ += tensor.bytes;
    }
    if (graph.output != kNoTensor && graph.at(graph.output).requires_grad) {
      const std::int16_t entering = make(graph.output);
      assign(graph.output, entering);
      if (graph.holds_output_gradient()) ++references_[at(entering)];
    }
  }

  Polynomial run(std::size_t i) {
    const Op& op = graph_.ops()[i];
    active_ = receives_gradient(op);
    if (!active_) return live_;
    if (makes_again_) make_again(i);
    if (op.saves_gradients) release_saved(op);
    live_.coefficient[static_cast<std::size_t>(Product::one)] += op.parameter_gradients.value;
    parameter_gradients_ += op.parameter_gradients;
    all_parameter_gradients_ += op.parameter_gradients;
    for (std::size_t k = 0; k < op.output_count && op.gradient_in_pieces; ++k) release(op.outputs[k]);
    const std::int16_t passed = op.passes_gradient ? gradient_of_[at(op.outputs[0])] : kNone;
    for (std::size_t k = 0; k < op.input_count; ++k) {
      const TensorId id = op.inputs[k];
      if (!graph_.at(id).requires_grad) continue;
      assign(id, passed != kNone ? passed : make(id));
      if (op.gradient_in_place && saved_[at(id)]) {
        saved_[at(id)] = false;
        live_ -= graph_.at(id).bytes;
      }
    }
    return live_ + op.backward_bytes;
  }
  void settle(std::size_t i) {
    const Op& op = graph_.ops()[i];
    live_ -= merged_;  // second gradients have been added in place
    merged_ = Polynomial{};
    dying_count_ = 0;
    for (std::size_t k = 0; k < op.output_count && active_; ++k) release(op.outputs[k]);
    for (std::size_t k = 0; k < op.saved_count; ++k) {
      const auto t = at(op.saved[k]);
      if (!saved_[t] || graph_.tensors()[t].first_save != static_cast<std::int16_t>(i)) continue;
      saved_[t] = false;
      live_ -= graph_.tensors()[t].bytes;
    }
  }
  // Whether operation i asks for what was saved. A product asks at least for its weight.
  [[nodiscard]] bool asks(std::size_t i) const {
    const Op& op = graph_.ops()[i];
    return receives_gradient(op) && (op.saved_count > 0 || op.flops != Polynomial{});
  }
  // The gradient that the optimizer uses up when operation i has run.
  Bytes due(std::size_t i, GradientLife life) {
    const Bytes made = active_ ? graph_.ops()[i].parameter_gradients : Bytes{};
    if (life == GradientLife::step || made.value == 0) return {};
    return life == GradientLife::own_update ? made : std::exchange(waiting_, made);
  }
  void use_up(Bytes gradient) {
    live_.coefficient[static_cast<std::size_t>(Product::one)] -= gradient.value;
    parameter_gradients_ -= gradient;
  }
  [[nodiscard]] Polynomial live() const { return live_; }
  [[nodiscard]] bool saved(std::size_t t) const { return saved_[t]; }
  [[nodiscard]] Bytes parameter_gradients() const { return parameter_gradients_; }
  [[nodiscard]] Bytes all_parameter_gradients() const { return all_parameter_gradients_; }

  // Calls visit(tensor index whose shape the gradient has) for each live gradient storage.
  template <class Visit>
  void gradients(Visit visit) const {
    for (std::size_t g = 0; g < storage_count_; ++g) {
      if (references_[g] > 0) visit(at(shape_[g]));
    }
    for (std::size_t d = 0; d < dying_count_; ++d) visit(at(dying_[d]));
  }

 private:
  static constexpr std::int16_t kNone = -1;
  static std::size_t at(TensorId t) { return static_cast<std::size_t>(t); }

  [[nodiscard]] bool receives_gradient(const Op& op) const {
    for (std::size_t k = 0; k < op.output_count; ++k) {
      if (gradient_of_[at(op.outputs[k])] != kNone) return true;
    }
    return false;
  }
  void make_again(std::size_t i) {
    for (std::size_t t = 0; t < graph_.tensors().size(); ++t) {
      const Tensor& tensor = graph_.tensors()[t];
      if (tensor.made_again != static_cast<std::int16_t>(i) || tensor.external) continue;
      saved_[t] = true;
      live_ += tensor.bytes;
    }
  }
  void release_saved(const Op& op) {
    for (std::size_t k = 0; k < op.saved_count; ++k) {
      const auto t = at(op.saved[k]);
      if (saved_[t]) live_ -= graph_.tensors()[t].bytes;
      saved_[t] = false;
    }
  }
  std::int16_t make(TensorId id) {
    const auto g = storage_count_++;
    shape_[g] = id;
    references_[g] = 0;
    live_ += graph_.at(id).bytes;
    return static_cast<std::int16_t>(g);
  }
  // Tensor `id` receives the gradient in storage g; one that is there already is added to in place, and the storage
  // that is left over goes when the operation has run.
  void assign(TensorId id, std::int16_t g) {
    std::int16_t& mine = gradient_of_[at(id)];
    if (mine == kNone) {
      mine = g;
      ++references_[at(g)];
    } else if (references_[at(mine)] == 1) {
      if (references_[at(g)] == 0) die(g);
    } else {
      --references_[at(mine)];
      mine = g;
      ++references_[at(g)];
    }
  }
  void die(std::int16_t g) {
    merged_ += graph_.at(shape_[at(g)]).bytes;
    if (dying_count_ < dying_.size()) dying_[dying_count_++] = shape_[at(g)];
  }
  void release(TensorId id) {
    std::int16_t& mine = gradient_of_[at(id)];
    if (mine == kNone) return;
    if (--references_[at(mine)] == 0) live_ -= graph_.at(shape_[at(mine)]).bytes;
    mine = kNone;
  }

  const Graph& graph_;
  Polynomial live_, merged_;
  Bytes parameter_gradients_, all_parameter_gradients_, waiting_;
  bool active_ = false;
  bool makes_again_ = false;
  std::array<bool, Graph::kMaxTensors> saved_{};
  std::array<std::int16_t, Graph::kMaxTensors> gradient_of_;
  std::array<TensorId, Graph::kMaxTensors * 2> shape_;
  std::array<std::int16_t, Graph::kMaxTensors * 2> references_;
  std::size_t storage_count_ = 0;
  std::array<TensorId, Op::kMaxInputs> dying_;  // second gradients, added and dropped when the operation has run
  std::size_t dying_count_ = 0;
};

Frontier forward_frontier(const Graph& graph, bool with_grad) {
  ForwardWalk walk(graph, with_grad);
  Frontier frontier;
  for (std::size_t i = 0; i < graph.ops().size(); ++i) {
    frontier.consider({walk.run(i), static_cast<std::int32_t>(i), {}, {}});
    walk.settle(i);
  }
  return frontier;
}

// Scores of attention are as large as logits: the allocator's segments serve both.
Polynomial without_scores(Polynomial p) {
  for (const Product product : {Product::bss, Product::bsw, Product::ss}) {
    p.coefficient[static_cast<std::size_t>(product)] = 0;
  }
  return p;
}

Frontier frontier_without_scores(const Graph& graph) {
  ForwardWalk walk(graph, false);
  Frontier frontier;
  for (std::size_t i = 0; i < graph.ops().size(); ++i) {
    frontier.consider({without_scores(walk.run(i)), static_cast<std::int32_t>(i), {}, {}});
    walk.settle(i);
  }
  return frontier;
}

// Below this no sum of a polynomial's terms can leave 64 bits.
constexpr double kPlainLimit = 4.0e18;

// The products that occur in a set of polynomials.
using Occurring = std::span<const std::uint8_t>;

bool stays_plain(const Polynomial& p, const ProductTable& products, Occurring occurring) {
  double sum = 0;
  for (const std::uint8_t i : occurring) {
    sum += static_cast<double>(p.coefficient[i]) * static_cast<double>(products.value[i]);
  }
  return sum < kPlainLimit;
}

Bytes plain_value(const Polynomial& p, const ProductTable& products, Occurring occurring) {
  std::int64_t sum = 0;
  for (const std::uint8_t i : occurring) sum += p.coefficient[i] * products.value[i];
  return Bytes(sum);
}

}  // namespace

void Frontier::consider(const Moment& moment) {
  for (const Moment& m : moments_) {
    if (moment.bytes.at_most(m.bytes)) return;
  }
  std::erase_if(moments_, [&](const Moment& m) { return m.bytes.at_most(moment.bytes); });
  moments_.push_back(moment);
  occurring_count_ = 0;
  for (std::size_t i = 0; i < kProductCount; ++i) {
    ceiling_.coefficient[i] = std::max(ceiling_.coefficient[i], moment.bytes.coefficient[i]);
    if (ceiling_.coefficient[i] != 0) occurring_[occurring_count_++] = static_cast<std::uint8_t>(i);
  }
}

Peak Frontier::at(const ProductTable& products) const {
  const Occurring occurring{occurring_.data(), occurring_count_};
  const bool plain = stays_plain(ceiling_, products, occurring);
  Bytes most;
  const Moment* highest = nullptr;
  for (const Moment& m : moments_) {
    const Bytes bytes = plain ? plain_value(m.bytes, products, occurring) : Terms(m.bytes).at(products);
    if (bytes <= most) continue;
    most = bytes;
    highest = &m;
  }
  return highest == nullptr ? Peak{} : Peak{most, highest->op, highest->parameter_gradients, highest->update};
}

// A block of the usual kind has 50 to 100 tensors and as many operations.
Graph::Graph(const SymbolTable& widths) : widths_(widths) {
  tensors_.reserve(128);
  ops_.reserve(128);
}

Polynomial Graph::polynomial(const Size& size) {
  const std::optional<Polynomial> p = polynomial_of(size, widths_);
  if (!p) overflowed_ = true;
  return p.value_or(Polynomial{});
}

Polynomial Graph::total(const Workspace& workspace) {
  if (workspace.count > Workspace::kMaxSizes) {
    overflowed_ = true;
    return {};
  }
  Polynomial sum;
  for (const Size& size : workspace.items()) sum += polynomial(size);
  return sum;
}

TensorId Graph::tensor(Size size, Component component, bool requires_grad) {
  if (tensors_.size() == kMaxTensors) {
    overflowed_ = true;
    return static_cast<TensorId>(kMaxTensors - 1);
  }
  tensors_.push_back({size, polynomial(size), component, requires_grad, false, false, false, kNoTensor, -1, -1, -1});
  return static_cast<TensorId>(tensors_.size() - 1);
}

TensorId Graph::external(Size size, Component component, bool requires_grad) {
  const TensorId t = tensor(size, component, requires_grad);
  tensors_[index(t)].external = true;
  return t;
}

TensorId Graph::apply(std::initializer_list<TensorId> inputs, Size made_size, Component component,
                      const OpTraits& traits) {
  const bool requires_grad =
      std::any_of(inputs.begin(), inputs.end(), [this](TensorId t) { return at(t).requires_grad; }) ||
      traits.parameter_gradients.value > 0;
  const TensorId made = tensor(made_size, component, requires_grad);
  run(inputs, {made}, traits);
  return made;
}

void Graph::run(std::span<const TensorId> inputs, std::initializer_list<TensorId> outputs, const OpTraits& traits) {
  if (ops_.size() == kMaxOps || inputs.size() > Op::kMaxInputs || outputs.size() > Op::kMaxOutputs ||
      traits.saves.size() > Op::kMaxSaved) {
    overflowed_ = true;
    return;
  }
  const auto i = static_cast<std::int16_t>(ops_.size());
  Op& op = ops_.emplace_back();
  for (const TensorId t : inputs) {
    op.inputs[op.input_count++] = t;
    used_by(t, i);
  }
  bool needs_backward = false;
  for (const TensorId t : outputs) {
    op.outputs[op.output_count++] = t;
    used_by(t, i);
    needs_backward = needs_backward || at(t).requires_grad;
  }
  op.forward = traits.forward;
  op.forward_bytes = total(op.forward);
  op.flops = traits.flops;
  if (!needs_backward) return;
  op.passes_gradient = traits.passes_gradient;
  op.gradient_in_place = traits.gradient_in_place;
  op.saves_gradients = traits.saves_gradients;
  op.gradient_in_pieces = traits.gradient_in_pieces;
  op.backward = traits.backward;
  op.backward_bytes = total(op.backward);
  op.parameter_gradients = traits.parameter_gradients;
  for (const TensorId t : traits.saves) save(t);
}

// A view keeps the storage of its base.
void Graph::used_by(TensorId t, std::int16_t op) {
  for (; t != kNoTensor; t = at(t).base) {
    std::int16_t& last = tensors_[index(t)].last_use;
    last = std::max(last, op);
  }
}

void Graph::save_in(Op& op, std::int16_t number, TensorId t) {
  while (at(t).base != kNoTensor) t = at(t).base;
  if (op.saved_count == Op::kMaxSaved) {
    overflowed_ = true;
    return;
  }
  op.saved[op.saved_count++] = t;
  // What an operation behind those that run again saves is kept after all.
  std::int16_t& again = tensors_[index(t)].made_again;
  if (again >= 0 && number > again) again = -1;
  std::int16_t& first = tensors_[index(t)].first_save;
  if (first < 0 || first > number) first = number;
}

void Graph::save(TensorId t) { save_in(ops_.back(), static_cast<std::int16_t>(ops_.size() - 1), t); }

// Backward ends with the first operation.
void Graph::keep(TensorId t) { save_in(ops_.front(), 0, t); }

void Graph::recompute(std::size_t first, std::size_t end, std::size_t at, bool drops_outputs) {
  const auto saves = [](const Op& op, TensorId t) {
    return std::find(op.saved.begin(), op.saved.begin() + op.saved_count, t) != op.saved.begin() + op.saved_count;
  };
  const auto kept_by_others = [&](TensorId t) {
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      if ((i < first || i >= end) && saves(ops_[i], t)) return true;
    }
    return false;
  };
  for (std::size_t i = first; i < end; ++i) {
    for (std::size_t k = 0; k < ops_[i].output_count; ++k) {
      const TensorId t = ops_[i].outputs[k];
      Tensor& made = tensors_[index(t)];
      if (made.first_save < 0 || made.made_again >= 0 || (!drops_outputs && kept_by_others(t))) continue;
      made.made_again = static_cast<std::int16_t>(at);
    }
  }
}

TensorId Graph::part(TensorId x, Size size) {
  const TensorId t = external(size, at(x).component, at(x).requires_grad);
  tensors_[index(t)].base = x;
  return t;
}

void Graph::pin(TensorId t) {
  save(t);
  while (at(t).base != kNoTensor) t = at(t).base;
  tensors_[index(t)].pinned = true;
}

void Graph::cache(TensorId t) {
  while (at(t).base != kNoTensor) t = at(t).base;
  tensors_[index(t)].cached = true;
}

void Graph::cache_in_turn(TensorId product) {
  if (products_++ % 2 == 0) cache(product);
}

// What is saved, and what it is made of again from what is cached.
void Graph::drop_idle_cache() {
  std::vector<bool> asked(tensors_.size());
  for (std::size_t t = 0; t < tensors_.size(); ++t) asked[t] = tensors_[t].first_save >= 0;
  for (auto op = ops_.rbegin(); op != ops_.rend(); ++op) {
    bool runs_again = false;
    for (std::size_t k = 0; k < op->output_count; ++k) {
      const std::size_t t = index(op->outputs[k]);
      runs_again = runs_again || (asked[t] && !tensors_[t].cached);
    }
    for (std::size_t k = 0; k < op->input_count && runs_again; ++k) asked[index(op->inputs[k])] = true;
  }
  for (std::size_t t = 0; t < tensors_.size(); ++t) tensors_[t].cached = tensors_[t].cached && asked[t];
}

TensorId Graph::view(TensorId x, Size size, const Workspace& backward) {
  const TensorId t = part(x, size);
  run({x}, {t}, {.backward = backward});
  return t;
}

std::array<TensorId, 2> Graph::split(TensorId x, Size first, Size second) {
  const std::array<TensorId, 2> parts{part(x, first), part(x, second)};
  run({x}, {parts[0], parts[1]}, {});
  return parts;
}

std::array<TensorId, 3> Graph::split(TensorId x, Size first, Size second, Size third) {
  const std::array<TensorId, 3> parts{part(x, first), part(x, second), part(x, third)};
  run({x}, {parts[0], parts[1], parts[2]}, {});
  return parts;
}

void Graph::hold_to_end(TensorId t) { tensors_[index(t)].last_use = kEndOfBlock; }

void Graph::hold(std::initializer_list<TensorId> held) {
  for (const TensorId t : held) {
    if (t == kNoTensor) continue;
    const bool block_end = t == input || t == output;
    std::int16_t& last = tensors_[index(t)].last_use;
    last = block_end ? kEndOfBlock : std::max(last, static_cast<std::int16_t>(ops_.size()));
  }
  run({}, {}, {});
  // The release happens when this empty operation settles: list the tensors as its inputs without their gradients.
  Op& op = ops_.back();
  for (const TensorId t : held) {
    if (t != kNoTensor && op.input_count < Op::kMaxInputs) op.inputs[op.input_count++] = t;
  }
}

namespace {

// An update in the middle of backward: the operation has run, its gradient is there, the optimizer makes temporaries.
void update_parameter(BackwardWalk& walk, std::size_t i, const GradientPolicy& policy, Frontier& frontier) {
  const Bytes due = walk.due(i, policy.life);
  if (due.value == 0) return;
  const Bytes temporaries(saturating_multiply(due.value / policy.gradient.value, policy.temporaries.value));
  Polynomial live = walk.live();
  live.coefficient[static_cast<std::size_t>(Product::one)] += temporaries.value;
  if (temporaries.value > 0) {
    frontier.consider({live, static_cast<std::int32_t>(i), walk.parameter_gradients(), temporaries});
  }
  walk.use_up(due);
}

}  // namespace

BlockProfile profile(const Graph& graph, const GradientPolicy& policy) {
  BlockProfile result;
  if (graph.input != kNoTensor) result.input = graph.at(graph.input).bytes;
  result.forward_without_grad = forward_frontier(graph, false);
  result.left_in_cache = frontier_without_scores(graph);
  result.forward_with_grad = forward_frontier(graph, true);
  Polynomial saved, pinned, cached, entering;
  for (const Tensor& t : graph.tensors()) {
    if (is_kept(t) && !t.external) saved += t.bytes;
    if (t.pinned && !t.external) pinned += t.bytes;
    if (t.cached && !t.external) cached += t.bytes;
  }
  BackwardWalk walk(graph);
  bool entered = false;
  for (std::size_t i = graph.ops().size(); i-- > 0;) {
    if (!entered && walk.asks(i)) {
      entered = true;
      result.enters_at = static_cast<std::int32_t>(i);
      walk.gradients([&](std::size_t t) { entering += graph.tensors()[t].bytes; });
    }
    const Polynomial live = walk.run(i);
    result.backward.consider({live, static_cast<std::int32_t>(i), walk.parameter_gradients(), {}});
    walk.settle(i);
    update_parameter(walk, i, policy, result.backward);
  }
  result.saved = saved;
  result.pinned = pinned;
  result.cached = cached;
  result.entering = entering;
  result.parameter_gradients = walk.all_parameter_gradients();
  result.cached_weight_copies = graph.cached_weight_copies();
  for (const Op& op : graph.ops()) result.flops += op.flops;
  return result;
}

namespace {

void add_workspace(LiveSet& set, const Workspace& w) {
  for (const Size& size : w.items()) set.add(w.component, size);
}

void collect_forward(const Graph& graph, bool with_grad, std::size_t last, LiveSet& set) {
  ForwardWalk walk(graph, with_grad);
  for (std::size_t i = 0; i <= last; ++i) {
    if (i > 0) walk.settle(i - 1);
    walk.run(i);
  }
  for (std::size_t t = 0; t < graph.tensors().size(); ++t) {
    const Tensor& tensor = graph.tensors()[t];
    if (!walk.alive(t) || tensor.external) continue;
    const bool kept = tensor.pinned || tensor.cached || (with_grad && is_kept(tensor));
    set.add(kept ? tensor.component : Component::working_memory, tensor.size);
  }
  add_workspace(set, graph.ops()[last].forward);
}

// A gradient of a weight is no gradient of an activation, wherever it is added up.
void collect_gradients(const Graph& graph, const BackwardWalk& walk, LiveSet& set) {
  walk.gradients([&](std::size_t t) {
    const Tensor& tensor = graph.tensors()[t];
    const bool of_weight = tensor.component == Component::gradients;
    set.add(of_weight ? Component::gradients : Component::activation_gradients, tensor.size);
  });
}

void collect_backward(const Graph& graph, std::size_t last, bool settled, LiveSet& set) {
  BackwardWalk walk(graph);
  for (std::size_t i = graph.ops().size(); i-- > last;) {
    walk.run(i);
    if (i > last || settled) walk.settle(i);
  }
  for (std::size_t t = 0; t < graph.tensors().size(); ++t) {
    if (walk.saved(t)) set.add(graph.tensors()[t].component, graph.tensors()[t].size);
  }
  collect_gradients(graph, walk, set);
  if (!settled) add_workspace(set, graph.ops()[last].backward);
}

void collect_entering(const Graph& graph, std::size_t asks, LiveSet& set) {
  BackwardWalk walk(graph);
  for (std::size_t i = graph.ops().size(); i-- > asks + 1;) {
    walk.run(i);
    walk.settle(i);
  }
  collect_gradients(graph, walk, set);
}

}  // namespace

LiveSet live_at(const Graph& graph, Phase phase, std::int32_t op) {
  LiveSet set;
  const auto last = static_cast<std::size_t>(std::max(op, 0));
  switch (phase) {
    case Phase::forward_without_grad: collect_forward(graph, false, last, set); break;
    case Phase::forward_with_grad: collect_forward(graph, true, last, set); break;
    case Phase::backward: collect_backward(graph, last, false, set); break;
    case Phase::after_backward: collect_backward(graph, last, true, set); break;
    case Phase::entering: collect_entering(graph, last, set); break;
    case Phase::saved:
      for (const Tensor& t : graph.tensors()) {
        if (is_kept(t) && !t.external) set.add(t.component, t.size);
      }
      break;
    case Phase::pinned:
      for (const Tensor& t : graph.tensors()) {
        if (t.pinned && !t.external) set.add(t.component, t.size);
      }
      break;
    case Phase::cached:
      for (const Tensor& t : graph.tensors()) {
        if (t.cached && !t.external) set.add(t.component, t.size);
      }
      break;
  }
  return set;
}

}  // namespace vramplan
