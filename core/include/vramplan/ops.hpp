// What one block does, operation by operation, and what that keeps alive: a miniature autograd.
//
// A graph lists tensors and operations in the order in which the framework runs them. An operation names the tensors it
// reads, makes and saves for backward; everything else follows by the rules of PyTorch's autograd:
//   forward   a tensor lives until its last reader has run (or its Python scope ends), or until backward if it is
//   saved; backward  operations run in reverse; a gradient lives from the first operation that makes it to the one that
//   uses
//             it up; a second gradient of the same tensor is added in place; saved tensors go when their last user has
//             run.
// A tensor is a storage: what q, k and v all save is counted once.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "vramplan/component.hpp"
#include "vramplan/framework.hpp"
#include "vramplan/model.hpp"
#include "vramplan/parameters.hpp"
#include "vramplan/request.hpp"
#include "vramplan/units.hpp"

namespace vramplan {

using TensorId = std::int16_t;
inline constexpr TensorId kNoTensor = -1;

struct Tensor {
  Size size;
  Polynomial bytes;
  Component component = Component::working_memory;  // where it counts when it is saved for backward
  bool requires_grad = false;
  bool external = false;         // owned by somebody else: counted there
  bool pinned = false;           // a node of the graph holds it as an attribute of its own: see Graph::pin
  bool cached = false;           // a selective checkpoint keeps it: see Graph::cache
  TensorId base = kNoTensor;     // a view: the tensor whose storage it is part of
  std::int16_t last_use = -1;    // operation after which nothing in forward needs it
  std::int16_t first_save = -1;  // the earliest operation that saves it; -1: not saved
  std::int16_t made_again = -1;  // the operation before whose backward it is made again, not kept until then; -1: never
};

// Temporaries that live only while their operation runs.
struct Workspace {
  static constexpr std::size_t kMaxSizes = 8;
  Component component = Component::working_memory;
  std::array<Size, kMaxSizes> sizes{};
  std::uint8_t count = 0;

  constexpr Workspace() = default;
  constexpr Workspace(Component c, std::initializer_list<Size> list) : component(c) {
    for (const Size& size : list) add(size);
  }
  // More than fit make the graph overflow.
  constexpr void add(const Size& size) {
    if (count < kMaxSizes) sizes[count] = size;
    ++count;
  }
  [[nodiscard]] std::span<const Size> items() const { return {sizes.data(), count}; }
};

struct Op {
  static constexpr std::size_t kMaxInputs = 6;
  static constexpr std::size_t kMaxOutputs = 4;
  static constexpr std::size_t kMaxSaved = 6;
  std::array<TensorId, kMaxInputs> inputs{};
  std::array<TensorId, kMaxOutputs> outputs{};
  std::array<TensorId, kMaxSaved> saved{};
  std::uint8_t input_count = 0, output_count = 0, saved_count = 0;
  bool passes_gradient = false;     // backward hands the output's gradient on unchanged (additions, views)
  bool gradient_in_place = false;   // backward writes the input's gradient over the saved input
  bool saves_gradients = false;     // what it saves are the gradients, made in forward: backward hands them out
  bool gradient_in_pieces = false;  // backward makes the input's gradient piece by piece, the output's goes meanwhile
  Workspace forward, backward;
  Polynomial forward_bytes, backward_bytes;  // of the workspaces
  Bytes parameter_gradients;                 // made in backward and kept until the optimizer has run
  Polynomial flops;                          // of one forward pass
};

// What a caller of `Graph::apply` says about an operation besides its inputs and output.
struct OpTraits {
  std::initializer_list<TensorId> saves = {};
  bool passes_gradient = false;
  bool gradient_in_place = false;
  bool saves_gradients = false;
  bool gradient_in_pieces = false;
  Workspace forward = {};
  Workspace backward = {};
  Bytes parameter_gradients = {};
  Polynomial flops = {};
};

class Graph {
 public:
  static constexpr std::size_t kMaxTensors = 640;
  static constexpr std::size_t kMaxOps = 576;

  explicit Graph(const SymbolTable& widths);

  TensorId tensor(Size size, Component component, bool requires_grad);
  // A tensor that exists before the block runs.
  TensorId external(Size size, Component component, bool requires_grad);

  // One operation with one output; the output needs a gradient when any input does.
  TensorId apply(std::initializer_list<TensorId> inputs, Size made_size, Component component,
                 const OpTraits& traits = {});
  // The general form: outputs are made beforehand with `tensor`.
  void run(std::initializer_list<TensorId> inputs, std::initializer_list<TensorId> outputs, const OpTraits& traits) {
    run(std::span(inputs.begin(), inputs.size()), outputs, traits);
  }
  void run(std::span<const TensorId> inputs, std::initializer_list<TensorId> outputs, const OpTraits& traits);
  // Parts of x that share its storage. Their gradients are tensors of their own, joined into one of x in backward.
  TensorId view(TensorId x, Size size, const Workspace& backward = {});
  std::array<TensorId, 2> split(TensorId x, Size first, Size second);
  std::array<TensorId, 3> split(TensorId x, Size first, Size second, Size third);
  // Python still holds these names here.
  void hold(std::initializer_list<TensorId> tensors);
  // Lives to the end of the block whoever reads it.
  void hold_to_end(TensorId t);
  // The last operation also saves this tensor.
  void save(TensorId tensor);
  // And holds it beside what autograd saves: no checkpoint sees it there, and it goes with the whole graph, when
  // backward has ended.
  void pin(TensorId tensor);
  // The caller holds it until backward has ended.
  void keep(TensorId tensor);
  // A selective checkpoint keeps it from forward until the block has run again.
  void cache(TensorId tensor);
  // Products with weights take turns: of every two the first is cached.
  void cache_in_turn(TensorId product);
  // But for what backward neither saves nor needs to make that again.
  void drop_idle_cache();
  // The caller holds the output and its gradient until backward has ended.
  void hold_output_in_backward() {
    keep(output);
    holds_output_gradient_ = true;
  }
  // Operations [first, end) run again before the backward of operation `at`: what they make for themselves is not kept
  // until then, and with `drops_outputs` neither is what they make for others.
  void recompute(std::size_t first, std::size_t end, std::size_t at, bool drops_outputs);
  // Weight copies that autocast keeps until its context ends.
  void cache_weight_copy(Bytes bytes) { cached_weight_copies_ += bytes; }

  [[nodiscard]] const Tensor& at(TensorId t) const { return tensors_[index(t)]; }
  [[nodiscard]] const SymbolTable& widths() const { return widths_; }
  [[nodiscard]] std::span<const Tensor> tensors() const { return tensors_; }
  [[nodiscard]] std::span<const Op> ops() const { return ops_; }
  [[nodiscard]] Bytes cached_weight_copies() const { return cached_weight_copies_; }
  [[nodiscard]] bool holds_output_gradient() const { return holds_output_gradient_; }
  [[nodiscard]] bool overflowed() const { return overflowed_; }
  // Of a size in which neither batch nor length occurs: parameters and their gradients.
  [[nodiscard]] Bytes size_in_bytes(const Size& size) const { return bytes_of(size, widths_); }
  [[nodiscard]] Polynomial polynomial(const Size& size);

  TensorId input = kNoTensor;
  TensorId output = kNoTensor;

 private:
  void used_by(TensorId t, std::int16_t op);
  void save_in(Op& op, std::int16_t number, TensorId t);
  TensorId part(TensorId x, Size size);
  static std::size_t index(TensorId t) { return static_cast<std::size_t>(t); }
  Polynomial total(const Workspace& workspace);
  SymbolTable widths_;
  std::vector<Tensor> tensors_;
  std::vector<Op> ops_;
  Bytes cached_weight_copies_;
  std::int64_t products_ = 0;  // that took turns
  bool holds_output_gradient_ = false;
  bool overflowed_ = false;
};

// A moment inside a block: what is alive, and after how many operations.
struct Moment {
  Polynomial bytes;
  std::int32_t op = -1;
  Bytes parameter_gradients;  // of these bytes, gradients of parameters made so far
  Bytes update{};             // and temporaries of an optimizer that updates a parameter here; 0: the operation runs
};
// The same for one batch and length.
struct Peak {
  Bytes bytes{};
  std::int32_t op = -1;
  Bytes parameter_gradients{};
  Bytes update{};
};

// The moments of a phase that are highest for some batch and length: all others stay below one of these.
class Frontier {
 public:
  void consider(const Moment& moment);
  // The highest; of equals the first.
  [[nodiscard]] Peak at(const ProductTable& products) const;

 private:
  std::vector<Moment> moments_;
  Polynomial ceiling_;  // of all of them, coefficient by coefficient
  // The products that occur at all: of a dozen, two or three.
  std::array<std::uint8_t, kProductCount> occurring_{};
  std::size_t occurring_count_ = 0;
};

// What walking a block gives. Parameter gradients are counted apart because they outlive the block.
struct BlockProfile {
  Terms input;   // the residual stream that enters: what a checkpoint keeps
  Terms saved;   // kept for backward when the block runs with gradients, the input included if it is saved
  Terms pinned;  // of it, what a checkpoint keeps all the same
  Terms cached;  // what a selective checkpoint keeps besides the input
  Frontier forward_without_grad;  // inside forward, nothing saved
  Frontier left_in_cache;         // the same without what grows with the square of the length
  Frontier forward_with_grad;     // inside forward, saved tensors kept
  Frontier backward;              // inside backward, saved tensors and parameter gradients included
  Terms entering;                 // gradients alive when backward first asks for a saved tensor
  std::int32_t enters_at = 0;     // the operation that asks
  Bytes parameter_gradients;
  Bytes cached_weight_copies;
  Polynomial flops;
};

// When the gradient of a parameter goes: when the optimizer has run after backward; when the optimizer has updated that
// parameter, in a hook that runs once the gradient is there (torch.Tensor.register_post_accumulate_grad_hook); or when
// the next gradient is made, in a hook that looks for gradients from before (lomo_optim, register_hook).
enum class GradientLife : std::uint8_t { step, own_update, next_update };
struct GradientPolicy {
  GradientLife life = GradientLife::step;
  // Temporaries of the update per bytes of gradient, as a ratio.
  Bytes temporaries{}, gradient{1};
  friend constexpr bool operator==(const GradientPolicy&, const GradientPolicy&) = default;
};

[[nodiscard]] BlockProfile profile(const Graph& graph, const GradientPolicy& policy = {});

// What is alive inside a block at a moment, tensor by tensor (parameter gradients apart: see Moment).
// after_backward: when the operation has run and what it alone needed has gone.
enum class Phase : std::uint8_t {
  forward_without_grad,
  forward_with_grad,
  backward,
  after_backward,
  entering,
  saved,
  pinned,
  cached
};
struct LiveItem {
  Component component;
  Size size;
};
class LiveSet {
 public:
  void add(Component component, const Size& size) { items_.push_back({component, size}); }
  [[nodiscard]] std::span<const LiveItem> items() const& { return items_; }
  std::span<const LiveItem> items() const&& = delete;  // they live in the set

 private:
  std::vector<LiveItem> items_;
};
[[nodiscard]] LiveSet live_at(const Graph& graph, Phase phase, std::int32_t op);

// What the adapters of a block are.
struct AdapterSettings {
  std::uint64_t targets = 0;  // bit per Module; 0: no adapters
  bool dropout = false;
  bool dora = false;
  ElementType type = ElementType::fp32;
  [[nodiscard]] constexpr bool on(Module m) const { return (targets >> static_cast<unsigned>(m) & 1U) != 0; }
  friend constexpr bool operator==(const AdapterSettings&, const AdapterSettings&) = default;
};

// Everything that decides what a block keeps, besides the layer itself.
struct BlockContext {
  const ModelArchitecture* model = nullptr;
  FrameworkSwitches framework;
  Dim sequence_length = 1;         // only to see which windows it fills
  Dim tensor_ranks = 1;            // that share the matrices (the model is the part of one)
  Dim sequence_ranks = 1;          // that share a sequence (context parallelism)
  bool sequence_parallel = false;  // tensor_ranks share the tokens too, between the matrices
  bool gathers_logits = false;     // each of tensor_ranks has all logits; else they share the loss
  Dim expert_tensor_ranks = 1;     // that cut each expert
  Dim expert_imbalance = 1000;     // per thousand: rows of the busiest rank's experts, of the average
  Dim expert_capacity = 0;         // per thousand: rows that an expert takes, of its fair share; 0: all that come
  bool exchanges_heads = false;    // context parallelism by all-to-all; else keys and values go round in a ring
  std::uint32_t recomputed = 0;    // bit per RecomputeModule
  Dim rank = 0;
  ElementType compute = ElementType::bf16;    // of matrix products
  ElementType residual = ElementType::bf16;   // of the stream between blocks
  ElementType weights = ElementType::bf16;    // of linear weights that are not quantized
  ElementType leftovers = ElementType::bf16;  // of norms and biases
  ElementType tables = ElementType::bf16;     // of embedding and head
  ElementType gradients = ElementType::bf16;  // of parameter gradients
  bool quantized = false;                     // linear layers of the blocks hold a quantized weight
  bool multiplies_int8 = false;               // and multiply it by inputs of 8 bits (LLM.int8)
  bool trains_base = false;
  bool trains_embedding = false;
  bool trains_head = false;
  bool trains_norms = false;
  bool caches = false;             // a selective checkpoint keeps the results of products (Graph::cache)
  bool accumulates = false;        // parameter gradients are there already: new ones are added and dropped
  bool uses_up_gradients = false;  // the optimizer does, in backward: a tied table's waits for the second one alone
  bool gradient_enters = true;     // the block's input needs a gradient
  bool joins_sequences = false;    // of several sequences heads are joined with the batch (joins_heads_with_batch)
  bool keeps_streams = false;      // the caller names what enters a block, and the last norm's output, to the end
  AttentionKernel attention = AttentionKernel::sdpa;
  AdapterSettings adapter;
  Dim predictions = 0;  // modules of multi-token prediction ahead of the head
  bool checkpoints_predictions = false;
  [[nodiscard]] bool recomputes(RecomputeModule m) const { return (recomputed >> static_cast<unsigned>(m) & 1U) != 0; }
  friend constexpr bool operator==(const BlockContext&, const BlockContext&) = default;
};

// The widths of a layer (of no layer when `group` is null: those outside the blocks). Batch and length are left open.
[[nodiscard]] SymbolTable widths_for(const BlockContext& context, const LayerGroup* group);
// The same with batch and length, and what follows from them.
struct BatchSize {
  Dim micro_batch = 1;
  Dim sequence_length = 1;
};
void set_size(SymbolTable& table, const FrameworkSwitches& framework, BatchSize batch);
[[nodiscard]] inline SymbolTable sized(SymbolTable widths, const FrameworkSwitches& framework, BatchSize batch) {
  set_size(widths, framework, batch);
  return widths;
}

// Transformers gives SDPA a mask where a window cuts the sequence: then the fused kernel is the one that takes masks,
// and it wants keys and values for every query head (masking_utils.py, sdpa_attention.py).
[[nodiscard]] bool masks_window(const BlockContext& context, const Attention& attention);

[[nodiscard]] Graph embedding_graph(const BlockContext& context);
// With `checkpointed` the block's input belongs to the checkpoint and is not counted here.
[[nodiscard]] Graph block_graph(const BlockContext& context, const LayerGroup& group, bool checkpointed);
// Final norm, head and loss.
[[nodiscard]] Graph head_graph(const BlockContext& context);
// The same of Megatron-Core's modules.
[[nodiscard]] Graph megatron_embedding_graph(const BlockContext& context);
[[nodiscard]] Graph megatron_block_graph(const BlockContext& context, const LayerGroup& group, bool checkpointed);
[[nodiscard]] Graph megatron_head_graph(const BlockContext& context);

}  // namespace vramplan
