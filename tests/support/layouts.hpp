// Layouts that tests ask for.
#pragma once

#include "vramplan/request.hpp"

namespace vramplan::support {

// One rank, or fully sharded data parallelism over all.
inline LayoutChoice sharded(std::int64_t ranks) {
  LayoutChoice layout;
  layout.dp = ranks;
  layout.zero = ranks > 1 ? 3 : 0;
  return layout;
}

}  // namespace vramplan::support
