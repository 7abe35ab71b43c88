// Mixers without a softmax over the past, each in a file of its own.
#include "recurrent.hpp"

namespace vramplan::ops {
namespace {

struct Build {
  Graph& g;
  const BlockContext& c;
  TensorId x;

  TensorId operator()(const ShortConvolution& m) const { return short_convolution(g, c, x, m); }
  TensorId operator()(const GatedDeltaNet& m) const { return gated_delta_net(g, c, x, m); }
  TensorId operator()(const KimiDeltaAttention& m) const { return kimi_delta_attention(g, c, x, m); }
  TensorId operator()(const LightningAttention& m) const { return lightning_attention(g, c, x, m); }
  TensorId operator()(const Mamba1& m) const { return mamba1(g, c, x, m); }
  TensorId operator()(const Mamba2& m) const { return mamba2(g, c, x, m); }
  TensorId operator()(const Attention& m) const { return attention(g, c, x, m); }
  TensorId operator()(const LatentAttention& m) const { return latent_attention(g, c, x, m); }
  TensorId operator()(const CompressedAttention& m) const { return compressed_attention(g, c, x, m); }
};

}  // namespace

TensorId mix(Graph& g, const BlockContext& c, TensorId x, const Mixer& mixer) {
  return std::visit(Build{g, c, x}, mixer);
}

}  // namespace vramplan::ops
