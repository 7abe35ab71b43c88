// Graphs of one model and training, built once for all layouts, stages and batches that share them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "vramplan/ops.hpp"

namespace vramplan {

// Attention windows that a sequence fills: what a graph knows of its length.
[[nodiscard]] Dim filled_windows(const ModelArchitecture& model, Dim sequence_length);

struct BuiltGraph {
  Graph graph;
  BlockProfile profile;
};

// Contexts are those of parts of one model (layout.hpp) under one training, whose parts follow from how many ranks cut
// it; the layers of a group, and whether a part has the ends, differ by stage and change no graph but those of the
// ends.
class GraphSet {
 public:
  using Built = std::shared_ptr<const BuiltGraph>;

  [[nodiscard]] Built embedding(const BlockContext& context, const GradientPolicy& policy);
  [[nodiscard]] Built block(const BlockContext& context, std::size_t group, bool checkpointed,
                            const GradientPolicy& policy);
  [[nodiscard]] Built head(const BlockContext& context, const GradientPolicy& policy);

 private:
  enum class Kind : std::uint8_t { embedding, block, checkpointed_block, head };
  struct Key {
    Kind kind;
    std::size_t group;
    Dim expert_ranks, filled_windows;
    bool tied;
    GradientPolicy policy;
    BlockContext context;  // without its model and length
    friend bool operator==(const Key&, const Key&) = default;
  };
  [[nodiscard]] static Key key_of(Kind kind, std::size_t group, const BlockContext& context,
                                  const GradientPolicy& policy);
  template <class Build>
  [[nodiscard]] Built find_or_build(const Key& key, Build build);

  std::vector<std::pair<Key, Built>> known_;
};

}  // namespace vramplan
