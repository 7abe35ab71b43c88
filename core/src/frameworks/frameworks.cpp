#include "frameworks.hpp"

namespace vramplan {

FrameworkSwitches switches_for(const TrainingChoice& training, bool sharded) {
  switch (training.framework) {
    case FrameworkId::torchtune: return torchtune_switches(training);
    case FrameworkId::liger: return liger_switches(training, sharded);
    case FrameworkId::unsloth: return unsloth_switches(training);
    // Frameworks that are not modelled are refused before (request.cpp).
    case FrameworkId::transformers:
    case FrameworkId::litgpt:
    case FrameworkId::deepspeed:
    case FrameworkId::torchtitan:
    case FrameworkId::megatron: return transformers_switches(training, sharded);
  }
  return {};
}

}  // namespace vramplan
