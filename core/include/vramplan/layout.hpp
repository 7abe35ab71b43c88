// Parallel layouts: the part of a model that one rank holds, and how many micro-batches wait there for their backward.
//
// The ranks of a layout are dp x cp x pp x tp. Tensor parallelism (Shoeybi et al. 2019, arXiv 1909.08053) cuts
// matrices, heads and the vocabulary; sequence parallelism (Korthikanti et al. 2022, arXiv 2205.05198) cuts what lies
// between them; context parallelism cuts the sequence; the pipeline cuts the stack into stages, each of one or more
// chunks (Narayanan et al. 2021, arXiv 2104.04473); expert parallelism deals whole experts out to ranks that see other
// data.
#pragma once

#include <cstdint>
#include <vector>

#include "vramplan/enum_names.hpp"
#include "vramplan/model.hpp"
#include "vramplan/request.hpp"
#include "vramplan/result.hpp"

namespace vramplan {

// What a pipeline stage does, layer group by layer group of the model.
struct Stage {
  std::int64_t index = 0;
  bool first = true;        // holds the embedding
  bool last = true;         // holds final norm, head and loss
  std::vector<Dim> held;    // layers
  std::vector<Dim> walked;  // of them, in the chunk through which the newest micro-batch runs
  // Layers times the micro-batches whose activations they keep, beside those of the chunk that is walked.
  std::vector<Dim> waiting;
  Dim embeddings_waiting = 0;  // micro-batches of which the embedding keeps something, beside the newest
};

// Micro-batches of one step on one rank of data parallelism.
[[nodiscard]] Stage stage_of(const ModelArchitecture& model, const LayoutChoice& layout, std::int64_t micro_batches,
                             std::int64_t index);

// Stages of which one holds the most: the first two and the last, and where another kind of layer begins, that one and
// the next. (Of equal layers the first has the most micro-batches in flight; what does not divide evenly begins at the
// second.)
[[nodiscard]] std::vector<std::int64_t> binding_stages(const ModelArchitecture& model, const LayoutChoice& layout);

// Whether a rank holds less than the whole model before data parallelism shares it.
[[nodiscard]] constexpr bool cuts_model(const LayoutChoice& layout) {
  return layout.tp > 1 || layout.pp > 1 || layout.ep > 1;
}

// The model as one rank of the stage holds it: widths, experts and layers of its part. Rows of the vocabulary are
// padded to a multiple of `vocabulary_multiple` x tp.
[[nodiscard]] ModelArchitecture part_of(const ModelArchitecture& model, const LayoutChoice& layout, const Stage& stage,
                                        std::int64_t vocabulary_multiple);

// What check_layout holds a layout to.
enum class LayoutRule : std::uint8_t {
  tp_divides_heads,      // query heads; and key heads, or these divide tp
  tp_divides_widths,     // hidden size and the inner widths of MLPs
  stages_within_layers,  // pp x vpp chunks have a layer each
  chunks_need_stages,    // vpp above 1 wants pp above 1
  ends_share_layers,     // what the ends of a pipeline take divides by vpp, and leaves each other chunk a layer
  ep_divides_experts,
  ep_divides_ranks,  // ep x etp divides the ranks of a stage
};
template <>
struct EnumNames<LayoutRule> {
  static constexpr Names<7> values = {"tp_divides_heads",   "tp_divides_widths", "stages_within_layers",
                                      "chunks_need_stages", "ends_share_layers", "ep_divides_experts",
                                      "ep_divides_ranks"};
};

// Where the layout does not suit the model: one problem a rule, `illegal_layout` at the field, with the rule, the value
// and the nearest legal values below and above.
[[nodiscard]] Problems check_layout(const ModelArchitecture& model, const LayoutChoice& layout);

// The place of a rank in each of its groups.
struct PlacedRank {
  std::int64_t rank = 0, dp = 0, cp = 0, pp = 0, tp = 0, ep = 0;
};

// Nodes whose ranks hold the same parts of the model: the first of them, and how many there are.
struct NodeKind {
  std::int64_t nodes = 0;
  std::vector<PlacedRank> ranks;
};

struct RankMap {
  std::int64_t nodes = 0;
  std::int64_t per_node = 0;
  std::vector<NodeKind> kinds;
};

// Which rank is where, in the order of Megatron (megatron/core/parallel_state.py, "tp-cp-ep-dp-pp") and torchtitan
// (torchtitan/distributed/parallel_dims.py): neighbours share a tensor, then a sequence, then the data; stages are
// furthest apart.
[[nodiscard]] RankMap map_ranks(const LayoutChoice& layout, std::int64_t per_node);

}  // namespace vramplan
