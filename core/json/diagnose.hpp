// "Explain my out-of-memory": {"text": …, "request": …} in, what filled the card and which changes free enough out.
#pragma once

#include <string_view>

#include "report.hpp"
#include "vramplan/catalogue.hpp"
#include "vramplan/diagnosis.hpp"

namespace vramplan {

// `diagnosis` is null where the text is neither PyTorch's message nor nvidia-smi's table.
[[nodiscard]] OrderedJson write_diagnosis(const std::optional<Diagnosis>& diagnosis, const Catalogue& catalogue);

}  // namespace vramplan
