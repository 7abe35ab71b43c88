// What recurrent layers keep for backward, added up by hand. T is the number of tokens, batch x length.
#include <doctest/doctest.h>

#include "vramplan/ops.hpp"

using namespace vramplan;

namespace {

struct Case {
  Dim hidden;
  Mixer mixer;
  RecurrenceKernel kernel;
  bool unit_offset = false;
  ElementType type = ElementType::bf16;
};

// A block of one mixer and its norm, everything trained in one type without autocast.
Bytes kept(const Case& of, BatchSize batch) {
  ModelArchitecture model;
  model.hidden_size = of.hidden;
  model.norm.unit_offset = of.unit_offset;
  LayerGroup group;
  group.count = 1;
  group.mixers = {of.mixer};
  BlockContext context;
  context.model = &model;
  context.framework.recurrence = of.kernel;
  context.sequence_length = batch.sequence_length;
  context.compute = context.residual = context.weights = context.leftovers = context.tables = context.gradients =
      of.type;
  context.trains_base = context.trains_norms = true;
  const Graph graph = block_graph(context, group, false);
  REQUIRE(!graph.overflowed());
  const SymbolTable table = sized(widths_for(context, &group), context.framework, batch);
  return profile(graph).saved.at(products_of(table));
}

constexpr GatedDeltaNet kQwen3Next{.key_heads = 16,
                                   .key_head_dim = 128,
                                   .value_heads = 32,
                                   .value_head_dim = 128,
                                   .conv_kernel = 4,
                                   .fused_projections = true};

}  // namespace

TEST_CASE("LFM2's short convolution keeps both gates, the convolution's input and its longer output") {
  const Case lfm2{8, ShortConvolution{.kernel = 3}, RecurrenceKernel::composite};
  // T = 20. Norm: input in FP32 640, a statistic a row 80, normed 320, scaled 320. Projection to three widths 960.
  // B * x 320. Convolution 320, and 2 sequences x 8 channels x 2 positions beyond the length 64. C * conv 320.
  CHECK(kept(lfm2, {2, 10}) == Bytes(640 + 80 + 320 + 320 + 960 + 320 + 320 + 64 + 320));
  // causal_conv1d writes no more than the length.
  Case fused = lfm2;
  fused.kernel = RecurrenceKernel::fused;
  CHECK(kept(lfm2, {2, 10}) - kept(fused, {2, 10}) == Bytes(64));
}

TEST_CASE("Gated DeltaNet in PyTorch operations keeps its chunks in FP32") {
  const Case qwen3_next{2048, kQwen3Next, RecurrenceKernel::composite, true};
  // T = 2048, two sequences of 16 chunks of 64. One wide tensor, T x 4096 in 16 bits, is W = 16 MiB; in FP32 it is 2 W.
  constexpr std::int64_t kW = 2048 * 4096 * 2;
  // Joined q, k, v 2 W; convolution 2 W and 2 x 8192 x 3 positions beyond the length. q, k before and after their norm,
  // v and k times beta: 12 W. Pairs inside a chunk, T x 32 x 64 in FP32, are W: decay, two products before it and two
  // after. Solved values and keys, decayed q and k: 8 W. 16 states of 32 x 128 x 128 for two sequences: 4 W. Corrected
  // values 2 W. Gated norm: in FP32 2 W, normed W, scaled W, gate in FP32 2 W, its SiLU 2 W, result W.
  constexpr std::int64_t kWide = (2 + 2 + 12 + 5 + 8 + 4 + 2 + 9) * kW + 2 * 8192 * 3 * 2;
  // A value a head and token, T x 32: sigmoid in 16 bits; in FP32 softplus and its input, two row norms of q and k,
  // beta filled up, three exponentials, the gated norm's statistic. Once a chunk: the decay over it. The mask. exp(A),
  // -exp(A).
  constexpr std::int64_t kHeads = 2048 * 32;
  constexpr std::int64_t kNarrow = kHeads * 2 + 9 * kHeads * 4 + 2 * 16 * 32 * 4 + 64 * 64 + 2 * 32 * 4;
  // The norm before, scaled in FP32: input and normed in FP32, a statistic a row, result.
  constexpr std::int64_t kNorm = 2048 * 2048 * (4 + 4 + 2) + 2048 * 4;
  CHECK(kept(qwen3_next, {2, 1024}) == Bytes(kWide + kNarrow + kNorm));
  CHECK(kWide + kNarrow == 740794624);  // tests/oracle/rows/Qwen3-Next-80B-A3B-Instruct.jsonl, block 0
  // 961 tokens fill 16 chunks as well. What is cut into chunks is as large; the rest, a token: joined q, k, v and the
  // convolution; q and k before their norm; the gated norm; one value a head: sigmoid, softplus and its input, row
  // norms, statistic; the norm before.
  constexpr std::int64_t kToken =
      2 * 8192 * 2 + 2 * 4096 * 4 + 9 * 4096 * 2 + 32 * (2 + 2 * 4 + 2 * 4 + 4) + 2048 * 10 + 4;
  CHECK(kept(qwen3_next, {2, 1024}) - kept(qwen3_next, {2, 961}) == Bytes(2 * 63 * kToken));
}

TEST_CASE("Gated DeltaNet in FP32 copies its inputs for each matrix product") {
  const Case net{2048, kQwen3Next, RecurrenceKernel::composite, true, ElementType::fp32};
  // In W as above: joined q, k, v and the convolution 4 each; q and k before their norm 4; q, k, v, k times beta 8;
  // copies of k times beta, of q and twice of k 8; pairs 5; solved 4; copies of decayed q and k 4; states 4; corrected
  // values 2; gated norm, all of it FP32, 12.
  constexpr std::int64_t kW = 2048 * 4096 * 2;
  constexpr std::int64_t kWide = (4 + 4 + 4 + 8 + 8 + 5 + 4 + 4 + 4 + 2 + 12) * kW + 2 * 8192 * 3 * 4;
  constexpr std::int64_t kNarrow = 10 * 2048 * 32 * 4 + 2 * 16 * 32 * 4 + 64 * 64 + 2 * 32 * 4;
  constexpr std::int64_t kNorm = 2048 * 2048 * (4 + 4 + 4) + 2048 * 4;
  CHECK(kept(net, {2, 1024}) == Bytes(kWide + kNarrow + kNorm));
}

TEST_CASE("fla's kernel for Gated DeltaNet keeps its inputs and one matrix a chunk") {
  const Case net{16,
                 GatedDeltaNet{.key_heads = 1,
                               .key_head_dim = 8,
                               .value_heads = 2,
                               .value_head_dim = 4,
                               .conv_kernel = 4,
                               .fused_projections = false},
                 RecurrenceKernel::fused};
  // T = 100. Norm of width 16: 6400 + 400 + 3200 + 3200.
  std::int64_t bytes = 13200;
  bytes += 100 * 24 * 2;                       // input of the convolution: q, k and v
  bytes += 2 * (100 * 8 * 2 + 100 * 4);        // q and k normalized, a statistic a row and head of keys
  bytes += 100 * 8 * 2;                        // v
  bytes += 100 * 2 * (4 + 2 + 64 * 2);         // cumulative decay, beta, 64 numbers a head and token
  bytes += 100 * 2 * 4 * 2 + 2 * 4 * 2;        // softplus and its input; exp(A) and -exp(A)
  bytes += 100 * 8 * (4 + 2 + 2 + 4 + 4 + 2);  // gated norm: FP32, normed, scaled, gate in FP32, SiLU, result
  bytes += 100 * 2 * 4;                        // its statistic
  CHECK(kept(net, {1, 100}) == Bytes(bytes));
}

TEST_CASE("mamba_ssm's chunked scan keeps its inputs, its output and the decays") {
  const Case mamba{16,
                   Mamba2{.heads = 2, .head_dim = 4, .groups = 1, .state_size = 8, .conv_kernel = 4, .chunk_size = 64},
                   RecurrenceKernel::fused};
  std::int64_t bytes = 13200;          // norm of width 16
  bytes += 100 * 34 * 2;               // projection: gate 8, value 8, B 8, C 8, step 2
  bytes += 100 * 24 * 2;               // convolved value, B and C
  bytes += 100 * 8 * 2;                // output of the scan
  bytes += 2 * 64 * 2 * 4;             // decays: two chunks of 64 positions, two heads
  bytes += 100 * 8 * 4 * 4;            // gated norm in FP32: scan, gate, its SiLU, their product
  bytes += 100 * 4;                    // a statistic a group
  bytes += 100 * 8 * 2 + 100 * 8 * 2;  // normed and scaled
  CHECK(kept(mamba, {1, 100}) == Bytes(bytes));
}
