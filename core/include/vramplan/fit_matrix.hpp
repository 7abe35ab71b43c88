// Which card takes which method: for each card of the catalogue the smallest number of it on which the run fits, when
// it is trained fully, with LoRA, with QLoRA, and as the request says.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "vramplan/catalogue.hpp"
#include "vramplan/fit.hpp"
#include "vramplan/request.hpp"
#include "vramplan/suggestion.hpp"

namespace vramplan {

struct MatrixCell {
  std::int64_t count = 0;              // 0: on no tried number (kTriedCounts)
  Verdict verdict = Verdict::unknown;  // on that number
};

struct MatrixRow {
  std::string gpu;
  std::vector<MatrixCell> cells;  // one a method, in the order of FitMatrix::methods
};

struct FitMatrix {
  std::vector<Method> methods;
  std::vector<MatrixRow> rows;  // cards whose usable memory is known, in the catalogue's order
};

// The need of a request on any card and number of cards; valid as long as the function is kept.
using NeedOfRequest = std::function<NeedPerGpu(const PlanRequest&)>;

// The same run with another method, which starts from its own defaults: what follows from the method is left to them.
[[nodiscard]] PlanRequest with_method(PlanRequest request, Method method);

// `request` with its defaults resolved. A method that the request's other choices exclude has no column.
[[nodiscard]] FitMatrix fit_matrix(const Catalogue& catalogue, const PlanRequest& request, const NeedOfRequest& need);

}  // namespace vramplan
