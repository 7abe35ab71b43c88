#include "vramplan/model.hpp"

namespace vramplan {

Dim layers_of(const ModelArchitecture& m) {
  Dim layers = 0;
  for (const LayerGroup& group : m.groups) layers = saturating_add(layers, group.count);
  return layers;
}

}  // namespace vramplan
