// One training step as a walk: what is alive at each event, in order. Memory is the highest of these, not a sum of
// parts.
#pragma once

#include <cstdint>
#include <memory>
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

// Whether whole blocks run again in backward: with full recompute, or with a policy that keeps some of their products.
[[nodiscard]] inline bool checkpoints_blocks(const Run& run) {
  const bool by_policy = run.training.recompute == Recompute::selective && run.framework.caches_products;
  return run.training.recompute == Recompute::full || by_policy;
}

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
  bool trained = true;  // gradients flow through it
  bool checkpointed = false;
  WalkedGraph block;
  Params parameters;  // of one layer
  std::size_t group = 0;
  Dim waiting = 0;  // layers times micro-batches that wait for their backward elsewhere in the stage
};

class Step {
 public:
  explicit Step(const Run& run);
  // Graphs that others have are shared with them.
  Step(const Run& run, GraphSet& graphs);
  // The same run in another size: the graphs stay, so the new size must have the same form.
  void resize(const LayoutChoice& layout, BatchSize batch, Bytes cublas_workspace);

  [[nodiscard]] const Run& run() const { return run_; }
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
  [[nodiscard]] const std::vector<LayerStack>& stacks() const { return stacks_; }
  // What one layer of the stack keeps from its forward to its backward: its input, or all that it saves.
  [[nodiscard]] Bytes kept_per_layer(const LayerStack& stack) const;
  // What the rank keeps in host memory.
  [[nodiscard]] Contributions host_memory() const;
  [[nodiscard]] bool valid() const;

 private:
  [[nodiscard]] Dim not_offloaded(Event event, const LayerStack& stack) const;
  void size_graphs();
  void size_value_model();
  void fill_lists();
  // Calls visit(event) for the events among which the highest one is, of whatever batch and length.
  template <class Visit>
  void visit_candidates(Visit visit) const;
  template <class Sink>
  void describe(Event event, Sink& sink) const;
  template <class Sink>
  void describe_own(Event event, Sink& sink) const;
  template <class Sink>
  void describe_value_model(Event event, Sink& sink) const;
  template <class Sink>
  void describe_paused(bool in_forward, Sink& sink) const;
  template <class Sink>
  void describe_outputs(Event event, Sink& sink) const;
  template <class Sink>
  void describe_standing(Sink& sink) const;
  template <class Sink>
  void describe_cache(Sink& sink, std::int64_t sequences) const;
  template <class Sink>
  void describe_writing(Sink& sink) const;
  template <class Sink>
  void describe_rollout(Sink& sink) const;
  template <class Sink>
  void describe_scores(Sink& sink, std::int64_t sequences) const;
  template <class Sink>
  void describe_generation(Sink& sink) const;
  template <class Sink>
  void describe_kept(Event event, Sink& sink) const;
  template <class Sink>
  void describe_running(Event event, Sink& sink) const;
  template <class Sink>
  void describe_unit_end(Sink& sink) const;
  template <class Sink>
  void describe_kept_logits(Sink& sink) const;
  template <class Sink>
  void describe_sharded(Event event, Sink& sink) const;
  template <class Sink>
  void describe_fetched(Event event, Sink& sink) const;
  template <class Sink>
  void describe_communication(Event event, Sink& sink) const;
  template <class Sink>
  void describe_gradients(Event event, Sink& sink) const;
  template <class Sink>
  void describe_ends(Event event, Sink& sink) const;
  template <class Sink>
  void describe_reduction(Event event, Sink& sink) const;
  template <class Sink>
  void describe_list_of_gradients(const Contributions& list, Bytes total, Sink& sink) const;
  [[nodiscard]] bool uses_side_streams() const;
  [[nodiscard]] bool ends_are_units() const;
  [[nodiscard]] Params embedding_unit() const;
  [[nodiscard]] Bytes logits_hole(Event event) const;
  template <class Sink>
  void describe_waiting_gradient(Event event, Sink& sink) const;
  template <class Sink>
  void describe_gradients_done(Event event, Sink& sink) const;
  [[nodiscard]] const LayerStack& stack_of(std::int32_t layer) const;
  [[nodiscard]] const WalkedGraph& highest_of_reference() const;
  [[nodiscard]] bool generates() const { return run_.training.generation.has_value(); }
  [[nodiscard]] bool runs_embedding_back() const {
    return run_.stage.first && trains_outside(run_.training, Module::embedding);
  }
  [[nodiscard]] bool runs_reference() const { return !reference_.empty(); }
  // DPO asks the reference when the policy has answered, all that it saved being there; GRPO asks it before.
  [[nodiscard]] bool reference_runs_last() const { return !generates(); }
  [[nodiscard]] Bytes states_made() const;
  [[nodiscard]] bool plays_ppo() const { return run_.training.objective == Objective::ppo; }
  // Answers of a step that one pass writes or judges; all of them.
  [[nodiscard]] std::int64_t rollout_sequences() const;
  [[nodiscard]] std::int64_t all_sequences() const;
  [[nodiscard]] Dim inputs_counted(Event event) const;
  [[nodiscard]] Event highest_of(bool forward) const;
  [[nodiscard]] BatchSize batch() const;
  [[nodiscard]] Bytes left_in_cache() const;
  [[nodiscard]] Dim tokens() const;
  template <class Sink>
  void describe_waiting(Sink& sink) const;
  template <class Sink>
  void describe_earlier_logits(Event event, Sink& sink) const;
  template <class Sink>
  void describe_bucket(Sink& sink) const;
  template <class Sink>
  void describe_handed_on(Event event, Sink& sink) const;
  [[nodiscard]] std::int64_t earlier_logits(EventKind kind) const;
  [[nodiscard]] Dim checkpoints_on_gpu(Event event) const;
  [[nodiscard]] Dim gather_buffers(const LayerStack& stack, Event event) const;
  [[nodiscard]] Dim gathered_layers(const LayerStack& stack, Event event) const;
  [[nodiscard]] Factor unit_of(Params elements) const;
  // Micro-batches before the last leave whole gradients.
  [[nodiscard]] bool keeps_whole() const { return run_.sharding.defers_reduction && run_.accumulation_steps > 1; }
  [[nodiscard]] bool checkpoints() const { return checkpoints_blocks(run_); }

  Run run_;
  // gradients_: as the optimizer finds them; kept_: as they are kept from pass to pass; buffers_: of backward
  Contributions weights_, states_, gradients_, kept_, temporaries_, buffers_, others_;
  Bytes master_weights_bytes_;  // of the states
  Bytes weights_bytes_, states_bytes_, gradients_bytes_, kept_bytes_, temporaries_bytes_, buffers_bytes_, others_bytes_;
  WalkedGraph embedding_, head_;
  std::vector<LayerStack> stacks_;
  std::vector<WalkedGraph> reference_;    // one layer of each group, and the head; empty: no reference runs
  std::vector<Step> value_model_;         // PPO's, or none
  Event value_forward_, value_backward_;  // the highest ones of the value model, of its own
  Dim layers_ = 0;
  OptimizerMemory optimizer_;
  Dim reused_layers_ = 0;  // the last ones, which DeepSpeed keeps whole from forward to backward
  bool has_window_mask_ = false;
  Bytes stream_;                   // the residual stream of the batch
  std::int64_t stream_bytes_ = 0;  // of one element of the residual stream
  Factor stream_width_;
};

}  // namespace vramplan
