// How long one training step takes and what binds it: an estimate, always with its band.
//
// Each operation takes the longer of its FLOPs over an achievable rate and its bytes over the memory's bandwidth; each
// message its bytes over the link that its ranks share, as far as no computation hides it; then recomputation, the
// pipeline's bubble, the optimizer, offloading and dequantization. What cards, links and frameworks really reach is one
// table (calibration.hpp), fitted on published runs. The only stage that computes in doubles: + - * / alone.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "vramplan/calibration.hpp"
#include "vramplan/catalogue.hpp"
#include "vramplan/enum_names.hpp"
#include "vramplan/model.hpp"
#include "vramplan/ops.hpp"
#include "vramplan/request.hpp"

namespace vramplan {

// Nine runs in ten fall between low and high.
struct Band {
  double low = 0, expected = 0, high = 0;
};

// host: the processor that starts the kernels, or its memory.
enum class Bound : std::uint8_t { compute, memory_bandwidth, link, bubble, host };
inline constexpr std::size_t kBounds = 5;
template <>
struct EnumNames<Bound> {
  static constexpr Names<kBounds> values = {"compute", "memory_bandwidth", "link", "bubble", "host"};
};

// Parts of a step; they add up to it. communication: what no computation hides.
enum class SpeedPhase : std::uint8_t {
  generation,
  forward,
  reference_forward,
  recompute,
  backward,
  dequantization,
  communication,
  bubble,
  optimizer,
  offload
};
inline constexpr std::size_t kSpeedPhases = 10;
template <>
struct EnumNames<SpeedPhase> {
  static constexpr Names<kSpeedPhases> values = {"generation", "forward",        "reference_forward", "recompute",
                                                 "backward",   "dequantization", "communication",     "bubble",
                                                 "optimizer",  "offload"};
};

struct PhaseTime {
  double seconds = 0;
  Bound bound = Bound::compute;
};

struct Speed {
  Band step_seconds;
  Band tokens_per_second;  // of the whole run
  Band tokens_per_second_per_gpu;
  double mfu = 0;                // FLOPs of the model, nothing twice, over the card's dense peak in the run's precision
  Bound bound = Bound::compute;  // what most of the step waits for
  std::array<PhaseTime, kSpeedPhases> phases{};
  [[nodiscard]] const PhaseTime& operator[](SpeedPhase p) const { return phases[static_cast<std::size_t>(p)]; }
};

// A number of tokens at that speed. Energy is of the cards at their rated power: a ceiling for them; the rest of the
// machine comes on top. 0 when the rated power is not published.
struct Budget {
  double tokens = 0;
  Band days;
  double energy_kwh = 0;
};
[[nodiscard]] Budget budget_of(const Speed& speed, double tokens, const Gpu& gpu, std::int64_t gpus);

// How the GPUs of a run are joined.
struct NodeShape {
  std::int64_t per_node = 8;
  std::int64_t domain = 8;                // GPUs that the scale-up link joins; 1: PCIe alone
  double network_gbit_per_s_per_gpu = 0;  // one direction
};
// `network`: what is known of it; absent: as in the reference design of the card's generation.
[[nodiscard]] NodeShape node_shape(const Gpu& gpu, std::int64_t per_node, std::optional<double> network);

// Why there is no estimate: no_rate (nobody published how fast the card multiplies in this precision), no_bandwidth.
[[nodiscard]] std::optional<std::string_view> speed_refusal(const Gpu& gpu, const TrainingChoice& training);

// Tokens by `inputs` by `outputs`, `count` times a token.
struct MatrixProduct {
  double inputs = 0, outputs = 0, count = 1;
  bool column = false, row = false;  // TP divides the outputs, or the inputs
  bool expert = false;               // one of `copies` that share the tokens
  double copies = 1;
};

// Attention over a context, or a recurrence. Of one token, all heads, forward.
struct MixerCore {
  double flops_per_key = 0;
  double window = 0;       // keys that a query sees at most; 0: all before it
  double state_flops = 0;  // of a recurrence
  double scores = 0;       // heads whose scores are written to memory
  double key_bytes = 0;    // of keys and values: what context parallelism sends
};

// Bytes that element-wise kernels move for a token, forward and backward.
struct Traffic {
  double forward = 0, backward = 0;
};

// What one layer of a group does; or the head.
struct LayerWork {
  double layers = 1;
  std::vector<MatrixProduct> products;
  std::vector<MixerCore> cores;
  Traffic stream;         // of the residual stream: SP divides it
  Traffic inner;          // of heads and MLP: TP divides it
  double kernels = 0;     // started in one forward
  double parameters = 0;  // of one layer, experts apart
  double expert_parameters = 0;
  double quantized = 0;  // parameters in few bits
  double routed = 0;     // experts that a token meets; 0: no mixture
};

// What a card reaches in a run: FLOP/s and bytes/s.
struct Rates {
  double peak = 0;  // on paper, in the run's precision
  double matmul = 0, matmul16 = 0, attention = 0;
  double memory = 0;
  // To another card of the domain, to another one of the node, to host memory, to another node.
  double scale_up = 0, peer = 0, pcie = 0, network = 0;
};

class SpeedModel {
 public:
  // `training` with its defaults resolved; `gpu` not refused. All that no layout changes is worked out here.
  SpeedModel(const ModelArchitecture& model, const TrainingChoice& training, const Gpu& gpu, const NodeShape& node,
             const Calibration& calibration = kCalibration);

  // A legal layout. The global batch is that of the training; absent: one micro-batch of every rank.
  [[nodiscard]] Speed operator()(const LayoutChoice& layout, BatchSize batch) const {
    return (*this)(layout, batch, prepared_.training.recompute);
  }
  // Other recomputation than that of the training.
  [[nodiscard]] Speed operator()(const LayoutChoice& layout, BatchSize batch, Recompute recompute) const;

  // Read by the evaluation of a layout (src/speed).
  struct Prepared {
    TrainingChoice training;
    NodeShape node;
    Calibration calibration;
    FamilyRates shares;
    Rates rates;
    ErrorBand error;
    bool fused = false;
    std::vector<LayerWork> groups;
    LayerWork head;
    std::optional<LayerWork> prediction;  // of a module of multi-token prediction; `layers` of them
    double layers = 0, hidden = 0;
    double outside = 0;           // parameters of embedding, head and final norm
    double trained = 0;           // parameters of the model that train
    double adapters = 0;          // parameters of adapters and copies
    double trained_layers = 1;    // share of layers that backward walks
    double weight_gradients = 0;  // 1: products make them, 0: frozen
    double product_flops = 0;     // of one token, forward, of all products
    double element = 2;           // bytes of one element of the residual stream
    double dequantization = 0;    // bytes moved to make one weight
    double cast = 0;              // bytes moved to make a 16-bit copy of one weight for a pass
    double optimizer_bytes = 0;   // moved for one trained parameter
    [[nodiscard]] bool divides_weights(std::int64_t stage) const;  // of ZeRO
  };

 private:
  Prepared prepared_;
};

}  // namespace vramplan
