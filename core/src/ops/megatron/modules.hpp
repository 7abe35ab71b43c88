// Pieces of a Megatron-Core layer: TransformerEngine's modules and what stands between them.
//
// Facts: TransformerEngine 2.11, transformer_engine/pytorch/module/{layernorm_linear,linear,grouped_linear,base}.py and
// attention/; Megatron-LM 23e00ed, megatron/core. Every module is one autograd function; gradients of weights are added
// to FP32 buffers that stand apart (states/megatron.cpp), so that no operation here leaves one.
#pragma once

#include "../builders.hpp"

namespace vramplan::ops::megatron {

// Between the matrices, where ranks of tensor parallelism share the tokens (sequence parallelism).
[[nodiscard]] constexpr Size shared_size(Width width, ElementType type) {
  return token_size(width, type, Symbol::one, Symbol::sp);
}

// Norm and column-parallel matrix in one function; without a norm the matrix alone.
[[nodiscard]] TensorId norm_linear(Graph& g, const BlockContext& c, TensorId x, const Linear& w);
[[nodiscard]] TensorId column_linear(Graph& g, const BlockContext& c, TensorId x, const Linear& w);
[[nodiscard]] TensorId row_linear(Graph& g, const BlockContext& c, TensorId x, const Linear& w);
// Every rank has the whole matrix, and multiplies its own tokens.
[[nodiscard]] TensorId duplicated_linear(Graph& g, const BlockContext& c, TensorId x, const Linear& w);
// Experts' matrices, one after another over rows that lie expert by expert.
[[nodiscard]] TensorId grouped_linear(Graph& g, const BlockContext& c, TensorId x, const Linear& w);

// adapter.cpp: how the ranks cut the matrices of an adapter. `gathered_column`: the input is a rank's part of the
// tokens.
enum class AdapterCut : std::uint8_t { column, gathered_column, row, whole, expert };
[[nodiscard]] bool is_adapted(const BlockContext& c, const Linear& w);
// `base`, what the matrix itself makes of x, with what its adapter adds.
[[nodiscard]] TensorId adapter(Graph& g, const BlockContext& c, TensorId x, TensorId base, const Linear& w,
                               AdapterCut cut);

// A norm that stands alone.
[[nodiscard]] TensorId norm(Graph& g, const BlockContext& c, TensorId x, Symbol rows = Symbol::one);

// Activation and gate, in one function that keeps its input where kernels are fused; `wide` is [gate, up] or what the
// activation takes. `weights`: probabilities of the rows, or none.
[[nodiscard]] TensorId activation(Graph& g, const BlockContext& c, TensorId wide, Size inner, Component component,
                                  TensorId weights);

// Attention over a part of the sequence: the ranks of context parallelism exchange heads for tokens, or pass keys and
// values on in a ring.
[[nodiscard]] TensorId core_attention(Graph& g, const BlockContext& c, Heads heads);

[[nodiscard]] TensorId self_attention(Graph& g, const BlockContext& c, TensorId stream, const Attention& a);
[[nodiscard]] TensorId latent_attention(Graph& g, const BlockContext& c, TensorId stream, const LatentAttention& a);
[[nodiscard]] TensorId dense_mlp(Graph& g, const BlockContext& c, TensorId stream, const DenseMlp& mlp);
[[nodiscard]] TensorId moe_mlp(Graph& g, const BlockContext& c, TensorId stream, const MoeMlp& mlp);

// What is made between two moments of building is made again in backward.
class Again {
 public:
  explicit Again(const Graph& g) : first_(g.ops().size()) {}
  void stop(const Graph& g) {
    end_ = g.ops().size();
    last_ = last(g);
  }
  // A checkpoint around a module keeps its input and gives its output on. When all that keep the output are there.
  void checkpoint(Graph& g) const { g.recompute(first_, end_, last_, false); }
  // A checkpoint that drops its output too, until the gradient of what the last operation made arrives
  // (tensor_parallel/random.py, CheckpointWithoutOutput).
  void drop_output(Graph& g) const { g.recompute(first_, end_, last(g), true); }

 private:
  // The last operation that makes anything.
  static std::size_t last(const Graph& g) {
    std::size_t i = g.ops().size() - 1;
    while (i > 0 && g.ops()[i].output_count == 0) --i;
    return i;
  }
  std::size_t first_, end_ = 0, last_ = 0;
};

}  // namespace vramplan::ops::megatron
