// The planned run as the generators see it, and what several of them say in the same way.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "document.hpp"
#include "vramplan/launch.hpp"

namespace vramplan::launch {

struct Run {
  const PlanRequest* request = nullptr;
  std::string model;       // Hugging Face repository
  std::string model_type;  // of its config.json
  const ModelArchitecture* architecture = nullptr;
  LayoutChoice layout;
  std::int64_t gpus = 1, per_node = 1, nodes = 1;
  std::int64_t accumulation = 1;  // micro-batches a step

  [[nodiscard]] const TrainingChoice& training() const { return request->training; }
  [[nodiscard]] bool deepspeed() const { return training().framework == FrameworkId::deepspeed; }
  [[nodiscard]] bool fsdp() const { return !deepspeed() && layout.zero >= 2 && layout.dp > 1; }
  [[nodiscard]] bool adapters() const { return has_adapters(training().method); }
  [[nodiscard]] WeightFormat base() const { return training().base_weights.value_or(WeightFormat::bf16); }
  [[nodiscard]] bool four_bits() const {
    return base() == WeightFormat::nf4 || base() == WeightFormat::nf4_dq || base() == WeightFormat::fp4;
  }
};

// Collects the first field that stands in the way.
class Needs {
 public:
  Needs& that(bool holds, std::string_view pointer) {
    if (!holds && pointer_.empty()) pointer_ = pointer;
    return *this;
  }
  [[nodiscard]] std::string_view pointer() const { return pointer_; }

 private:
  std::string_view pointer_;
};

// Steps that the budget of tokens pays for, the last one whole; nothing when there is no budget.
[[nodiscard]] std::optional<std::int64_t> steps_of(const Run& run);

// The states that optimizers keep when they are told nothing.
[[nodiscard]] bool has_natural_states(const Run& run);

[[nodiscard]] inline LaunchText text(LaunchId id, std::string filename, LaunchFormat format, std::string content) {
  return {id, std::move(filename), format, std::move(content)};
}

// The command line `words` on one node; on several a batch script for Slurm that starts it once on each. The words may
// use the shell variables MAIN_NODE and SLURM_NODEID there.
[[nodiscard]] LaunchText start(const Run& run, LaunchId id, const std::string& requirements, const Words& words);

// torchrun's own arguments.
[[nodiscard]] Words torchrun(const Run& run);

// One generator a framework: what it lacks for this run, and its files.
struct Generator {
  LaunchId id;
  bool (*runs)(FrameworkId);  // whose code is the one that was planned
  LaunchOmission (*lacks)(const Run&);
  std::vector<LaunchText> (*write)(const Run&);
};

[[nodiscard]] Generator trl();
[[nodiscard]] Generator axolotl();
[[nodiscard]] Generator llamafactory();
[[nodiscard]] Generator torchtune();
[[nodiscard]] Generator torchtitan();
[[nodiscard]] Generator megatron();

}  // namespace vramplan::launch
