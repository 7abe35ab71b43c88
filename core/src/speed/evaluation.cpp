// Roofline by operation (Williams et al. 2009); tensor, sequence and pipeline parallelism as in Megatron-LM (arXiv
// 2104.04473, 2205.05198); fully sharded data parallelism as in PyTorch (arXiv 2304.11277).
#include "evaluation.hpp"

namespace vramplan {
namespace {

// FlashAttention's backward makes the scores again: five products for the two of forward (arXiv 2307.08691).
constexpr double kFlashBackward = 2.5;
// Bytes moved for a score that is written to memory: written, scaled, masked, softmax in FP32, lowered, read; or one
// kernel for scale, mask and softmax. Backward moves half as much again.
constexpr double kScoreSeparate = 30, kScoreFused = 10;
constexpr double kScoreBackward = 1.5;
// Messages that computation hides slow it all the same, by 13 % of their time (hetu-galvatron, overlap coefficient).
constexpr double kOverlapTax = 0.13;
// Sequence parallelism gathers the inputs once more in backward, for the weight gradients.
constexpr double kSequenceBackward = 1.5;
// A ring of context parallelism sends keys and values on while attention runs: half of it shows.
constexpr double kContextExposed = 0.5;
// Bytes of a gradient and of a weight on their way between ranks, in 16 and in 32 bits.
constexpr double kGradientBytes = 2, kWeightBytes = 2, kWholeBytes = 4;
// Bytes of a weight in few bits with its constants, as sharded ranks send it.
constexpr double kQuantizedBytes = 0.55;
// The processors' memory, which the ranks of a node share while they update weights there.
constexpr double kHostBandwidth = 200e9;

double real(std::int64_t n) { return static_cast<double>(n); }

}  // namespace

Evaluation::Evaluation(const SpeedModel::Prepared& prepared, const LayoutChoice& layout, BatchSize batch,
                       Recompute recompute)
    : p_(prepared), layout_(layout), batch_(batch), recompute_(recompute) {
  const Rates& r = p_.rates;
  const Calibration& c = p_.calibration;
  links_ = {r.scale_up, r.peer, r.network, c.hop_in, c.hop_out, p_.node.domain, p_.node.per_node};
  tp_ = real(layout.tp);
  sp_ = layout.sp ? tp_ : 1;
  pp_ = real(layout.pp);
  ep_ = real(layout.ep);
  expert_cut_ = expert_tensor_ranks(layout);
  etp_ = real(expert_cut_);
  data_ranks_ = layout.dp * layout.cp;
  shards_ = layout.zero > 0 ? layout.shard.value_or(data_ranks_) : 1;
  gathers_ = p_.divides_weights(layout.zero) && shards_ > 1;
  const double sequences = real(batch.micro_batch) * real(sequences_per_sample(p_.training.objective));
  tokens_ = sequences * real(batch.sequence_length) / real(layout.cp);
  const double global = real(p_.training.global_batch.value_or(0));
  micro_batches_ = std::max(1.0, global / (real(batch.micro_batch) * real(layout.dp)));
}

void Evaluation::add(SpeedPhase phase, double seconds, Bound bound) {
  PhaseTime& time = out_.phases[static_cast<std::size_t>(phase)];
  time.seconds += seconds;
  time.bound = bound;
}

// The side that is divided makes a product less square, and tiles at its edges are lost: a side shorter by one tile
// costs as much as one longer by it.
Pass Evaluation::product(const LayerWork& work, const MatrixProduct& p) const {
  double m = tokens_;
  double n = p.column ? p.outputs / tp_ : p.outputs;
  double k = p.row ? p.inputs / tp_ : p.inputs;
  double count = p.count;
  if (p.expert) {
    // EP deals experts out to ranks, which send each other their tokens; those of TP have different ones.
    count = p.copies / ep_;
    m = tokens_ / tp_ * work.routed * ep_ * etp_ / p.copies;
    n = p.outputs / etp_;
  }
  const double tile = p_.calibration.tile;
  const double compute = count * 2 * (m + tile) * (n + tile) * (k + tile) / p_.rates.matmul;
  const double memory = count * p_.element * (m * k + k * n + m * n) / p_.rates.memory;
  return compute >= memory ? Pass{compute, 0, 0} : Pass{0, memory, 0};
}

Pass Evaluation::core(const MixerCore& core) const {
  const double length = real(batch_.sequence_length);
  const double tokens = tokens_ / tp_;
  if (core.scores > 0) {  // both halves of the square
    const double bytes = tokens * length * core.scores * (p_.fused ? kScoreFused : kScoreSeparate);
    return {tokens * core.flops_per_key * length / p_.rates.matmul16, bytes / p_.rates.memory, 0};
  }
  const bool slides = core.window > 0 && core.window < length;
  const double keys = slides ? core.window - core.window * core.window / (2 * length) : length / 2;
  return {tokens * (core.flops_per_key * keys + core.state_flops) / p_.rates.attention, 0, 0};
}

void Evaluation::add_compute(const LayerWork& work, Parts& parts) const {
  Pass products;
  for (const MatrixProduct& p : work.products) products += product(work, p);
  Pass cores;
  for (const MixerCore& c : work.cores) {
    const Pass once = core(c);
    cores += once;
    const double square = c.scores > 0 ? 1.0 : 0.0;
    parts.backward += {once.compute * (square > 0 ? 2 : kFlashBackward), once.memory * kScoreBackward, 0};
  }
  const double memory = p_.rates.memory;
  const double forward = tokens_ * (work.stream.forward / sp_ + work.inner.forward / tp_) / memory;
  const double backward = tokens_ * (work.stream.backward / sp_ + work.inner.backward / tp_) / memory;
  const double host = work.kernels * p_.calibration.launch_seconds + (work.routed > 0 ? p_.shares.routing_seconds : 0);
  products += {0, forward, 0};
  parts.forward += products;
  parts.forward += cores;
  parts.forward.host += host;
  parts.backward += {products.compute * (1 + p_.weight_gradients), backward, host};
  add_recompute(products, cores, parts);
}

// Selective recomputation makes attention again (Megatron's core_attn); torchtitan's keeps that and every second
// product (distributed/activation_checkpoint.py, per-op).
void Evaluation::add_recompute(Pass products, Pass cores, Parts& parts) const {
  switch (recompute_) {
    case Recompute::none: return;
    case Recompute::full: parts.again += parts.forward; return;
    case Recompute::selective: break;
  }
  if (p_.training.framework == FrameworkId::torchtitan) {
    parts.again += {products.compute / 2, products.memory, 0};
  } else {
    parts.again += cores;
  }
}

// Forward gathers and reduces around attention and around the MLP; experts exchange tokens instead.
void Evaluation::add_tensor_messages(const LayerWork& work, Parts& parts) const {
  if (layout_.tp == 1) return;
  const double all_reduce = 2 * gather_seconds(links_, {layout_.tp, 1}, tokens_ * p_.hidden * p_.element);
  const double count = work.routed > 0 && expert_cut_ == 1 ? 1 : 2;
  const double forward = p_.shares.tensor_exposed * count * all_reduce;
  parts.messages += forward;
  parts.messages_back += forward * (layout_.sp ? kSequenceBackward : 1);
}

void Evaluation::add_context_messages(const LayerWork& work, Parts& parts) const {
  if (layout_.cp == 1) return;
  for (const MixerCore& c : work.cores) {
    const double bytes = tokens_ * real(layout_.cp) * c.key_bytes / tp_;
    const double ring = kContextExposed * gather_seconds(links_, {layout_.cp, layout_.tp}, bytes);
    parts.messages += ring;
    parts.messages_back += 2 * ring;
  }
}

// Dispatch and combine. A token goes once to each node that has some of its experts, over the network, and from there
// to the ranks over the fast link (DeepEP); with b nodes and k experts it meets b (1 - (1 - 1/b)^k) of them.
void Evaluation::add_expert_messages(const LayerWork& work, Parts& parts) const {
  if (work.routed == 0 || layout_.ep == 1) return;
  const Reach r = reach(links_, {layout_.ep, expert_cut_});
  const double row = tokens_ / tp_ * p_.hidden * p_.element;
  double missed = 1;
  for (double k = 0; k < work.routed; ++k) missed *= 1 - 1 / r.domains;
  const double inside = row * work.routed * (ep_ - 1) / (ep_ * links_.scale_up);
  const double across = row * (1 - missed) * (r.domains - 1) / links_.network;
  const double both = p_.calibration.expert_exposed * 2 * (std::max(inside, across) + r.latency);
  parts.messages += both;
  parts.messages_back += both;
}

double Evaluation::held_by_rank(const LayerWork& work) const {
  return work.parameters / tp_ + work.expert_parameters / (ep_ * etp_);
}

// Weights in few bits are made whole for each pass; 32-bit ones are lowered; divided ones are fetched while the layer
// before runs, and their gradients leave while the next one runs.
void Evaluation::add_weights(const LayerWork& work, Parts& parts) const {
  const double held = held_by_rank(work);
  const double quantized = work.quantized / tp_;
  const double passes = recompute_ == Recompute::full ? 2 : 1;
  parts.dequantize = quantized * p_.dequantization / p_.rates.memory * (passes + 1);
  if (!gathers_) {
    const Pass cast{0, held * p_.cast / p_.rates.memory, 0};
    parts.forward += cast;
    if (passes > 1) parts.again += cast;
    return;
  }
  const RankGroup group{shards_, layout_.tp};
  const double bytes = (held - quantized) * kWeightBytes + quantized * kQuantizedBytes;
  const double fetch = gather_seconds(links_, group, bytes);
  const double reduce = p_.weight_gradients > 0 ? gather_seconds(links_, group, held * kGradientBytes) : 0;
  const auto exposed = [&](double link, double beside) {
    const double hidden = std::min(link, beside * p_.calibration.data_hidden);
    return link - hidden + kOverlapTax * hidden;
  };
  parts.fetch = exposed(fetch, parts.forward.seconds() + parts.messages);
  const bool again = layout_.reshard.value_or(layout_.zero == 3);
  const double beside = parts.backward.seconds() + parts.again.seconds() + parts.messages_back;
  parts.fetch_back = exposed((again ? fetch : 0) + reduce, beside);
}

Evaluation::Parts Evaluation::layer(const LayerWork& work) const {
  Parts parts;
  add_compute(work, parts);
  add_tensor_messages(work, parts);
  add_context_messages(work, parts);
  add_expert_messages(work, parts);
  if (recompute_ == Recompute::full) parts.messages_again = parts.messages;
  add_weights(work, parts);
  return parts;
}

// Of the layers of an average stage. Backward reaches down to the first layer that trains.
void Evaluation::add_layers() {
  for (const LayerWork& work : p_.groups) {
    const Parts one = layer(work);
    const double n = work.layers / pp_;
    const double back = n * p_.trained_layers;
    body_.forward += one.forward * n;
    body_.backward += one.backward * back;
    body_.again += one.again * back;
    body_.messages += n * one.messages;
    body_.messages_again += back * one.messages_again;
    body_.messages_back += back * one.messages_back;
    body_.fetch += n * one.fetch;
    body_.fetch_back += back * one.fetch_back;
    body_.dequantize += n * one.dequantize;
    dense_ += n * work.parameters / tp_;
    experts_ += n * work.expert_parameters / (ep_ * etp_);
  }
  Parts head;
  add_compute(p_.head, head);
  // The head multiplies in 16 bits whatever the layers do.
  const double slower = p_.rates.matmul / p_.rates.matmul16;
  head_forward_ = Pass{head.forward.compute * slower, head.forward.memory, head.forward.host} * p_.head.layers;
  head_backward_ = Pass{head.backward.compute * slower, head.backward.memory, head.backward.host} * p_.head.layers;
  if (p_.prediction) add_predictions(*p_.prediction);
}

// Modules of multi-token prediction run where the head does.
void Evaluation::add_predictions(const LayerWork& work) {
  const Parts one = layer(work);
  const double n = work.layers;
  head_forward_ += one.forward * n;
  head_backward_ += one.backward * n;
  head_backward_ += one.again * n;
  body_.messages += n * one.messages / pp_;
  body_.messages_back += n * (one.messages_again + one.messages_back) / pp_;
}

// Of one micro-batch: all stages wait for it. Whole layers go to a stage; where they do not come out even, the head
// counts among them (BLOOM's and Llama's pipelines).
double Evaluation::slowest_stage(double body, double head) const {
  if (layout_.pp == 1) return body + head;
  const double chunks = pp_ * real(layout_.vpp);
  const double layers = p_.layers / chunks;
  const double whole = real(static_cast<std::int64_t>(layers));
  if (whole == layers) return body + head;
  const double most = body * (whole + 1) / layers;
  return std::max(most, body + head / pp_);
}

// Stages start one after another, by a chunk of their layers each (interleaved 1F1B).
void Evaluation::add_passes() {
  const double messages = body_.messages + body_.messages_again + body_.messages_back + body_.fetch + body_.fetch_back;
  const double head = head_forward_.seconds() + head_backward_.seconds();
  const double busy = body_.forward.seconds() + body_.backward.seconds() + body_.again.seconds() + body_.dequantize;
  const double body = busy + messages;
  const double mean = body + head / pp_;
  const double slowest = slowest_stage(body, head);
  const double bytes = tokens_ * p_.hidden * p_.element / sp_;
  const double send =
      layout_.pp == 1 ? 0 : 2 * real(layout_.vpp) * point_seconds(links_, layout_.tp * data_ranks_, bytes);
  const double n = micro_batches_;
  add(SpeedPhase::forward, n * (body_.forward.seconds() + head_forward_.seconds() / pp_), body_.forward.bound());
  add(SpeedPhase::backward, n * (body_.backward.seconds() + head_backward_.seconds() / pp_), body_.backward.bound());
  add(SpeedPhase::recompute, n * body_.again.seconds(), body_.again.bound());
  add(SpeedPhase::dequantization, n * body_.dequantize, Bound::memory_bandwidth);
  add(SpeedPhase::communication, n * (messages + send), Bound::link);
  add(SpeedPhase::bubble, n * (slowest - mean) + (mean * pp_ - slowest) / real(layout_.vpp), Bound::bubble);
}

double Evaluation::trained_by_rank() const {
  const double base = p_.trained > 0 ? (dense_ + experts_ + p_.outside / (tp_ * pp_)) * p_.trained_layers : 0;
  return base + p_.adapters / (tp_ * pp_);
}

// A gradient in its own type, and what comes back: a 16-bit weight from Megatron's optimizer, else the sum.
double Evaluation::bytes_between_ranks() const {
  if (p_.training.framework == FrameworkId::megatron) return kWholeBytes + kWeightBytes;
  // core/optimizer/allreduce.py: whole sums in FP32.
  if (p_.training.framework == FrameworkId::scaling) return 2 * kWholeBytes + kWeightBytes;
  return p_.training.base_weights == WeightFormat::fp32 && !gathers_ ? 2 * kWholeBytes : 2 * kGradientBytes;
}

// Gradients are reduced while the last micro-batch's backward runs.
void Evaluation::add_data_parallel() {
  if (data_ranks_ == 1) return;
  const double bytes = bytes_between_ranks();
  double seconds = 0;
  if (gathers_) {  // between the groups that hold all shards
    const RankGroup replicas{data_ranks_ / shards_, layout_.tp * shards_};
    seconds = gather_seconds(links_, replicas, trained_by_rank() / real(shards_) * bytes);
  } else {
    const std::int64_t expert_ranks = expert_data_ranks(layout_);
    const double experts = p_.trained > 0 ? experts_ : 0;
    const double rest = trained_by_rank() - experts;
    seconds = gather_seconds(links_, {data_ranks_, layout_.tp}, rest * bytes) +
              gather_seconds(links_, {expert_ranks, layout_.ep * expert_cut_}, experts * bytes);
  }
  const double beside = (body_.forward.seconds() + body_.backward.seconds()) * p_.calibration.data_hidden;
  const double hidden = std::min(seconds, beside);
  add(SpeedPhase::communication, seconds - hidden + kOverlapTax * hidden, Bound::link);
}

void Evaluation::add_optimizer() {
  const double states = real(layout_.zero > 0 ? shards_ : 1);
  const double seconds = trained_by_rank() / states * p_.optimizer_bytes / p_.rates.memory;
  if (!p_.training.offload.optimizer) add(SpeedPhase::optimizer, seconds, Bound::memory_bandwidth);
  add(SpeedPhase::optimizer, p_.calibration.step_seconds,
      seconds > p_.calibration.step_seconds ? Bound::memory_bandwidth : Bound::host);
}

// Gradients go to the host and weights come back; divided weights that live there come for each pass.
void Evaluation::add_offload() {
  const OffloadChoice& o = p_.training.offload;
  const double shards = real(layout_.zero > 0 ? shards_ : 1);
  const double trained = trained_by_rank() / shards;
  if (o.optimizer || (o.parameters && gathers_)) {
    add(SpeedPhase::offload, trained * (kGradientBytes + kWeightBytes) / p_.rates.pcie, Bound::link);
    const double ranks = real(std::min(p_.node.per_node, ranks_of(layout_)));
    add(SpeedPhase::offload, trained * p_.optimizer_bytes * ranks / kHostBandwidth, Bound::host);
  }
  if (o.parameters) {
    const double held = (dense_ + experts_) / shards;
    add(SpeedPhase::offload, 2 * micro_batches_ * held * kWeightBytes / p_.rates.pcie, Bound::link);
  }
  if (o.activations) {
    const double bytes = 2 * micro_batches_ * tokens_ * p_.hidden * p_.element * p_.layers / pp_;
    add(SpeedPhase::offload, bytes / p_.rates.pcie, Bound::link);
  }
}

void Evaluation::add_reference() {
  if (!p_.training.reference || p_.training.reference == Reference::precomputed) return;
  const Pass forward = body_.forward;
  add(SpeedPhase::reference_forward,
      micro_batches_ * (forward.seconds() + body_.messages + head_forward_.seconds() / pp_), forward.bound());
}

// One token of each answer at a time, for which all weights are read; the answers of a rank are written together.
void Evaluation::add_generation() {
  if (!p_.training.generation) return;
  double read = 0, kernels = 0;
  for (const LayerWork& w : p_.groups) {
    read += w.layers * ((w.parameters - w.quantized) * kWeightBytes + w.quantized * p_.dequantization);
    kernels += w.layers * w.kernels;
  }
  const double memory = read / tp_ / p_.rates.memory;
  const double host = p_.training.generation->engine_share > 0 ? 0 : kernels * p_.calibration.launch_seconds;
  add(SpeedPhase::generation, real(p_.training.generation->completion_length) * std::max(memory, host),
      host > memory ? Bound::host : Bound::memory_bandwidth);
}

double Evaluation::samples() const { return micro_batches_ * real(batch_.micro_batch) * real(layout_.dp); }

void Evaluation::finish() {
  double seconds = 0;
  std::array<double, kBounds> by_bound{};
  for (const PhaseTime& phase : out_.phases) {
    seconds += phase.seconds;
    by_bound[static_cast<std::size_t>(phase.bound)] += phase.seconds;
  }
  out_.bound = static_cast<Bound>(std::max_element(by_bound.begin(), by_bound.end()) - by_bound.begin());
  const double length = real(batch_.sequence_length);
  const double tokens = samples() * real(sequences_per_sample(p_.training.objective)) * length;
  const double ranks = real(ranks_of(layout_));
  const auto band = [&](double value) { return Band{value / p_.error.high, value, value / p_.error.low}; };
  out_.step_seconds = {seconds * p_.error.low, seconds, seconds * p_.error.high};
  out_.tokens_per_second = band(tokens / seconds);
  out_.tokens_per_second_per_gpu = band(tokens / seconds / ranks);
  double attention = 0;
  const auto count = [&](const LayerWork& work) {
    for (const MixerCore& c : work.cores) attention += work.layers * (c.flops_per_key * length / 2 + c.state_flops);
  };
  for (const LayerWork& work : p_.groups) count(work);
  if (p_.prediction) count(*p_.prediction);
  const double passes = 1 + p_.trained_layers * (1 + p_.weight_gradients);
  out_.mfu = passes * (p_.product_flops + attention) * tokens / (seconds * ranks * p_.rates.peak);
}

Speed Evaluation::speed() {
  add_layers();
  add_passes();
  add_data_parallel();
  add_optimizer();
  add_offload();
  add_reference();
  add_generation();
  finish();
  return out_;
}

}  // namespace vramplan
