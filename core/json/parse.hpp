// JSON text, refused before it can do harm: size and nesting are checked by a scan that builds nothing.
#pragma once

#include <cstddef>
#include <string_view>

#include "reader.hpp"

namespace vramplan {

inline constexpr std::size_t kLongestText = std::size_t{2} << 20;  // bytes; a request with a config.json has 2-20 KiB
inline constexpr int kDeepestNesting = 64;

// Problems: too_large_input, too_deep, invalid_utf8, invalid_json (with the byte where reading stopped; numbers
// that a double cannot hold, NaN and Infinity are among them), duplicate_field (each, with its pointer).
[[nodiscard]] Result<Json> parse_document(std::string_view text);

}  // namespace vramplan
