#include "vramplan/catalogue.hpp"

namespace vramplan {

SystemGroup group_of(const System& system) {
  switch (system.type) {
    case SystemType::workstation:
    case SystemType::deskside: return SystemGroup::workstation;
    case SystemType::pcie_server: return SystemGroup::pcie_server;
    case SystemType::hgx:
    case SystemType::oam:
    case SystemType::superchip: return SystemGroup::hgx;
    case SystemType::rack: break;
  }
  return SystemGroup::rack;
}

SystemGroup group_of(const Gpu& gpu) {
  constexpr std::int64_t kLargestBoard = 8;  // a larger domain spans a rack
  if (gpu.link_domain > kLargestBoard) return SystemGroup::rack;
  switch (gpu.form_factor) {
    case FormFactor::desktop:
    case FormFactor::workstation: return SystemGroup::workstation;
    case FormFactor::pcie:
    case FormFactor::nvl: return SystemGroup::pcie_server;
    case FormFactor::superchip:  // without a link to others it sits on or below a desk (GB10, GB300 Desktop)
      return gpu.link_domain > 1 ? SystemGroup::hgx : SystemGroup::workstation;
    case FormFactor::sxm:
    case FormFactor::oam: break;
  }
  return SystemGroup::hgx;
}

}  // namespace vramplan
