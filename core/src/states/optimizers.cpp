// Optimizer states and the temporaries of the optimizer step, added up over the trained tensors.
#include "optimizers.hpp"

#include <algorithm>
#include <vector>

namespace vramplan {
namespace {

using namespace optimizers;

Parts no_states(const TrainedTensor&, const Setting&) { return {}; }
Update no_temporaries(const TrainedTensor&, const Setting&) { return {}; }

Rules rules_of(OptimizerName name) {
  switch (name) {
    case OptimizerName::adamw: return {adamw_states, adamw_update};
    case OptimizerName::sgd: return {sgd_states, no_temporaries};
    case OptimizerName::adafactor: return {adafactor_states, adafactor_update};
    case OptimizerName::lion: return {lion_states, lion_update};
    case OptimizerName::adam_mini: return {adam_mini_states, adam_mini_update};
    case OptimizerName::muon: return {muon_states, muon_update};
    case OptimizerName::galore: return {galore_states, galore_update};
    case OptimizerName::apollo: return {apollo_states, apollo_update};
    case OptimizerName::lomo: return {no_states, lomo_update};
    case OptimizerName::adalomo: return {adalomo_states, adalomo_update};
    case OptimizerName::came: return {came_states, came_update};
    case OptimizerName::badam: return {adamw_states, badam_update};
  }
  return {no_states, no_temporaries};
}

// Adds up parts of one name, so that the components stay a few rows whatever the model.
class Sum {
 public:
  void add(const Parts& parts, std::int64_t times = 1) {
    for (const Part& part : parts.items()) {
      const std::int64_t count = saturating_multiply(part.count, times);
      const auto same = std::find_if(items_.begin(), items_.begin() + count_, [&](const Part& other) {
        return other.each == part.each && other.name == part.name;
      });
      if (same != items_.begin() + count_) {
        same->count = saturating_add(same->count, count);
      } else if (count_ < static_cast<std::ptrdiff_t>(items_.size())) {
        items_[static_cast<std::size_t>(count_++)] = {part.each, part.name, count};
      }
    }
  }
  void write(Contributions& out, Component component) const {
    for (auto part = items_.begin(); part != items_.begin() + count_; ++part) {
      out.add({component, part->each, {{part->name, part->count}}});
    }
  }
  [[nodiscard]] std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (auto part = items_.begin(); part != items_.begin() + count_; ++part) sum = saturating_add(sum, part->bytes());
    return sum;
  }

 private:
  std::array<Part, 12> items_{};
  std::ptrdiff_t count_ = 0;
};

// The map from 8-bit codes to values: 256 in FP32 a moment, once an optimizer (bitsandbytes/optim/optimizer.py,
// fill_qmap).
constexpr std::int64_t kCodes = 256;

std::int64_t code_maps(const Parts& states) {
  for (const Part& part : states.items()) {
    if (part.name == "B_256") return part.each;  // four bytes a moment
  }
  return 0;
}

void add_code_maps(Contributions& out, const Setting& s, const Rules& rules) {
  std::int64_t each = 0;
  std::int64_t optimizers = 0;
  for (const TrainedTensor& t : s.inventory.tensors) {
    const std::int64_t mine = code_maps(rules.states(t, s));
    if (mine == 0) continue;
    each = mine;
    optimizers = updates_in_backward(s.choice) ? saturating_add(optimizers, t.count) : 1;
  }
  if (each != 0) out.add({Component::optimizer_states, each * kCodes, {{"optimizers", optimizers}}});
}

// What an optimizer meets last: what low-rank optimizers project; else biases and norms, which come after the matrices
// of their layer, and in the Trainer after all others, as a group without weight decay (transformers/trainer.py,
// get_decay_parameter_names).
bool comes_last(const TrainedTensor& t, const Setting& s) {
  if (is_low_rank(s.choice.name)) return is_projected(t);
  return t.kind == ParameterKind::norm || t.kind == ParameterKind::bias;
}

// The highest moment of a walk from tensor to tensor.
struct Walk {
  Sum highest;
  Parts left;
  void step(const Update& update) {
    Parts early = update.early;
    if (early.bytes() != 0) early.add(left);
    raise(early);
    raise(update.late);
    left = update.left;
  }

  void raise(const Parts& moment) {
    Sum sum;
    sum.add(moment);
    raise(sum);
  }
  void raise(const Sum& moment) {
    if (moment.bytes() > highest.bytes()) highest = moment;
  }
};

void write_temporaries(Contributions& out, const Setting& setting, const Rules& rules) {
  // Kernels for many tensors take one group of parameters at a time; BAdam's FP32 gradients are there together.
  const bool by_group = setting.framework.hugging_face_optimizers && setting.choice.name != OptimizerName::muon &&
                        setting.choice.name != OptimizerName::badam;
  Walk walk;
  Sum together;
  for (const bool last : {false, true}) {
    if (by_group) together = Sum();
    for (const TrainedTensor& tensor : setting.inventory.tensors) {
      if (comes_last(tensor, setting) != last) continue;
      const Update update = rules.update(tensor, setting);
      if (update.together) {
        together.add(update.late, tensor.count);
      } else {
        walk.step(update);
      }
    }
    walk.raise(together);
  }
  walk.highest.write(out, Component::optimizer_temporaries);
}

void add_shared(Contributions& out, const Contributions& list, std::int64_t ranks) {
  for (Contribution c : list) {
    c.divisor = ranks;
    out.add(c);
  }
}

// DeepSpeed joins the gradients of a shard into one tensor and makes that FP32, then drops the parts: an update that
// makes a temporary of its own needs no more than this did (zero/stage_1_and_2.py, step; stage3.py,
// _prepare_fp32_grad_for_sub_group; at stage 0 fp16/fused_optimizer.py, step, which casts first). At stage 3 for one
// group of parameters at a time.
constexpr std::int64_t kSubGroup = 1'000'000'000;  // sub_group_size, elements of a rank

bool add_flat_gradients(Contributions& out, const Inventory& n, const StateTypes& types, const Sharding& sharding) {
  const std::int64_t type = bytes_per_element(n.trained_base.value > 0 ? types.weights : types.adapters);
  const bool half = type == 2;
  if (sharding.stage == 0 && !half) return false;  // no wrapper: a plain optimizer
  const std::int64_t flat = sharding.stage == 0 ? bytes_per_element(ElementType::fp32) : type;
  const std::int64_t each = flat + (half ? bytes_per_element(ElementType::fp32) : 0);
  std::int64_t shard = divide_up(n.trained().value, sharding.optimizer);
  if (sharding.stage == 3) shard = std::min(shard, kSubGroup);
  out.add({Component::optimizer_temporaries, each, {{"P_shard", shard}}});
  return true;
}

}  // namespace

OptimizerMemory optimizer_memory(const Inventory& n, const TrainingChoice& t, const FrameworkSwitches& framework,
                                 const StateTypes& types, bool experts_apart) {
  const Setting setting{n, t.optimizer, framework, types};
  const Rules rules = rules_of(t.optimizer.name);
  OptimizerMemory memory;
  Sum sum;
  Sum of_experts;
  for (const TrainedTensor& tensor : n.tensors) {
    (experts_apart && tensor.expert ? of_experts : sum).add(rules.states(tensor, setting), tensor.count);
  }
  sum.write(memory.states, Component::optimizer_states);
  of_experts.write(memory.expert_states, Component::optimizer_states);
  add_code_maps(memory.whole, setting, rules);
  if (!updates_in_backward(t.optimizer)) write_temporaries(memory.temporaries, setting, rules);
  return memory;
}

void add_optimizer_states(Contributions& out, const OptimizerMemory& memory, const Sharding& sharding) {
  if (sharding.host_states) return;
  add_shared(out, memory.states, sharding.optimizer);
  add_shared(out, memory.expert_states, sharding.experts.optimizer);
  add_shared(out, memory.whole, 1);
}

void add_optimizer_temporaries(Contributions& out, const OptimizerMemory& memory, const Inventory& n,
                               const StateTypes& types, const Sharding& sharding) {
  if (sharding.host_states) return;
  if (sharding.engine == Engine::deepspeed && add_flat_gradients(out, n, types, sharding)) return;
  add_shared(out, memory.temporaries, sharding.optimizer);
}

TensorUpdate largest_update(const Inventory& n, const TrainingChoice& t, const FrameworkSwitches& framework,
                            const StateTypes& types, bool in_block) {
  const Setting setting{n, t.optimizer, framework, types};
  const Rules rules = rules_of(t.optimizer.name);
  TensorUpdate largest;
  for (const TrainedTensor& tensor : n.tensors) {
    if (tensor.in_block != in_block || tensor.elements() <= largest.elements) continue;
    const Update update = rules.update(tensor, setting);
    largest = {Bytes(std::max(update.early.bytes(), update.late.bytes())), tensor.elements()};
  }
  return largest;
}

}  // namespace vramplan
