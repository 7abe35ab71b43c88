// What stays in memory from step to step: weights with quantization constants, adapters, gradients, optimizer states.
// Bytes of one rank, after sharding.
#pragma once

#include <cstdint>
#include <vector>

#include "vramplan/component.hpp"
#include "vramplan/framework.hpp"
#include "vramplan/model.hpp"
#include "vramplan/parameters.hpp"
#include "vramplan/request.hpp"
#include "vramplan/sharding.hpp"
#include "vramplan/units.hpp"

namespace vramplan {

// Trained tensors of one shape, as an optimizer sees them.
struct TrainedTensor {
  ParameterKind kind = ParameterKind::linear;
  Module module = Module::other;
  bool in_block = false;  // a weight of a layer that is not an adapter
  bool adapter = false;
  bool copy = false;  // of a module, trained beside the frozen one
  bool expert = false;
  Dim rows = 0, columns = 1;
  std::int64_t count = 1;  // equal ones
  [[nodiscard]] std::int64_t elements() const { return saturating_multiply(rows, columns); }
  [[nodiscard]] bool is_matrix() const { return rows > 1 && columns > 1; }
};

// Parameters counted by what training does to them. Made once for a model and a training choice.
struct Inventory {
  Params total, active;
  Params block_linear;  // linear weights of the blocks (litgpt: the head too): what a quantizer stores in few bits
  Params leftovers;     // embeddings, norms, biases, head, towers: never quantized
  Params tables;        // of the leftovers: embeddings and head
  std::uint64_t adapted_groups = 0;  // bit per layer group that carries adapters
  Params adapters;                   // low-rank matrices and DoRA magnitudes
  Params trained_base;               // of the base model
  Params experts;                    // of the total
  Params quantized_experts;          // of block_linear
  Params trained_experts;            // of trained_base
  Params expert_adapters;            // of adapters
  Params matrices;                   // weights that kernels multiply: not tables and routers
  Params distinct_matrices;          // one of each shape of those
  Params with_gradients;             // of the base model: what is trained, and what shares a flat parameter with it
  Params copies;                     // of the embedding or the head, trained beside the frozen ones
  Params largest_trained;            // one tensor
  Params largest_layer;              // linear weights and the rest of the largest layer
  std::vector<Params> layers;        // of one layer of each group
  Params largest_fetch;              // the largest module with parameters of its own in a layer; all experts are one
  // Up to which size DeepSpeed keeps a tensor whole at stage 3, and the parameters of all such tensors.
  Params persistent_size, persistent;
  Params outside_layers;               // embedding, head, final norm: the root unit of a sharded model
  Params attention_head;               // of a query matrix of width hidden size: what Adam-mini takes as one block
  std::vector<TrainedTensor> tensors;  // all that is trained, in the order of the model's parameters
  // Constants of the base weights' quantizer.
  std::int64_t absmax_blocks = 0;         // of 64 values
  std::int64_t absmax_second_blocks = 0;  // of 256 absmax values (double quantization)
  Params largest_quantized;               // one matrix
  Params rows;                            // outputs of the quantized matrices (LLM.int8)
  std::int64_t gptq_groups = 0;           // of 128 inputs, times outputs
  Params columns;                         // inputs of the quantized matrices (GPTQ's g_idx)
  [[nodiscard]] Params trained() const { return trained_base + adapters + copies; }
};

// The group with the largest layers: from it BAdam's heaviest layer comes.
[[nodiscard]] std::size_t largest_group(const Inventory& inventory);
// The matrices that carry an adapter, as the framework holds them; none when the method has none, or when no target is
// a module of this model.
[[nodiscard]] std::vector<ParameterGroup> adapted_groups(const TrainingChoice& training,
                                                         const std::vector<ParameterGroup>& groups);
// The same, a bit per Module.
[[nodiscard]] std::uint64_t adapter_targets(const TrainingChoice& training, const std::vector<ParameterGroup>& groups);
// Whether the embedding or the head is trained: with the whole model, as a copy beside the adapters, or as a new head.
[[nodiscard]] bool trains_outside(const TrainingChoice& training, Module module);
// The tensors of the model that the run trains or reads: a reward model has one output in the place of the vocabulary
// (transformers/modeling_layers.py, GenericForSequenceClassification); multi-token prediction adds modules.
[[nodiscard]] std::vector<ParameterGroup> groups_for(const ModelArchitecture& model, const TrainingChoice& training,
                                                     const WholeModel& whole = {});
// Ranks that cut the matrices of adapters where the model's own are cut: those of tensor parallelism, and of experts.
struct AdapterRanks {
  std::int64_t tensor = 1, expert = 1;
};
// `groups`: those of groups_for.
[[nodiscard]] Inventory take_inventory(const ModelArchitecture& model, const TrainingChoice& training,
                                       const std::vector<ParameterGroup>& groups, AdapterRanks ranks = {});

// The types in which a run holds its numbers.
struct StateTypes {
  WeightFormat base = WeightFormat::bf16;   // block linear weights
  ElementType weights = ElementType::bf16;  // the same when not quantized
  ElementType leftovers = ElementType::bf16;
  ElementType tables = ElementType::bf16;  // of them, embedding and head
  ElementType adapters = ElementType::fp32;
  ElementType compute = ElementType::bf16;
  ElementType optimizer = ElementType::fp32;
};
[[nodiscard]] StateTypes state_types(const TrainingChoice& training, const FrameworkSwitches& framework);

// states/weights.cpp: parameters in one type, of which `experts` are shared by other ranks than the rest.
struct SharedBy {
  std::int64_t ranks = 1, of_experts = 1;
};
void add_shared(Contributions& out, Component component, std::string_view name, Params count, Params experts,
                ElementType type, SharedBy shared);

// states/weights.cpp, states/quantizers.cpp
void add_weights(Contributions& out, const Inventory& inventory, const TrainingChoice& training,
                 const StateTypes& types, const Sharding& sharding);
// A second model, frozen, of the same shape and base type.
void add_reference_weights(Contributions& out, const Inventory& inventory, const StateTypes& types,
                           const Sharding& sharding);
void add_quantization_constants(Contributions& out, const Inventory& inventory, WeightFormat base,
                                std::int64_t shared_by);
[[nodiscard]] BlockFormat storage_of(WeightFormat format);

// states/weights.cpp: the FP32 copy of trained 16-bit weights that the optimizer works on.
void add_master_weights(Contributions& out, const Inventory& inventory, const TrainingChoice& training,
                        const StateTypes& types, const Sharding& sharding);

// states/gradients.cpp: all gradients, as the optimizer finds them.
void add_gradients(Contributions& out, const Inventory& inventory, const StateTypes& types, const Sharding& sharding);
// The same as they are kept from one pass of an accumulation to the next; `unsharded`: type of gradients that have not
// been reduced.
void add_gradients_between_passes(Contributions& out, const Inventory& inventory, const StateTypes& types,
                                  const Sharding& sharding, ElementType unsharded);

// states/megatron.cpp. Matrices of blocks and the head, as kernels multiply them: not routers and tables.
[[nodiscard]] bool is_matrix(const ParameterGroup& group);
// Of modules that are one matrix in Megatron-Core, its name here: q, k and v are, and so are gate and up.
[[nodiscard]] Module joined(Module module);
// Matrices as Megatron-Core has them.
[[nodiscard]] std::vector<ParameterGroup> joined_matrices(const std::vector<ParameterGroup>& groups);
// One of each shape: of them, and of the matrices of adapters.
[[nodiscard]] Params distinct_matrices(const std::vector<ParameterGroup>& groups);
[[nodiscard]] Params distinct_adapters(const Inventory& inventory);
// What Megatron-Core and TransformerEngine keep beside weights and optimizer states.
struct MegatronSetting {
  const ModelArchitecture& part;  // of the model, on this rank
  const Inventory& inventory;
  const StateTypes& types;
  Dim micro_batch = 1, tokens = 1;  // of a sequence, on this rank
  bool gathers_for_head = false;    // the last stage, with sequence parallelism
  ElementType gradients = ElementType::fp32;
  bool fp8_copies = false;  // of weights that are held in 16 bits
  Bytes cublas_workspace;   // of the card
};
void add_megatron_buffers(Contributions& out, const MegatronSetting& setting);

// states/communication.cpp
// Elements of DeepSpeed's buckets.
struct ZeroSizes {
  std::int64_t reduce_bucket = 0, prefetch_bucket = 0;
};
[[nodiscard]] ZeroSizes zero_sizes(const Sharding& sharding, Dim hidden_size);
// Buffers that stay, those of a backward pass, and what reducing adds when all gradients are there.
void add_standing_buffers(Contributions& out, const Inventory& inventory, const StateTypes& types,
                          const Sharding& sharding, const ZeroSizes& sizes);
void add_backward_buffers(Contributions& out, const Inventory& inventory, const StateTypes& types,
                          const Sharding& sharding, const ZeroSizes& sizes);

// states/host.cpp: what one rank keeps in host memory, activations apart.
void add_host_memory(Contributions& out, const Inventory& inventory, const TrainingChoice& training,
                     const FrameworkSwitches& framework, const StateTypes& types, const Sharding& sharding,
                     bool accumulates);

// states/optimizers.cpp: what an optimizer keeps and makes for all trained tensors, before ranks share it. Made once
// for a run; only the ranks change with its size.
struct OptimizerMemory {
  Contributions states;         // in GPU memory; paged states are not
  Contributions expert_states;  // of experts, where they are dealt out
  Contributions whole;          // states that each rank has for itself
  Contributions temporaries;    // of a step that updates all tensors after backward
};
[[nodiscard]] OptimizerMemory optimizer_memory(const Inventory& inventory, const TrainingChoice& training,
                                               const FrameworkSwitches& framework, const StateTypes& types,
                                               bool experts_apart = false);
void add_optimizer_states(Contributions& out, const OptimizerMemory& memory, const Sharding& sharding);
void add_optimizer_temporaries(Contributions& out, const OptimizerMemory& memory, const Inventory& inventory,
                               const StateTypes& types, const Sharding& sharding);
// Of a step that updates each tensor in backward: those of the largest tensor in a block, or of the largest outside.
struct TensorUpdate {
  Bytes temporaries;
  std::int64_t elements = 0;
};
[[nodiscard]] TensorUpdate largest_update(const Inventory& inventory, const TrainingChoice& training,
                                          const FrameworkSwitches& framework, const StateTypes& types, bool in_block);

}  // namespace vramplan
