#include "outlook.hpp"

#include "vramplan/enum_names.hpp"

namespace vramplan {
namespace {

OrderedJson serving(const AfterTraining& after) {
  OrderedJson rows = OrderedJson::array();
  for (const ServingMemory& s : after.serving) {
    rows.push_back(
        {{"weights", name_of(s.weights)}, {"weights_bytes", s.weight_bytes.value}, {"total_bytes", s.total.value}});
  }
  return {{"context", after.cache.context},
          {"users", after.cache.users},
          {"cache_bytes_per_token", after.cache.per_token.value},
          {"state_bytes_per_user", after.cache.states.value},
          {"cache_bytes", after.cache.total.value},
          {"rows", std::move(rows)}};
}

OrderedJson growth_model(const std::optional<GrowthModel>& m) {
  if (!m) return nullptr;
  return {{"model", m->id},
          {"parameters", m->parameters.value},
          {"gpus", m->gpus},
          {"device",
           {{"low", m->device.low.value}, {"expected", m->device.expected.value}, {"high", m->device.high.value}}},
          {"verdict", name_of(m->verdict)}};
}

}  // namespace

OrderedJson write_after_training(const AfterTraining& after) {
  OrderedJson merge = nullptr;
  if (after.merge) merge = {{"host_bytes", after.merge->host.value}, {"card_bytes", after.merge->card.value}};
  OrderedJson adapters = nullptr;
  if (after.checkpoints.adapters) adapters = after.checkpoints.adapters->value;
  return {{"merge", std::move(merge)},
          {"merged_bytes", after.merged.value},
          {"checkpoints",
           {{"adapter_bytes", std::move(adapters)},
            {"weights_bytes", after.checkpoints.weights.value},
            {"training_state_bytes", after.checkpoints.training_state.value}}},
          {"serving", serving(after)}};
}

OrderedJson write_growth(const std::vector<Growth>& growth) {
  OrderedJson out = OrderedJson::array();
  for (const Growth& g : growth) {
    out.push_back(
        {{"method", name_of(g.method)}, {"largest", growth_model(g.largest)}, {"next", growth_model(g.next)}});
  }
  return out;
}

}  // namespace vramplan
