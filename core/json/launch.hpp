// The configuration files and commands of a report.
#pragma once

#include "report.hpp"
#include "vramplan/launch.hpp"

namespace vramplan {

[[nodiscard]] OrderedJson write_launch_texts(const Launch& launch);
[[nodiscard]] OrderedJson write_launch_omissions(const Launch& launch);

}  // namespace vramplan
