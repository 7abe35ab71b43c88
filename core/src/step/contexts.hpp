// What decides how the graphs of a run are built.
#pragma once

#include "vramplan/ops.hpp"
#include "vramplan/step.hpp"

namespace vramplan {

// Of a layer that is trained or frozen.
[[nodiscard]] BlockContext context_of(const Run& run, bool trained_layer);
[[nodiscard]] BlockContext embedding_context(const Run& run);
[[nodiscard]] BlockContext head_context(const Run& run);
[[nodiscard]] BlockContext reference_context(const Run& run);

[[nodiscard]] GradientPolicy block_policy(const Run& run);
[[nodiscard]] GradientPolicy embedding_policy(const Run& run);
[[nodiscard]] GradientPolicy head_policy(const Run& run);

}  // namespace vramplan
