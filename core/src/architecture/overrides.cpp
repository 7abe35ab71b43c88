#include "overrides.hpp"

#include <algorithm>
#include <numeric>

namespace vramplan {
namespace {

// Calls f for every mixer or MLP of one of these kinds.
template <class... Kinds, class F>
void each_mixer(ModelArchitecture& m, F f) {
  for (LayerGroup& group : m.groups) {
    for (Mixer& mixer : group.mixers) {
      const auto visit = [&](auto* kind) {
        if (kind != nullptr) f(*kind);
      };
      (visit(std::get_if<Kinds>(&mixer)), ...);
    }
  }
}

template <class Kind, class F>
void each_mlp(ModelArchitecture& m, F f) {
  for (LayerGroup& group : m.groups) {
    for (Mlp& mlp : group.mlps) {
      if (auto* kind = std::get_if<Kind>(&mlp)) f(*kind);
    }
  }
}

template <class F>
void each_extra(ModelArchitecture& m, F f) {
  std::for_each(m.extras.begin(), m.extras.end(), f);
  for (LayerGroup& group : m.groups) std::for_each(group.extras.begin(), group.extras.end(), f);
}

// One number that several layers have, perhaps with different values (64 query heads in full layers and 96 in sliding
// ones): the first takes the new value and the others keep their proportion to it.
class Rescale {
 public:
  explicit Rescale(Dim target) : target_(target) {}
  void operator()(Dim& value) {
    if (first_ == 0) first_ = value;
    if (first_ != 0) value = std::max<Dim>(1, saturating_add(saturating_multiply(value, target_), first_ / 2) / first_);
  }
  [[nodiscard]] bool found() const { return first_ != 0; }

 private:
  Dim target_;
  Dim first_ = 0;
};

// A size inside a shape (a vocabulary, a width) follows the number that it stands for.
void replace_size(ExtraTensor& extra, Dim old_size, Dim new_size) {
  std::replace(extra.shape.begin(), extra.shape.end(), old_size, new_size);
}

void set_hidden_size(Dim hidden, ModelArchitecture& m) {
  const Dim old_hidden = m.hidden_size;
  each_extra(m, [=](ExtraTensor& extra) { replace_size(extra, old_hidden, hidden); });
  const auto follow = [=](auto& mixer) {
    if (mixer.indexer && mixer.indexer->query_input == old_hidden) mixer.indexer->query_input = hidden;
  };
  each_mixer<Attention, LatentAttention>(m, follow);
  // Mamba's channels are a multiple of the width.
  each_mixer<Mamba1>(m, [=](Mamba1& mamba) {
    if (old_hidden > 0) mamba.inner = std::max<Dim>(1, saturating_multiply(mamba.inner, hidden) / old_hidden);
  });
  m.hidden_size = hidden;
}

void set_vocab_size(Dim vocabulary, ModelArchitecture& m) {
  const Dim old_vocabulary = m.vocab_size;
  each_extra(m, [=](ExtraTensor& extra) {
    if (extra.embedding) replace_size(extra, old_vocabulary, vocabulary);
  });
  // Extra rows of the embedding (Llama 3.2 Vision) stay extra.
  if (m.head_rows > 0) m.head_rows = std::max<Dim>(1, vocabulary - (old_vocabulary - m.head_rows));
  m.vocab_size = vocabulary;
}

// Learned position tables grow with the context; OPT's two spare rows stay.
void set_max_position_embeddings(Dim positions, ModelArchitecture& m) {
  if (m.position_rows > 0) m.position_rows = std::max<Dim>(1, m.position_rows + positions - m.max_position_embeddings);
  m.max_position_embeddings = positions;
}

bool set_attention_heads(Dim heads, bool key_heads_follow, ModelArchitecture& m) {
  Rescale rescale(heads);
  each_mixer<Attention, LatentAttention, CompressedAttention>(m, [&](auto& mixer) {
    const Dim before = mixer.heads;
    rescale(mixer.heads);
    if constexpr (requires { mixer.kv_heads; }) {
      // Multi-head attention stays multi-head unless the request says otherwise.
      if (key_heads_follow && mixer.kv_heads == before) mixer.kv_heads = mixer.heads;
    }
  });
  return rescale.found();
}

bool set_key_value_heads(Dim heads, ModelArchitecture& m) {
  Rescale rescale(heads);
  each_mixer<Attention>(m, [&](Attention& a) { rescale(a.kv_heads); });
  return rescale.found();
}

bool set_head_dim(Dim head_dim, ModelArchitecture& m) {
  Rescale rescale(head_dim);
  each_mixer<Attention>(m, [&](Attention& a) {
    const bool same = v_head_dim_of(a) == a.head_dim;
    rescale(a.head_dim);
    if (same) a.v_head_dim = a.head_dim;
  });
  return rescale.found();
}

bool set_intermediate_size(Dim width, ModelArchitecture& m) {
  Rescale rescale(width);
  each_mlp<DenseMlp>(m, [&](DenseMlp& mlp) { rescale(mlp.intermediate_size); });
  return rescale.found();
}

bool set_moe_intermediate_size(Dim width, ModelArchitecture& m) {
  Rescale rescale(width);
  each_mlp<MoeMlp>(m, [&](MoeMlp& mlp) { rescale(mlp.intermediate_size); });
  return rescale.found();
}

bool set_experts(Dim experts, ModelArchitecture& m) {
  Rescale rescale(experts);
  each_mlp<MoeMlp>(m, [&](MoeMlp& mlp) { rescale(mlp.experts); });
  return rescale.found();
}

bool is_dense(const LayerGroup& group) {
  return std::all_of(group.mlps.begin(), group.mlps.end(),
                     [](const Mlp& mlp) { return std::holds_alternative<DenseMlp>(mlp); });
}

// Groups before the first mixture of experts when they are only a few layers (DeepSeek's first_k_dense_replace: one to
// six). Models that alternate dense and expert layers all the way (Jamba, Llama 4 Maverick) have none.
std::size_t leading_dense_groups(const ModelArchitecture& m) {
  std::size_t groups = 0;
  Dim layers = 0;
  while (groups < m.groups.size() && is_dense(m.groups[groups])) layers += m.groups[groups++].count;
  const bool experts_follow = groups < m.groups.size();
  return experts_follow && layers * 8 <= layers_of(m) ? groups : 0;
}

// Shares `layers` among groups in proportion to their counts: largest remainder, ties to the earlier group.
void apportion(std::vector<LayerGroup>& groups, std::size_t first, Dim layers) {
  Dim all = 0;
  for (std::size_t i = first; i < groups.size(); ++i) all += groups[i].count;
  if (all == 0) return;
  std::vector<Dim> remainders(groups.size(), 0);
  Dim given = 0;
  for (std::size_t i = first; i < groups.size(); ++i) {
    const Dim share = saturating_multiply(groups[i].count, layers);
    groups[i].count = share / all;
    remainders[i] = share % all;
    given += groups[i].count;
  }
  std::vector<std::size_t> order(groups.size() - first);
  std::iota(order.begin(), order.end(), first);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
  for (std::size_t i = 0; given < layers; ++i, ++given) ++groups[order[i]].count;
}

// A model whose groups take turns keeps the turns, from the first layer on.
void set_layers_in_turn(Dim layers, ModelArchitecture& m) {
  const std::vector<Dim> counts = first_layers(m, layers);
  if (static_cast<Dim>(m.order.size()) > layers) m.order.resize(static_cast<std::size_t>(layers));
  for (std::size_t i = m.groups.size(); i-- > 0;) {
    m.groups[i].count = counts[i];
    if (counts[i] > 0) continue;
    m.groups.erase(m.groups.begin() + static_cast<std::ptrdiff_t>(i));
    for (Dim& group : m.order) group -= group > static_cast<Dim>(i) ? 1 : 0;
  }
}

void set_layers(Dim layers, ModelArchitecture& m) {
  const Dim old_layers = layers_of(m);
  // A table of per-layer embeddings and its projection hold a slice a layer (Gemma 3n and 4).
  for (ExtraTensor& extra : m.extras) replace_size(extra, old_layers, layers);
  if (!m.order.empty()) return set_layers_in_turn(layers, m);
  const std::size_t leading = leading_dense_groups(m);
  Dim left = layers;
  for (std::size_t i = 0; i < leading; ++i) {
    m.groups[i].count = std::min(m.groups[i].count, left);
    left -= m.groups[i].count;
  }
  apportion(m.groups, leading, left);
  std::erase_if(m.groups, [](const LayerGroup& group) { return group.count == 0; });
}

}  // namespace

void apply_overrides(const ModelOverrides& o, const std::string& prefix, ModelArchitecture& m, Problems& problems) {
  const auto expect = [&](bool found, const char* field) {
    if (found) return;
    problems.push_back({ProblemCode::inconsistent, prefix + '/' + field, {{"field", field}, {"other", "model"}}});
  };
  if (o.num_hidden_layers) set_layers(*o.num_hidden_layers, m);
  if (o.hidden_size) set_hidden_size(*o.hidden_size, m);
  if (o.vocab_size) set_vocab_size(*o.vocab_size, m);
  if (o.max_position_embeddings) set_max_position_embeddings(*o.max_position_embeddings, m);
  if (o.tie_word_embeddings) m.tie_word_embeddings = *o.tie_word_embeddings;
  if (o.text_only.value_or(false)) m.towers.clear();
  if (o.num_attention_heads) {
    expect(set_attention_heads(*o.num_attention_heads, !o.num_key_value_heads, m), "num_attention_heads");
  }
  if (o.num_key_value_heads) expect(set_key_value_heads(*o.num_key_value_heads, m), "num_key_value_heads");
  if (o.head_dim) expect(set_head_dim(*o.head_dim, m), "head_dim");
  if (o.intermediate_size) expect(set_intermediate_size(*o.intermediate_size, m), "intermediate_size");
  if (o.num_experts) expect(set_experts(*o.num_experts, m), "num_experts");
  if (o.moe_intermediate_size) expect(set_moe_intermediate_size(*o.moe_intermediate_size, m), "moe_intermediate_size");
}

}  // namespace vramplan
