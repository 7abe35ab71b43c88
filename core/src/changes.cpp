#include "vramplan/changes.hpp"

#include <algorithm>

#include "vramplan/fit_matrix.hpp"

namespace vramplan {
namespace {

// A changed request, with the patches that make it from the original.
struct Candidate {
  std::string id;
  PatchValue from;
  std::vector<Patch> patches;
  PlanRequest request;
};

template <NamedEnum Enum>
PatchValue spelled(Enum value) {
  return std::string(name_of(value));
}

Candidate start(const PlanRequest& request, std::string id, PatchValue from) {
  return {std::move(id), std::move(from), {}, request};
}

void consider_recompute(const PlanRequest& r, std::vector<Candidate>& out) {
  for (const Recompute to : {Recompute::full, Recompute::selective}) {
    if (to <= r.training.recompute) continue;
    Candidate c = start(r, std::string("recompute_").append(name_of(to)), spelled(r.training.recompute));
    set_recompute(c.request.training, to);
    c.patches = {{"/training/recompute", spelled(to)}};
    if (c.request.training.recompute_modules != r.training.recompute_modules)
      c.patches.push_back({"/training/recompute_modules", std::vector<std::string>{}});
    out.push_back(std::move(c));
  }
}

void consider_attention(const PlanRequest& r, std::vector<Candidate>& out) {
  if (r.training.attention != AttentionKernel::eager) return;
  Candidate c = start(r, "flash_attention", spelled(r.training.attention));
  c.request.training.attention = AttentionKernel::flash;
  c.patches = {{"/training/attention", spelled(AttentionKernel::flash)}};
  out.push_back(std::move(c));
}

void consider_cross_entropy(const PlanRequest& r, std::vector<Candidate>& out) {
  if (r.training.cross_entropy != CrossEntropy::full_logits) return;
  for (const CrossEntropy to : {CrossEntropy::chunked, CrossEntropy::fused}) {
    Candidate c = start(r, std::string(name_of(to)) + "_cross_entropy", spelled(CrossEntropy::full_logits));
    c.request.training.cross_entropy = to;
    c.patches = {{"/training/cross_entropy", spelled(to)}};
    out.push_back(std::move(c));
  }
}

void consider_kernels(const PlanRequest& r, std::vector<Candidate>& out) {
  if (r.training.kernels == Kernels::fused || r.training.framework != FrameworkId::transformers) return;
  Candidate c = start(r, "fused_kernels", spelled(Kernels::eager));
  c.request.training.kernels = Kernels::fused;
  c.patches = {{"/training/kernels", spelled(Kernels::fused)}};
  out.push_back(std::move(c));
}

void consider_micro_batch(const PlanRequest& r, std::vector<Candidate>& out) {
  if (r.training.micro_batch < 2 || r.training.micro_batch % 2 != 0) return;
  const std::int64_t half = r.training.micro_batch / 2;
  Candidate c = start(r, "half_micro_batch", r.training.micro_batch);
  c.request.training.micro_batch = half;
  c.patches = {{"/training/micro_batch", half}};
  out.push_back(std::move(c));
}

void consider_sequence(const PlanRequest& r, std::vector<Candidate>& out) {
  if (r.training.sequence_length < 512) return;
  const std::int64_t half = r.training.sequence_length / 2;
  Candidate c = start(r, "half_sequence", r.training.sequence_length);
  c.request.training.sequence_length = half;
  c.patches = {{"/training/sequence_length", half}};
  out.push_back(std::move(c));
}

void consider_8bit_optimizer(const PlanRequest& r, std::vector<Candidate>& out) {
  const OptimizerChoice& o = r.training.optimizer;
  if (o.name != OptimizerName::adamw || o.states == StateFormat::int8) return;
  Candidate c = start(r, "optimizer_8bit", spelled(o.states.value_or(StateFormat::fp32)));
  c.request.training.optimizer.states = StateFormat::int8;
  c.patches = {{"/training/optimizer/states", spelled(StateFormat::int8)}};
  out.push_back(std::move(c));
}

// bitsandbytes pages what it keeps in 32 or 8 bits; what has no pages yet must be one of these.
void consider_paging(const PlanRequest& r, std::vector<Candidate>& out) {
  const OptimizerChoice& o = r.training.optimizer;
  const bool pageable = o.states == StateFormat::fp32 || o.states == StateFormat::int8;
  if (o.name != OptimizerName::adamw || o.paged || !pageable) return;
  Candidate c = start(r, "optimizer_paged", false);
  c.request.training.optimizer.paged = true;
  c.patches = {{"/training/optimizer/paged", true}};
  out.push_back(std::move(c));
}

// torchtune's recipes have the switch for every optimizer, the Trainer for the low-rank ones.
void consider_updates_in_backward(const PlanRequest& r, std::vector<Candidate>& out) {
  const OptimizerChoice& o = r.training.optimizer;
  const bool offered = r.training.framework == FrameworkId::torchtune || is_low_rank(o.name);
  if (updates_in_backward(o) || !offered) return;
  Candidate c = start(r, "update_in_backward", false);
  c.request.training.optimizer.in_backward = true;
  c.patches = {{"/training/optimizer/in_backward", true}};
  out.push_back(std::move(c));
}

void change_method(const PlanRequest& r, Method method, std::string id, std::vector<Candidate>& out) {
  Candidate c = start(r, std::move(id), spelled(r.training.method));
  c.request = with_method(r, method);
  const TrainingChoice& t = c.request.training;
  c.patches = {{"/training/method", spelled(method)},
               {"/training/base_weights", spelled(*t.base_weights)},
               {"/training/optimizer/states", spelled(*t.optimizer.states)},
               {"/training/kbit_upcast", *t.kbit_upcast}};
  if (t.mtp_layers != r.training.mtp_layers) c.patches.push_back({"/training/mtp_layers", t.mtp_layers});
  out.push_back(std::move(c));
}

void consider_methods(const PlanRequest& r, std::vector<Candidate>& out) {
  const Method now = r.training.method;
  if (now == Method::full) change_method(r, Method::lora, "method_lora", out);
  if (now != Method::qlora) change_method(r, Method::qlora, "method_qlora", out);
}

void consider_double_quantization(const PlanRequest& r, std::vector<Candidate>& out) {
  if (r.training.base_weights != WeightFormat::nf4) return;
  Candidate c = start(r, "double_quantization", spelled(WeightFormat::nf4));
  c.request.training.base_weights = WeightFormat::nf4_dq;
  c.patches = {{"/training/base_weights", spelled(WeightFormat::nf4_dq)}};
  out.push_back(std::move(c));
}

void consider_kbit_upcast(const PlanRequest& r, std::vector<Candidate>& out) {
  if (!r.training.kbit_upcast.value_or(false)) return;
  Candidate c = start(r, "no_kbit_upcast", true);
  c.request.training.kbit_upcast = false;
  c.patches = {{"/training/kbit_upcast", false}};
  out.push_back(std::move(c));
}

void consider_sharding(const PlanRequest& r, std::vector<Candidate>& out) {
  if (!r.layout || r.layout->dp < 2 || r.layout->zero == 3) return;
  Candidate c = start(r, "shard_fully", r.layout->zero);
  c.request.layout->zero = 3;
  c.patches = {{"/layout/zero", std::int64_t{3}}};
  out.push_back(std::move(c));
}

// To host memory, and back over PCIe.
void consider_offload(const PlanRequest& r, std::vector<Candidate>& out) {
  struct Switch {
    const char* id;
    const char* pointer;
    bool OffloadChoice::*field;
  };
  static constexpr Switch kSwitches[] = {
      {"offload_optimizer", "/training/offload/optimizer", &OffloadChoice::optimizer},
      {"offload_parameters", "/training/offload/parameters", &OffloadChoice::parameters},
      {"offload_activations", "/training/offload/activations", &OffloadChoice::activations},
  };
  for (const Switch& s : kSwitches) {
    if (r.training.offload.*s.field) continue;
    Candidate c = start(r, s.id, false);
    c.request.training.offload.*s.field = true;
    c.patches = {{s.pointer, true}};
    out.push_back(std::move(c));
  }
}

// No FP32 copy of anything: small updates are lost in rounding.
void consider_pure_bf16(const PlanRequest& r, std::vector<Candidate>& out) {
  const TrainingChoice& t = r.training;
  if (t.precision != Precision::bf16_amp || !trains_all_weights(t.method)) return;
  Candidate c = start(r, "pure_bf16", spelled(t.precision));
  TrainingChoice& changed = c.request.training;
  changed.precision = Precision::bf16;
  changed.base_weights = WeightFormat::bf16;
  c.patches = {{"/training/precision", spelled(Precision::bf16)},
               {"/training/base_weights", spelled(WeightFormat::bf16)}};
  if (t.optimizer.states == StateFormat::fp32 && t.optimizer.name == OptimizerName::adamw) {
    changed.optimizer.states = StateFormat::bf16;
    c.patches.push_back({"/training/optimizer/states", spelled(StateFormat::bf16)});
  }
  out.push_back(std::move(c));
}

void consider_rank(const PlanRequest& r, std::vector<Candidate>& out) {
  constexpr std::int64_t kLeastRank = 8;
  const std::int64_t rank = r.training.lora.rank;
  if (!has_adapters(r.training.method) || rank % 2 != 0 || rank / 2 < kLeastRank) return;
  Candidate c = start(r, "half_rank", rank);
  c.request.training.lora.rank = rank / 2;
  c.patches = {{"/training/lora/rank", rank / 2}};
  out.push_back(std::move(c));
}

// The layout over them is chosen anew.
void consider_more_gpus(const PlanRequest& r, std::vector<Candidate>& out) {
  if (!r.hardware || r.layout || r.hardware->count > limits::kGpuCount.maximum / 2) return;
  const std::int64_t twice = r.hardware->count * 2;
  Candidate c = start(r, "double_gpus", r.hardware->count);
  c.request.hardware->count = twice;
  c.patches = {{"/hardware/count", twice}};
  out.push_back(std::move(c));
}

std::vector<Candidate> candidates(const PlanRequest& request) {
  std::vector<Candidate> out;
  consider_recompute(request, out);
  consider_attention(request, out);
  consider_cross_entropy(request, out);
  consider_kernels(request, out);
  consider_micro_batch(request, out);
  consider_sequence(request, out);
  consider_8bit_optimizer(request, out);
  consider_paging(request, out);
  consider_updates_in_backward(request, out);
  consider_methods(request, out);
  consider_double_quantization(request, out);
  consider_kbit_upcast(request, out);
  consider_sharding(request, out);
  consider_offload(request, out);
  consider_pure_bf16(request, out);
  consider_rank(request, out);
  consider_more_gpus(request, out);
  return out;
}

}  // namespace

std::vector<Change> suggest_changes(const PlanRequest& request, const RunNeed& now, Bytes usable,
                                    const EvaluateChange& evaluate) {
  std::vector<Change> changes;
  for (Candidate& c : candidates(request)) {
    if (!check_request(c.request).empty()) continue;
    const std::optional<RunNeed> after = evaluate(c.request);
    if (!after || after->device.expected >= now.device.expected) continue;
    const double ratio = now.tokens_per_second > 0 ? after->tokens_per_second / now.tokens_per_second : 0;
    changes.push_back({std::move(c.id), std::move(c.patches), std::move(c.from), after->device,
                       now.device.expected - after->device.expected, judge(after->device, usable).verdict,
                       after->tokens_per_second, ratio});
  }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    if (a.verdict != b.verdict) return a.verdict < b.verdict;
    if (a.tokens_per_second != b.tokens_per_second) return a.tokens_per_second > b.tokens_per_second;
    if (a.saved != b.saved) return a.saved > b.saved;
    return a.id < b.id;
  });
  return changes;
}

}  // namespace vramplan
