// One layout and batch: the seconds of a step, part by part.
#pragma once

#include <algorithm>

#include "vramplan/layout.hpp"
#include "vramplan/links.hpp"
#include "vramplan/speed.hpp"

namespace vramplan {

// What the kernels of a pass wait for. Products and element-wise kernels follow each other, so that their seconds add
// up; the host starts them in the meantime.
struct Pass {
  double compute = 0, memory = 0, host = 0;
  Pass& operator+=(const Pass& other) {
    compute += other.compute;
    memory += other.memory;
    host += other.host;
    return *this;
  }
  friend Pass operator*(const Pass& p, double n) { return {p.compute * n, p.memory * n, p.host * n}; }
  [[nodiscard]] double seconds() const { return std::max(compute + memory, host); }
  [[nodiscard]] Bound bound() const {
    if (host > compute + memory) return Bound::host;
    return compute >= memory ? Bound::compute : Bound::memory_bandwidth;
  }
};

class Evaluation {
 public:
  Evaluation(const SpeedModel::Prepared& prepared, const LayoutChoice& layout, BatchSize batch, Recompute recompute);
  [[nodiscard]] Speed speed();

 private:
  // Seconds of one layer, or of the layers of a rank, for one micro-batch.
  struct Parts {
    Pass forward, backward, again;
    double messages = 0, messages_again = 0, messages_back = 0;  // of TP, CP and EP, exposed
    double fetch = 0, fetch_back = 0;                            // of divided weights and their gradients, exposed
    double dequantize = 0;
  };
  [[nodiscard]] Pass product(const LayerWork& work, const MatrixProduct& p) const;
  [[nodiscard]] Pass core(const MixerCore& core) const;
  [[nodiscard]] Parts layer(const LayerWork& work) const;
  void add_compute(const LayerWork& work, Parts& parts) const;
  void add_recompute(Pass products, Pass cores, Parts& parts) const;
  void add_tensor_messages(const LayerWork& work, Parts& parts) const;
  void add_context_messages(const LayerWork& work, Parts& parts) const;
  void add_expert_messages(const LayerWork& work, Parts& parts) const;
  void add_weights(const LayerWork& work, Parts& parts) const;
  [[nodiscard]] double held_by_rank(const LayerWork& work) const;
  void add_layers();
  void add_predictions(const LayerWork& work);
  [[nodiscard]] double slowest_stage(double body, double head) const;
  void add_passes();
  [[nodiscard]] double bytes_between_ranks() const;
  void add_data_parallel();
  void add_optimizer();
  void add_offload();
  void add_reference();
  void add_generation();
  void finish();
  void add(SpeedPhase phase, double seconds, Bound bound);
  [[nodiscard]] double trained_by_rank() const;
  [[nodiscard]] double samples() const;

  const SpeedModel::Prepared& p_;
  const LayoutChoice& layout_;
  BatchSize batch_;
  Recompute recompute_;
  Links links_;
  double tp_ = 1, sp_ = 1, pp_ = 1, ep_ = 1, etp_ = 1;
  std::int64_t data_ranks_ = 1, shards_ = 1, expert_cut_ = 1;
  bool gathers_ = false;
  double tokens_ = 1;  // of one micro-batch on one rank
  double micro_batches_ = 1;
  double dense_ = 0, experts_ = 0;  // parameters of the layers that a rank holds
  Parts body_;
  Pass head_forward_, head_backward_;
  Speed out_;
};

}  // namespace vramplan
