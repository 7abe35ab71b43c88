#include "frameworks.hpp"

namespace vramplan {

FrameworkSwitches switches_for(const TrainingChoice& training, const Sharding& sharding) {
  switch (training.framework) {
    case FrameworkId::deepspeed: return deepspeed_switches(training, sharding);
    case FrameworkId::litgpt: return litgpt_switches(training, sharding);
    case FrameworkId::torchtune: return torchtune_switches(training);
    case FrameworkId::torchtitan: return torchtitan_switches(training);
    case FrameworkId::megatron: return megatron_switches(training);
    case FrameworkId::scaling: return scaling_switches(training);
    case FrameworkId::liger: return liger_switches(training, sharding);
    case FrameworkId::unsloth: return unsloth_switches(training);
    case FrameworkId::transformers: return transformers_switches(training, sharding);
  }
  return {};
}

}  // namespace vramplan
