// One training step as a walk: what is alive at each event, in order. Memory is the highest of these, not a sum of
// parts.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "vramplan/component.hpp"
#include "vramplan/enum_names.hpp"
#include "vramplan/framework.hpp"
#include "vramplan/graph_set.hpp"
#include "vramplan/layout.hpp"
#include "vramplan/model.hpp"
#include "vramplan/ops.hpp"
#include "vramplan/request.hpp"
#include "vramplan/states.hpp"
#include "vramplan/units.hpp"

namespace vramplan {

enum class EventKind : std::uint8_t {
  load,           // weights only, before the optimizer has states
  generation,     // the policy writes its answers
  value_forward,  // PPO's value model on the batch, before the policy
  forward_embedding,
  forward_block,
  forward_head,       // final norm, logits, loss
  reference_forward,  // the same batch through the reference, without gradients
  backward_head,
  recompute_block,  // forward of a checkpointed block, again
  backward_block,
  backward_embedding,
  value_backward,      // after the policy's
  gradient_reduction,  // all gradients complete
  optimizer_step,
  steady,  // between steps
};

template <>
struct EnumNames<EventKind> {
  static constexpr Names<15> values = {"load",
                                       "generation",
                                       "value_forward",
                                       "forward_embedding",
                                       "forward_block",
                                       "forward_head",
                                       "reference_forward",
                                       "backward_head",
                                       "recompute_block",
                                       "backward_block",
                                       "backward_embedding",
                                       "value_backward",
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
  const ModelArchitecture* whole = nullptr;
  const ModelArchitecture* model = nullptr;       // what the rank holds of it
  std::shared_ptr<const ModelArchitecture> part;  // that, where it is less
  Stage stage;
  TrainingChoice training;
  LayoutChoice layout;
  FrameworkSwitches framework;
  StateTypes types;
  Sharding sharding;
  Inventory inventory;
  std::uint64_t adapter_targets = 0;
  std::int64_t accumulation_steps = 1;  // micro-batches a step
  Bytes cublas_workspace;
  bool second = false;  // runs on the batch and in the workspace of another model
};

// The model must outlive the run. `stage`: of the pipeline.
[[nodiscard]] Run prepare(const ModelArchitecture& model, const TrainingChoice& training, const LayoutChoice& layout,
                          Bytes cublas_workspace, std::int64_t stage = 0);

// What decides how the graphs of a run look, besides the model and the training. Runs of one form differ in sizes only.
struct Form {
  Engine engine = Engine::ddp;
  bool gathers = false;            // weights are divided over ranks
  bool drops_gradients = false;    // new gradients of parameters are added to what is there, or leave, at once
  bool uses_up_gradients = false;  // the optimizer does, in backward
  Dim filled_windows = 0;          // attention windows that the sequence fills
  bool joins_sequences = false;    // heads are joined with a batch of more than one sequence
  std::int64_t tp = 1, pp = 1, vpp = 1, cp = 1, ep = 1, etp = 1;
  bool sp = false, loss_parallel = true;
  std::optional<ContextExchange> cp_exchange{};
  std::optional<std::int64_t> first_stage_layers{}, last_stage_layers{};
  std::int64_t stage = 0;
  friend constexpr bool operator==(const Form&, const Form&) = default;
};
[[nodiscard]] Form form_of(const ModelArchitecture& model, const TrainingChoice& training, const LayoutChoice& layout,
                           BatchSize batch, std::int64_t stage);

// A graph with its walk, for one batch and length.
struct WalkedGraph {
  WalkedGraph() = default;
  explicit WalkedGraph(GraphSet::Built b) : built(std::move(b)), symbols(built->graph.widths()) {}
  GraphSet::Built built;
  [[nodiscard]] const Graph& graph() const { return built->graph; }
  [[nodiscard]] const BlockProfile& profile() const { return built->profile; }
  SymbolTable symbols{};
  Bytes input{}, saved{}, pinned{}, cached{}, entering{}, left_in_cache{};
  Peak forward_without_grad{}, forward_with_grad{}, backward{};
};

// A run of identical layers, walked once.
struct LayerStack {
  Dim first = 0;  // index of its first layer
  Dim count = 0;
  std::size_t group = 0;
  bool last_of_group = true;  // no stack behind it has layers of its group
  bool trained = true;        // gradients flow through it
  bool checkpointed = false;
  WalkedGraph block;
  Params parameters{};  // of one layer
  Dim waiting = 0;      // layers times micro-batches that wait for their backward elsewhere in the stage
  [[nodiscard]] Dim end() const { return first + count; }
  [[nodiscard]] bool holds(Dim layer) const { return layer >= first && layer < end(); }
  // Its layers in front of this one.
  [[nodiscard]] Dim below(Dim layer) const { return std::clamp<Dim>(layer - first, 0, count); }
};

// What stays, or comes with an event, beside the graphs that run.
enum class Holding : std::uint8_t {
  weights,
  master_weights,
  states,       // of the optimizer
  gradients,    // as the optimizer finds them
  kept,         // gradients as they are kept from pass to pass
  temporaries,  // of the optimizer
  buffers,      // of backward
  others,
};
inline constexpr std::size_t kHoldingCount = static_cast<std::size_t>(Holding::others) + 1;

// What one model has in a step, in one size: how much it holds of each, and the graphs that run.
struct ModelInStep {
  Run run;
  std::array<Bytes, kHoldingCount> held{};
  [[nodiscard]] Bytes bytes_of(Holding h) const { return held[static_cast<std::size_t>(h)]; }
  OptimizerMemory optimizer;
  WalkedGraph embedding, head;
  std::vector<LayerStack> stacks;
  Dim layers = 0;                        // of all stacks
  std::vector<WalkedGraph> reference;    // one layer of each group, and the head; empty: no reference runs
  std::vector<ModelInStep> value_model;  // PPO's, or none
  Event value_forward, value_backward;   // the highest ones of the value model, of its own
  Dim reused_layers = 0;                 // the last ones, which DeepSpeed keeps whole from forward to backward
  bool has_window_mask = false;
  std::int64_t stream_bytes = 0;  // of one element of the residual stream
  Factor stream_width;
  Bytes stream;  // the residual stream of the batch
};

class Step {
 public:
  explicit Step(Run run);
  // Graphs that others have are shared with them.
  Step(Run run, GraphSet& graphs);
  // The same run in another size: the graphs stay, so the new size must have the same form.
  void resize(const LayoutChoice& layout, BatchSize batch, Bytes cublas_workspace);

  [[nodiscard]] const Run& run() const { return model_.run; }
  // All events of one step in order.
  [[nodiscard]] std::vector<Event> events() const;
  // The most bytes alive while the event runs.
  [[nodiscard]] Bytes live(Event event) const;
  // The event at which most is alive. Within a stack only the two layers at each end can be highest: what is alive
  // changes by the same number of bytes from layer to layer, but the outermost have no neighbour to fetch or to wait
  // for.
  [[nodiscard]] Event peak() const { return highest().event; }
  struct Highest {
    Event event;
    Bytes bytes;
    // What the caching allocator holds at least. It splits a segment for smaller tensors but never joins two: those
    // that the forward pass of checkpointed blocks filled with tensors that are gone stay beside the logits, which are
    // larger (c10/cuda/CUDACachingAllocator.cpp). In backward, blocks find room in what the logits have left.
    Bytes held;
  };
  [[nodiscard]] Highest highest() const;
  // The same in the very first step, where the optimizer makes its states at the end.
  [[nodiscard]] Bytes highest_of_first_step() const;
  // What FSDP2 takes on streams of its own, whose pools the allocator keeps apart: buffers of gathered units, and the
  // shards of gradients.
  struct SidePools {
    Bytes gathered, reduced;
  };
  [[nodiscard]] SidePools side_pools() const;
  // The most bytes on the main stream, with the holes between them.
  [[nodiscard]] Bytes highest_on_main_stream() const;
  // What those bytes are: adds up to `live(event)`.
  [[nodiscard]] std::vector<Contribution> contributions(Event event) const;
  [[nodiscard]] const std::vector<LayerStack>& stacks() const { return model_.stacks; }
  // What one layer of the stack keeps from its forward to its backward: its input, or all that it saves.
  [[nodiscard]] Bytes kept_per_layer(const LayerStack& stack) const;
  // What the rank keeps in host memory.
  [[nodiscard]] Contributions host_memory() const;
  [[nodiscard]] bool valid() const;

 private:
  ModelInStep model_;
};

}  // namespace vramplan
