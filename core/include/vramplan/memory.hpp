// The three numbers per GPU: allocated (live tensors), reserved (what the caching allocator holds), device (what
// nvidia-smi shows), each with an interval.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "vramplan/catalogue.hpp"
#include "vramplan/component.hpp"
#include "vramplan/estimate.hpp"
#include "vramplan/step.hpp"
#include "vramplan/units.hpp"

namespace vramplan {

struct MemoryEstimate {
  std::int64_t stage = 0;  // of the pipeline
  Estimate allocated, reserved, device;
  Event peak;
  // What lies between allocated and device, at the expected value.
  Bytes allocator_slack, cuda_context, nccl_buffers, inference_engine;
};

// What an inference engine beside training reserves of a card (vLLM's gpu_memory_utilization).
[[nodiscard]] Bytes engine_bytes(const TrainingChoice& training, const Gpu* gpu);

// `gpu` may be nullptr: no card chosen.
[[nodiscard]] MemoryEstimate estimate_memory(const Step& step, const Gpu* gpu);

// Memory of one rank of a run in many sizes, as searches ask for it: layouts, batches and lengths come and go, model
// and training stay. Graphs are built once for each form that comes up.
class Evaluator {
 public:
  // `training` with its defaults resolved; the model must outlive the evaluator.
  Evaluator(const ModelArchitecture& model, TrainingChoice training) : model_(&model), training_(std::move(training)) {}

  // Valid until the next call. `cublas_workspace`: of the card (device.hpp); `stage`: of the pipeline.
  [[nodiscard]] const Step& step(const LayoutChoice& layout, BatchSize batch, Bytes cublas_workspace,
                                 std::int64_t stage = 0);
  // Of the stage that needs the most; or of the first that is expected to need more than `enough`.
  [[nodiscard]] MemoryEstimate operator()(const LayoutChoice& layout, BatchSize batch, const Gpu* gpu,
                                          Bytes enough = Bytes(kSaturated));
  [[nodiscard]] const TrainingChoice& training() const { return training_; }

 private:
  const ModelArchitecture* model_;
  TrainingChoice training_;
  GraphSet graphs_;
  std::deque<std::pair<Form, Step>> steps_;  // of the forms met last
};

// How sure a number is: by definition, by a model of a kernel or framework, or by measurement.
enum class Certainty : std::uint8_t { exact, modelled, measured };
template <>
struct EnumNames<Certainty> {
  static constexpr Names<3> values = {"exact", "modelled", "measured"};
};

struct Term {
  std::string symbol;
  std::int64_t value = 0;
};

// One row of the breakdown. `notation` is an expression of + * ceil(x/y), whole numbers and the symbols in `terms`; it
// evaluates to `bytes`.
struct ComponentRow {
  Component component = Component::weights;
  Bytes bytes;
  std::string notation;
  std::vector<Term> terms;
  Certainty certainty = Certainty::exact;
  std::string_view source;  // id in sources.json
};

// What is alive at an event, by component, in the order of the enumerators; adds up to `step.live(event)`.
[[nodiscard]] std::vector<ComponentRow> breakdown(const Step& step, Event event);
// Slack, context and communication buffers: adds up to device.expected - allocated.expected.
[[nodiscard]] std::vector<ComponentRow> beyond_allocated(const MemoryEstimate& memory);

}  // namespace vramplan
