// The residuals of the public measured runs (tests/tables/measured_runs.jsonl; `node tests/tables/accuracy.mjs
// --rows`), read 2026-11-30, metric max_memory_allocated: measured over expected in thousandths, the range of nine runs
// in ten, widened to the next five thousandths. A combination with fewer than ten runs has the widest range there is.
#include "vramplan/accuracy.hpp"

namespace vramplan {
namespace {

constexpr Residual kFewRuns{900, 1100};
constexpr Residual kTransformersFull{985, 1030};   // 25 runs
constexpr Residual kTransformersLora{970, 1065};   // 40 runs
constexpr Residual kTransformersQlora{910, 1095};  // 88 runs

}  // namespace

Residual residual_of(FrameworkId framework, Method method) {
  if (framework != FrameworkId::transformers) return kFewRuns;
  switch (method) {
    case Method::full:
    case Method::freeze: return kTransformersFull;
    case Method::lora: return kTransformersLora;
    case Method::qlora: return kTransformersQlora;
    case Method::dora:
    case Method::galore:
    case Method::lomo: return kFewRuns;
  }
  return kFewRuns;
}

}  // namespace vramplan
