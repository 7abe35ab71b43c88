// Names of modules that adapters are put on, as people write them, in the words of parameters.hpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace vramplan {

// "all-linear", names of parameters.hpp, `mlp`, and the names by which Hugging Face models call the same modules
// (with or without the path before them). One name can stand for several modules; empty: unknown.
[[nodiscard]] std::vector<std::string> lora_target_modules(std::string_view name);

// The names of our own, for a problem that says what is allowed.
[[nodiscard]] std::vector<std::string_view> lora_target_names();

}  // namespace vramplan
