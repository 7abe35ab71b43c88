// Transformers' modules under DeepSpeed's engine: it turns the whole module into 16 bits, adapters included
// (deepspeed/runtime/engine.py, _configure_distributed_model), so that nothing is cast on the way, and its optimizers
// work on an FP32 copy. Accelerate leaves autocast out (accelerate/accelerator.py, native_amp).
#include "frameworks.hpp"

namespace vramplan {

FrameworkSwitches deepspeed_switches(const TrainingChoice& t, const Sharding& sharding) {
  FrameworkSwitches s = transformers_switches(t, sharding);
  s.source = "deepspeed";
  s.autocast = false;
  s.fp32_adapters = false;
  s.raises_leftovers = false;
  return s;
}

}  // namespace vramplan
