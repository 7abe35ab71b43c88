#include "vramplan/model.hpp"

#include <algorithm>

namespace vramplan {

Dim layers_of(const ModelArchitecture& m) {
  Dim layers = 0;
  for (const LayerGroup& group : m.groups) layers = saturating_add(layers, group.count);
  return layers;
}

std::vector<Dim> first_layers(const ModelArchitecture& m, Dim layers) {
  std::vector<Dim> counts;
  for (const LayerGroup& group : m.groups) counts.push_back(group.count);
  return first_layers(counts, m.order, layers);
}

std::vector<Dim> first_layers(const std::vector<Dim>& counts, const std::vector<Dim>& order, Dim layers) {
  std::vector<Dim> found(counts.size(), 0);
  for (std::size_t i = 0; i < found.size() && order.empty(); ++i) {
    found[i] = std::min(layers, counts[i]);
    layers -= found[i];
  }
  const auto period = static_cast<Dim>(order.size());
  for (Dim i = 0; i < std::min(period, layers); ++i) {
    const Dim times = (layers - i - 1) / period + 1;
    found[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])] += times;
  }
  return found;
}

Dim first_of(const ModelArchitecture& m, std::size_t group) {
  const auto found = std::find(m.order.begin(), m.order.end(), static_cast<Dim>(group));
  if (found != m.order.end()) return found - m.order.begin();
  Dim before = 0;
  for (std::size_t i = 0; i < group; ++i) before += m.groups[i].count;
  return before;
}

}  // namespace vramplan
