// One training step as a walk: what is alive at each event, in order. Memory is the highest of these, not a sum of
// parts.
#pragma once

#include <cstdint>
#include <vector>

#include "vramplan/component.hpp"
#include "vramplan/enum_names.hpp"
#include "vramplan/framework.hpp"
#include "vramplan/model.hpp"
#include "vramplan/ops.hpp"
#include "vramplan/request.hpp"
#include "vramplan/states.hpp"
#include "vramplan/units.hpp"

namespace vramplan {

enum class EventKind : std::uint8_t {
  load,  // weights only, before the optimizer has states
  forward_embedding,
  forward_block,
  forward_head,  // final norm, logits, loss
  backward_head,
  recompute_block,  // forward of a checkpointed block, again
  backward_block,
  backward_embedding,
  gradient_reduction,  // all gradients complete
  optimizer_step,
  steady,  // between steps
};

template <>
struct EnumNames<EventKind> {
  static constexpr Names<11> values = {"load",
                                       "forward_embedding",
                                       "forward_block",
                                       "forward_head",
                                       "backward_head",
                                       "recompute_block",
                                       "backward_block",
                                       "backward_embedding",
                                       "gradient_reduction",
                                       "optimizer_step",
                                       "steady"};
};
static_assert(EnumNames<EventKind>::values[static_cast<std::size_t>(EventKind::steady)] == "steady");

struct Event {
  EventKind kind = EventKind::load;
  std::int32_t layer = -1;  // for block events
  friend constexpr bool operator==(Event, Event) = default;
};

// Everything that decides the memory of one rank, resolved. Made by `prepare`.
struct Run {
  const ModelArchitecture* model = nullptr;
  TrainingChoice training;
  LayoutChoice layout;
  FrameworkSwitches framework;
  StateTypes types;
  Sharding sharding;
  Inventory inventory;
  std::uint64_t adapter_targets = 0;
  std::int64_t accumulation_steps = 1;  // micro-batches a step
  Bytes cublas_workspace;
};

[[nodiscard]] Run prepare(const ModelArchitecture& model, const TrainingChoice& training, const LayoutChoice& layout,
                          Bytes cublas_workspace);

// What decides how the graphs of a run look, besides the model and the training. Runs of one form differ in sizes only.
struct Form {
  bool sharded = false;         // weights are divided over ranks
  bool whole_gradients = true;  // each rank has them all
  bool accumulates = false;     // gradients of earlier micro-batches are there already
  Dim filled_windows = 0;       // attention windows that the sequence fills
  friend constexpr bool operator==(const Form&, const Form&) = default;
};
[[nodiscard]] Form form_of(const ModelArchitecture& model, const TrainingChoice& training, const LayoutChoice& layout,
                           BatchSize batch);

// A graph with its walk, and both for one batch and length.
struct WalkedGraph {
  Graph graph;
  BlockProfile profile;
  SymbolTable symbols{};
  Bytes input{}, saved{};
  Peak forward_without_grad{}, forward_with_grad{}, backward{};
};

// A run of identical layers, walked once.
struct LayerStack {
  Dim first = 0;  // index of its first layer
  Dim count = 0;
  bool trained = true;  // gradients flow through it
  WalkedGraph block;
};

class Step {
 public:
  explicit Step(const Run& run);
  // The same run in another size: the graphs stay, so the new size must have the same form.
  void resize(const LayoutChoice& layout, BatchSize batch, Bytes cublas_workspace);

  [[nodiscard]] const Run& run() const { return run_; }
  // All events of one step in order.
  [[nodiscard]] std::vector<Event> events() const;
  // The most bytes alive while the event runs.
  [[nodiscard]] Bytes live(Event event) const;
  // The event at which most is alive. Within a stack only the ends can be highest: what is alive changes by the same
  // number of bytes from layer to layer.
  [[nodiscard]] Event peak() const { return highest().event; }
  struct Highest {
    Event event;
    Bytes bytes;
  };
  [[nodiscard]] Highest highest() const;
  // The same in the very first step, where the optimizer makes its states at the end.
  [[nodiscard]] Bytes highest_of_first_step() const;
  // What those bytes are: adds up to `live(event)`.
  [[nodiscard]] std::vector<Contribution> contributions(Event event) const;
  [[nodiscard]] const std::vector<LayerStack>& stacks() const { return stacks_; }
  // What one layer of the stack keeps from its forward to its backward: its input, or all that it saves.
  [[nodiscard]] Bytes kept_per_layer(const LayerStack& stack) const;
  [[nodiscard]] bool valid() const;

 private:
  void size_graphs();
  void fill_lists();
  // Calls visit(event) for the events among which the highest one is, of whatever batch and length.
  template <class Visit>
  void visit_candidates(Visit visit) const;
  template <class Sink>
  void describe(Event event, Sink& sink) const;
  template <class Sink>
  void describe_running(Event event, Sink& sink) const;
  template <class Sink>
  void describe_sharded(Event event, Sink& sink) const;
  template <class Sink>
  void describe_gradients(Event event, Sink& sink) const;
  template <class Sink>
  void describe_waiting_gradient(Event event, Sink& sink) const;
  template <class Sink>
  void describe_gradients_done(Event event, Sink& sink) const;
  [[nodiscard]] const LayerStack& stack_of(std::int32_t layer) const;
  [[nodiscard]] bool checkpoints() const { return run_.training.recompute == Recompute::full; }

  Run run_;
  Contributions weights_, states_, gradients_, temporaries_, others_;
  Bytes weights_bytes_, states_bytes_, gradients_bytes_, temporaries_bytes_, others_bytes_;
  WalkedGraph embedding_, head_;
  std::vector<LayerStack> stacks_;
  Dim layers_ = 0;
  bool has_window_mask_ = false;
  std::int64_t stream_bytes_ = 0;  // of one element of the residual stream
};

}  // namespace vramplan
