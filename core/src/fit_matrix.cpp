#include "vramplan/fit_matrix.hpp"

#include <algorithm>
#include <iterator>

#include "vramplan/device.hpp"

namespace vramplan {
namespace {

// What people weigh against each other.
constexpr Method kCompared[] = {Method::full, Method::lora, Method::qlora};

// What the weights that a method starts from are stored in; the trained weights of full fine-tuning follow the
// precision (resolve_defaults).
std::optional<WeightFormat> base_of(Method method) {
  if (has_adapters(method)) return method == Method::qlora ? WeightFormat::nf4 : WeightFormat::bf16;
  return std::nullopt;
}

std::vector<PlanRequest> columns(const PlanRequest& request) {
  std::vector<PlanRequest> out;
  const Method own = request.training.method;
  for (const Method method : kCompared) {
    PlanRequest changed = method == own ? request : with_method(request, method);
    if (check_request(changed).empty()) out.push_back(std::move(changed));
  }
  if (std::find(std::begin(kCompared), std::end(kCompared), own) == std::end(kCompared)) out.push_back(request);
  return out;
}

bool refuses(const Gpu& gpu, const TrainingChoice& training) {
  return precision_refusal(gpu, training.precision).has_value() ||
         (training.optimizer.states && state_format_refusal(gpu, *training.optimizer.states).has_value());
}

MatrixCell cell(const Gpu& gpu, const TrainingChoice& training, const NeedPerGpu& need) {
  if (refuses(gpu, training)) return {};
  const auto found = smallest_fitting(kTriedCounts, usable_bytes(gpu), Verdict::tight,
                                      [&](std::int64_t count) { return need(gpu, count); });
  return found ? MatrixCell{found->count, found->fit.verdict} : MatrixCell{};
}

}  // namespace

PlanRequest with_method(PlanRequest request, Method method) {
  TrainingChoice& t = request.training;
  t.method = method;
  t.base_weights = base_of(method);
  t.trainable_layers.reset();
  if (has_adapters(method)) t.mtp_layers = 0;
  t.optimizer.states = StateFormat::fp32;
  const bool quantized = t.base_weights && is_quantized(*t.base_weights);
  t.kbit_upcast = quantized && t.framework == FrameworkId::transformers;
  return resolve_defaults(std::move(request));
}

FitMatrix fit_matrix(const Catalogue& catalogue, const PlanRequest& request, const NeedOfRequest& need) {
  FitMatrix matrix;
  for (const Gpu& gpu : catalogue.gpus) {
    if (usable_bytes(gpu).value > 0) matrix.rows.push_back({gpu.id, {}});
  }
  for (const PlanRequest& column : columns(request)) {
    matrix.methods.push_back(column.training.method);
    const NeedPerGpu of_column = need(column);
    for (MatrixRow& row : matrix.rows) {
      row.cells.push_back(cell(*find_gpu(catalogue, row.gpu), column.training, of_column));
    }
  }
  return matrix;
}

}  // namespace vramplan
