#include "frameworks.hpp"

namespace vramplan {

FrameworkSwitches switches_for(const TrainingChoice& training, bool sharded) {
  switch (training.framework) {
    case FrameworkId::litgpt: return litgpt_switches(training, sharded);
    case FrameworkId::torchtune: return torchtune_switches(training);
    // Frameworks that are not modelled are refused before (request.cpp).
    case FrameworkId::transformers:
    case FrameworkId::liger:
    case FrameworkId::unsloth:
    case FrameworkId::deepspeed:
    case FrameworkId::torchtitan:
    case FrameworkId::megatron: return transformers_switches(training, sharded);
  }
  return {};
}

}  // namespace vramplan
