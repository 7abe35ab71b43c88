// What an optimizer keeps and makes for one tensor. The dispatcher (optimizers.cpp) adds tensors up and writes the
// components; each family of optimizers is a file of its own.
#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <span>
#include <string_view>

#include "vramplan/states.hpp"

namespace vramplan::optimizers {

// Bytes: `each` times a count of something that has a name.
struct Part {
  std::int64_t each = 0;
  std::string_view name;
  std::int64_t count = 0;
  [[nodiscard]] std::int64_t bytes() const { return saturating_multiply(each, count); }
};

class Parts {
 public:
  Parts() = default;
  Parts(std::initializer_list<Part> list) {
    for (const Part& part : list) add(part);
  }
  void add(const Part& part) {
    assert(count_ < items_.size());
    if (part.each != 0 && part.count != 0 && count_ < items_.size()) items_[count_++] = part;
  }
  void add(const Parts& others) {
    for (const Part& part : others.items()) add(part);
  }
  [[nodiscard]] std::span<const Part> items() const { return {items_.data(), count_}; }
  [[nodiscard]] std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (const Part& part : items()) sum = saturating_add(sum, part.bytes());
    return sum;
  }

 private:
  std::array<Part, 8> items_{};
  std::size_t count_ = 0;
};

// Temporaries of the update of one tensor. Optimizers written in Python go from tensor to tensor, and a variable keeps
// what it held for the last one until it gets the next value: `left` is what a tensor leaves so, `early` the most that
// is made while that of the tensor before is still there, `late` the most afterwards.
struct Update {
  bool together = false;  // all tensors at once: `late` adds up
  Parts early, late, left;
};

// What the rules ask about the run.
struct Setting {
  const Inventory& inventory;
  const OptimizerChoice& choice;
  const FrameworkSwitches& framework;
  const StateTypes& types;

  // Of a weight as the optimizer sees it, and of its gradient.
  [[nodiscard]] std::int64_t weight_bytes(const TrainedTensor& t) const {
    if (choice.master_weights) return bytes_per_element(ElementType::fp32);
    return bytes_per_element(t.adapter ? types.adapters : t.copy ? types.tables : types.weights);
  }
  // PyTorch makes states in the type of their parameter, and a copy of a module keeps the type that it has;
  // bitsandbytes' are FP32.
  [[nodiscard]] std::int64_t state_bytes(const TrainedTensor& t) const {
    const bool bitsandbytes = choice.paged || (framework.hugging_face_optimizers && choice.name == OptimizerName::lion);
    return t.copy && !bitsandbytes ? weight_bytes(t) : bytes_per_element(types.optimizer);
  }
  // Copies are a term of their own.
  [[nodiscard]] static std::string_view trained(const TrainedTensor& t) { return t.copy ? "P_copy" : "P_trained"; }
  [[nodiscard]] StateFormat states() const { return choice.states.value_or(StateFormat::fp32); }
  // The framework's default gives way to the fused kernel.
  [[nodiscard]] bool foreach () const { return framework.foreach_optimizer && !choice.fused.value_or(false); }
};

struct Rules {
  Parts (*states)(const TrainedTensor&, const Setting&);
  Update (*update)(const TrainedTensor&, const Setting&);
};

// moments.cpp
[[nodiscard]] Parts adamw_states(const TrainedTensor& t, const Setting& s);
[[nodiscard]] Update adamw_update(const TrainedTensor& t, const Setting& s);
[[nodiscard]] Update badam_update(const TrainedTensor& t, const Setting& s);
[[nodiscard]] Parts sgd_states(const TrainedTensor& t, const Setting& s);
[[nodiscard]] Parts lion_states(const TrainedTensor& t, const Setting& s);
[[nodiscard]] Update lion_update(const TrainedTensor& t, const Setting& s);
[[nodiscard]] Parts adam_mini_states(const TrainedTensor& t, const Setting& s);
[[nodiscard]] Update adam_mini_update(const TrainedTensor& t, const Setting& s);
// `count` moments of a tensor of so many elements, in 8 bits where bitsandbytes does so.
[[nodiscard]] Parts moments_in_8bit(std::int64_t count, std::int64_t elements, const OptimizerChoice& choice);

// factored.cpp
[[nodiscard]] Parts adafactor_states(const TrainedTensor& t, const Setting& s);
[[nodiscard]] Update adafactor_update(const TrainedTensor& t, const Setting& s);
[[nodiscard]] Parts came_states(const TrainedTensor& t, const Setting& s);
[[nodiscard]] Update came_update(const TrainedTensor& t, const Setting& s);
[[nodiscard]] Parts adalomo_states(const TrainedTensor& t, const Setting& s);
[[nodiscard]] Update adalomo_update(const TrainedTensor& t, const Setting& s);
[[nodiscard]] Update lomo_update(const TrainedTensor& t, const Setting& s);

// low_rank.cpp
[[nodiscard]] bool is_projected(const TrainedTensor& t);
[[nodiscard]] Parts galore_states(const TrainedTensor& t, const Setting& s);
[[nodiscard]] Update galore_update(const TrainedTensor& t, const Setting& s);
[[nodiscard]] Parts apollo_states(const TrainedTensor& t, const Setting& s);
[[nodiscard]] Update apollo_update(const TrainedTensor& t, const Setting& s);

// muon.cpp
[[nodiscard]] Parts muon_states(const TrainedTensor& t, const Setting& s);
[[nodiscard]] Update muon_update(const TrainedTensor& t, const Setting& s);

}  // namespace vramplan::optimizers
