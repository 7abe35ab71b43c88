// The part of a model that one rank holds. Tensor parallelism: heads, inner widths and the vocabulary are dealt out;
// key heads that are fewer than the ranks are held by several of them (Megatron-LM, megatron/core/transformer/
// attention.py, num_query_groups_per_partition).
#include "vramplan/layout.hpp"

namespace vramplan {
namespace {

// Cuts one mixer or MLP to what a rank holds.
struct Cutter {
  const LayoutChoice& layout;

  Dim share(Dim width) const { return divide_up(width, layout.tp); }
  void operator()(Attention& a) const {
    a.heads = share(a.heads);
    a.kv_heads = share(a.kv_heads);
  }
  void operator()(LatentAttention& a) const { a.heads = share(a.heads); }
  void operator()(CompressedAttention& a) const {
    a.heads = share(a.heads);
    a.o_groups = share(a.o_groups);
  }
  void operator()(Mamba1& m) const { m.inner = share(m.inner); }
  void operator()(Mamba2& m) const {
    m.heads = share(m.heads);
    m.groups = share(m.groups);
  }
  void operator()(GatedDeltaNet& m) const {
    m.key_heads = share(m.key_heads);
    m.value_heads = share(m.value_heads);
  }
  void operator()(KimiDeltaAttention& m) const { m.heads = share(m.heads); }
  void operator()(LightningAttention& m) const { m.heads = share(m.heads); }
  void operator()(ShortConvolution&) const {}  // as wide as the stream: whole on each rank
  void operator()(DenseMlp& m) const { m.intermediate_size = share(m.intermediate_size); }
  void operator()(MoeMlp& m) const {
    m.intermediate_size = divide_up(m.intermediate_size, expert_tensor_ranks(layout));
    m.shared_intermediate_size = share(m.shared_intermediate_size);
    m.expert_ranks = layout.ep;
  }
  void operator()(ExtraTensor& extra) const {
    if (extra.embedding && !extra.shape.empty()) extra.shape.front() = share(extra.shape.front());
  }
};

Dim vocabulary_rows(Dim rows, const LayoutChoice& layout, std::int64_t multiple) {
  return divide_up(rows, multiple * layout.tp) * multiple;
}

void cut_vocabulary(ModelArchitecture& part, const LayoutChoice& layout, std::int64_t multiple) {
  part.vocab_size = vocabulary_rows(part.vocab_size, layout, multiple);
  if (part.head_rows > 0) part.head_rows = vocabulary_rows(part.head_rows, layout, multiple);
}

// The first and the last stage each have the table when embedding and head share one.
void cut_ends(ModelArchitecture& part, const Stage& stage) {
  part.holds_embedding = stage.first;
  part.holds_head = stage.last;
  if (!stage.first) part.towers.clear();
  if (!(stage.first && stage.last)) part.tie_word_embeddings = false;
}

}  // namespace

ModelArchitecture part_of(const ModelArchitecture& model, const LayoutChoice& layout, const Stage& stage,
                          std::int64_t vocabulary_multiple) {
  ModelArchitecture part = model;
  if (layout.pp > 1) part.order.clear();  // of the whole model only
  const Cutter cut{layout};
  for (std::size_t i = 0; i < part.groups.size(); ++i) {
    LayerGroup& group = part.groups[i];
    group.count = stage.held[i];
    for (Mixer& mixer : group.mixers) std::visit(cut, mixer);
    for (Mlp& mlp : group.mlps) std::visit(cut, mlp);
    for (ExtraTensor& extra : group.extras) cut(extra);
  }
  for (ExtraTensor& extra : part.extras) cut(extra);
  cut_vocabulary(part, layout, vocabulary_multiple);
  cut_ends(part, stage);
  return part;
}

}  // namespace vramplan
