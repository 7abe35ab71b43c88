#include "vramplan/memory.hpp"

#include <algorithm>

#include "vramplan/accuracy.hpp"
#include "vramplan/device.hpp"

namespace vramplan {
namespace {

// Reserved over allocated in thousandths, the same run read twice: 1.007 to 1.093, median 1.038 on steady shapes
// (source: reserved-over-allocated), where no rule says that the allocator holds more (Step::Highest).
constexpr std::int64_t kReservedLow = 1007;
constexpr std::int64_t kReservedExpected = 1038;
constexpr std::int64_t kReservedHigh = 1093;

Bytes thousandths(Bytes bytes, std::int64_t n) {
  // Divide first where the product would saturate: byte counts stay far below 2^53 there.
  return bytes.value > kSaturated / n ? Bytes(kSaturated) : Bytes(bytes.value * n / 1000);
}

struct Trust {
  Certainty certainty;
  std::string_view source;
};

Trust trust_of(Component component) {
  switch (component) {
    case Component::weights:
    case Component::frozen_weights:
    case Component::gradients: return {Certainty::exact, "pytorch-autograd"};
    case Component::adapters:
    case Component::activations_adapter: return {Certainty::modelled, "peft-lora"};
    case Component::quantization_constants:
    case Component::dequantized_weights: return {Certainty::exact, "bitsandbytes-functional"};
    case Component::master_weights: return {Certainty::exact, "pytorch-optim"};
    case Component::optimizer_states:
    case Component::optimizer_temporaries: return {Certainty::modelled, "pytorch-optim"};
    case Component::buffers: return {Certainty::exact, "pytorch-autograd"};
    case Component::cublas_workspace: return {Certainty::measured, device::kCublasSource};
    case Component::autocast_weights: return {Certainty::modelled, "pytorch-autocast"};
    case Component::gathered_parameters: return {Certainty::modelled, "pytorch-fsdp"};
    case Component::communication_buffers: return {Certainty::modelled, "pytorch-ddp"};
    case Component::checkpoints: return {Certainty::modelled, "pytorch-checkpoint"};
    case Component::allocator_slack: return {Certainty::measured, "reserved-over-allocated"};
    case Component::cuda_context: return {Certainty::measured, device::kContextSource};
    case Component::nccl_buffers: return {Certainty::measured, device::kNcclSource};
    case Component::kv_cache: return {Certainty::modelled, "trl-trainers"};
    case Component::inference_engine: return {Certainty::modelled, "trl-trainers"};
    case Component::activations_embedding:
    case Component::activations_norm:
    case Component::activations_attention:
    case Component::activations_mlp:
    case Component::activations_moe:
    case Component::activations_ssm:
    case Component::activations_residual:
    case Component::logits:
    case Component::activation_gradients:
    case Component::working_memory: return {Certainty::modelled, "transformers-modeling"};
  }
  return {Certainty::modelled, "pytorch-autograd"};
}

// What the engine of data parallelism decides.
constexpr std::string_view kDeepspeedSource = "deepspeed-zero";
bool is_sharding(Component c) {
  return c == Component::master_weights || c == Component::gathered_parameters || c == Component::communication_buffers;
}

bool same_shape(const Contribution& a, const Contribution& b) {
  if (a.multiplier != b.multiplier || a.divisor != b.divisor || a.factor_count != b.factor_count) return false;
  for (std::size_t i = 0; i < a.factor_count; ++i) {
    if (a.factors[i].name != b.factors[i].name || a.factors[i].value != b.factors[i].value) return false;
  }
  return true;
}

// Writes contributions as one expression. A symbol that stands for two values in it gets a number: f, f_2.
class NotationWriter {
 public:
  explicit NotationWriter(ComponentRow& row) : row_(row) {}

  void add(const Contribution& c) {
    if (!row_.notation.empty()) row_.notation += " + ";
    std::string product;
    for (std::size_t i = 0; i < c.factor_count; ++i) multiply(product, symbol(c.factors[i]));
    if (c.divisor > 1) product.insert(0, "ceil(").append("/").append(symbol({"N", c.divisor})).append(")");
    std::string term;
    if (c.count != 1) multiply(term, std::to_string(c.count));
    multiply(term, product);
    if (c.multiplier != 1 || term.empty()) multiply(term, std::to_string(c.multiplier));
    row_.notation += term;
  }

 private:
  static void multiply(std::string& product, const std::string& factor) {
    if (factor.empty()) return;
    if (!product.empty()) product += "*";
    product += factor;
  }
  std::string symbol(const Factor& factor) {
    for (int n = 1;; ++n) {
      std::string name(factor.name);
      if (n > 1) name.append("_").append(std::to_string(n));
      const auto known =
          std::find_if(row_.terms.begin(), row_.terms.end(), [&](const Term& t) { return t.symbol == name; });
      if (known == row_.terms.end()) {
        row_.terms.push_back({name, factor.value});
        return name;
      }
      if (known->value == factor.value) return name;
    }
  }

  ComponentRow& row_;
};

ComponentRow row_of(Component component, const std::vector<Contribution>& all) {
  std::vector<Contribution> merged;
  for (const Contribution& c : all) {
    if (c.component != component) continue;
    const auto same =
        std::find_if(merged.begin(), merged.end(), [&](const Contribution& m) { return same_shape(m, c); });
    if (same != merged.end()) {
      same->count += c.count;
    } else {
      merged.push_back(c);
    }
  }
  ComponentRow row;
  row.component = component;
  const Trust trust = trust_of(component);
  row.certainty = trust.certainty;
  row.source = trust.source;
  NotationWriter writer(row);
  for (const Contribution& c : merged) {
    row.bytes += c.bytes();
    writer.add(c);
  }
  return row;
}

}  // namespace

const Step& Evaluator::step(const LayoutChoice& layout, BatchSize batch, Bytes cublas_workspace, std::int64_t stage) {
  const Form form = form_of(*model_, training_, layout, batch, stage);
  constexpr std::size_t kRemembered = 64;
  const auto known = std::find_if(steps_.rbegin(), steps_.rend(), [&](const auto& s) { return s.first == form; });
  if (known != steps_.rend()) {
    known->second.resize(layout, batch, cublas_workspace);
    return known->second;
  }
  training_.micro_batch = batch.micro_batch;
  training_.sequence_length = batch.sequence_length;
  if (steps_.size() == kRemembered) steps_.pop_front();
  return steps_
      .emplace_back(std::piecewise_construct, std::forward_as_tuple(form),
                    std::forward_as_tuple(prepare(*model_, training_, layout, cublas_workspace, stage), graphs_))
      .second;
}

MemoryEstimate Evaluator::operator()(const LayoutChoice& layout, BatchSize batch, const Gpu* gpu, Bytes enough) {
  MemoryEstimate most;
  for (const std::int64_t stage : binding_stages(*model_, layout)) {
    if (most.device.expected > enough) break;
    const MemoryEstimate m = estimate_memory(step(layout, batch, cublas_workspace(gpu), stage), gpu);
    if (m.device.expected > most.device.expected) most = m;
  }
  return most;
}

Bytes engine_bytes(const TrainingChoice& training, const Gpu* gpu) {
  if (!training.generation || gpu == nullptr) return {};
  return Bytes(
      static_cast<std::int64_t>(static_cast<double>(usable_bytes(*gpu).value) * training.generation->engine_share));
}

namespace {

// The allocator keeps what one stream has freed for that stream (c10/cuda/CUDACachingAllocator.cpp): what streams need
// at different times adds up.
Bytes pools(const Step& step, Bytes allocated) {
  const Step::SidePools side = step.side_pools();
  if (side.gathered.value == 0) return allocated;
  return std::max(allocated, step.highest_on_main_stream() + side.gathered + side.reduced);
}

// Communicators of a rank: one for each kind of parallelism that has neighbours (Megatron-LM,
// megatron/core/parallel_state.py; torchtitan, distributed/parallel_dims.py).
std::int64_t communicators(const LayoutChoice& l) {
  const auto has = [](std::int64_t ranks) { return ranks > 1 ? 1 : 0; };
  return has(l.dp) + has(l.tp) + has(l.pp) + has(l.cp) + has(l.ep);
}

// Where stages send and receive by the group of all ranks, PyTorch makes that group's communicator, and one for each of
// the two ranks that a stage talks with: its neighbours, or at an end of the pipeline the other end too, for the loss
// (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, pointToPoint; Aleph-Alpha/scaling,
// core/nn/parallel_module/communicator.py).
Bytes communicators_of_pairs(const Run& run) {
  if (!run.framework.sends_by_world || ranks_of(run.layout) == 1) return {};
  const std::int64_t pairs = std::min<std::int64_t>(run.layout.pp - 1, 2);
  return device::kNcclManyRanks + device::kNcclTwoRanks * pairs;
}

}  // namespace

MemoryEstimate estimate_memory(const Step& step, const Gpu* gpu) {
  MemoryEstimate m;
  m.stage = step.run().stage.index;
  const auto [peak, allocated, held] = step.highest();
  m.peak = peak;
  const Residual residual = residual_of(step.run().training);
  m.allocated = {thousandths(allocated, residual.low), allocated, thousandths(allocated, residual.high)};
  const Bytes pooled = pools(step, allocated);
  const Bytes reserved = std::max(held, thousandths(pooled, kReservedExpected));
  m.reserved = {thousandths(thousandths(pooled, residual.low), kReservedLow), reserved,
                std::max(thousandths(thousandths(pooled, residual.high), kReservedHigh),
                         thousandths(reserved, 1000 * kReservedHigh / kReservedExpected))};
  const Estimate context = cuda_context_range(gpu);
  const Bytes pairs = communicators_of_pairs(step.run());
  const Estimate nccl =
      nccl_range(ranks_of(step.run().layout), communicators(step.run().layout)) + Estimate{pairs, pairs, pairs};
  m.inference_engine = engine_bytes(step.run().training, gpu);
  const Estimate engine{m.inference_engine, m.inference_engine, m.inference_engine};
  m.device = m.reserved + context + nccl + engine;
  m.allocator_slack = m.reserved.expected - allocated;
  m.cuda_context = context.expected;
  m.nccl_buffers = nccl.expected;
  return m;
}

std::vector<ComponentRow> breakdown(const Step& step, Event event) {
  const std::vector<Contribution> all = step.contributions(event);
  std::vector<ComponentRow> rows;
  const bool deepspeed = step.run().sharding.engine == Engine::deepspeed;
  for (std::size_t i = 0; i < kComponentCount; ++i) {
    ComponentRow row = row_of(static_cast<Component>(i), all);
    if (deepspeed && is_sharding(row.component)) row.source = kDeepspeedSource;
    if (row.bytes.value != 0) rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<ComponentRow> beyond_allocated(const MemoryEstimate& m) {
  const std::vector<Contribution> all{{Component::allocator_slack, 1, {{"bytes", m.allocator_slack.value}}},
                                      {Component::cuda_context, 1, {{"bytes", m.cuda_context.value}}},
                                      {Component::nccl_buffers, 1, {{"bytes", m.nccl_buffers.value}}},
                                      {Component::inference_engine, 1, {{"bytes", m.inference_engine.value}}}};
  std::vector<ComponentRow> rows;
  for (const Contribution& c : all) {
    if (c.bytes().value != 0) rows.push_back(row_of(c.component, all));
  }
  return rows;
}

}  // namespace vramplan
