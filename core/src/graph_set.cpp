#include "vramplan/graph_set.hpp"

#include <algorithm>
#include <cstdint>
#include <variant>

namespace vramplan {
namespace {

Dim expert_ranks(const ModelArchitecture& model) {
  for (const LayerGroup& group : model.groups) {
    for (const Mlp& mlp : group.mlps) {
      if (const auto* moe = std::get_if<MoeMlp>(&mlp)) return moe->expert_ranks;
    }
  }
  return 1;
}

}  // namespace

Dim filled_windows(const ModelArchitecture& model, Dim sequence_length) {
  Dim filled = 0;
  for (const LayerGroup& group : model.groups) {
    for (const Mixer& mixer : group.mixers) {
      const auto* attention = std::get_if<Attention>(&mixer);
      if (attention != nullptr && attention->window > 0 && sequence_length >= attention->window) ++filled;
    }
  }
  return filled;
}

GraphSet::Key GraphSet::key_of(Kind kind, std::size_t group, const BlockContext& context,
                               const GradientPolicy& policy) {
  const bool is_end = kind == Kind::embedding || kind == Kind::head;
  Key key{kind,
          group,
          expert_ranks(*context.model),
          filled_windows(*context.model, context.sequence_length),
          is_end && context.model->tie_word_embeddings,
          policy,
          context};
  key.context.model = nullptr;
  key.context.sequence_length = 0;
  return key;
}

template <class Build>
GraphSet::Built GraphSet::find_or_build(const Key& key, Build build) {
  const auto known = std::find_if(known_.begin(), known_.end(), [&](const auto& entry) { return entry.first == key; });
  if (known != known_.end()) return known->second;
  Graph graph = build();
  BlockProfile profiled = profile(graph, key.policy);
  known_.emplace_back(key, std::make_shared<const BuiltGraph>(BuiltGraph{std::move(graph), std::move(profiled)}));
  return known_.back().second;
}

GraphSet::Built GraphSet::embedding(const BlockContext& context, const GradientPolicy& policy) {
  return find_or_build(key_of(Kind::embedding, 0, context, policy), [&] { return embedding_graph(context); });
}

GraphSet::Built GraphSet::block(const BlockContext& context, std::size_t group, bool checkpointed,
                                const GradientPolicy& policy) {
  const Kind kind = checkpointed ? Kind::checkpointed_block : Kind::block;
  return find_or_build(key_of(kind, group, context, policy),
                       [&] { return block_graph(context, context.model->groups[group], checkpointed); });
}

GraphSet::Built GraphSet::head(const BlockContext& context, const GradientPolicy& policy) {
  return find_or_build(key_of(Kind::head, 0, context, policy), [&] { return head_graph(context); });
}

}  // namespace vramplan
