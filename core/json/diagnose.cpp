#include "diagnose.hpp"

#include "vramplan/device.hpp"

namespace vramplan {
namespace {

// A process is told a little less than the driver has, and messages round to hundredths of a GiB: cards within a
// hundredth are meant.
constexpr std::int64_t kNearParts = 100;

OrderedJson cards_with(const Catalogue& catalogue, Bytes capacity) {
  OrderedJson out = OrderedJson::array();
  const auto near = [&](Bytes known) {
    const Bytes difference = known > capacity ? known - capacity : capacity - known;
    return known.value > 0 && difference * kNearParts <= capacity;
  };
  for (const Gpu& gpu : catalogue.gpus) {
    if (near(usable_bytes(gpu)) || near(gpu.usable)) out.push_back(gpu.id);
  }
  return out;
}

OrderedJson parts_of(const DiagnosedCard& card) {
  OrderedJson out = OrderedJson::array();
  for (const CardPartRow& row : card.parts) {
    if (row.bytes.value == 0) continue;
    OrderedJson part = {{"id", name_of(row.part)}, {"bytes", row.bytes.value}};
    if (!row.name.empty()) part["name"] = row.name;
    out.push_back(std::move(part));
  }
  return out;
}

}  // namespace

OrderedJson write_diagnosis(const std::optional<Diagnosis>& diagnosis, const Catalogue& catalogue) {
  if (!diagnosis) return nullptr;
  OrderedJson cards = OrderedJson::array();
  for (const DiagnosedCard& card : diagnosis->cards) {
    cards.push_back({{"index", card.index},
                     {"capacity_bytes", card.capacity.value},
                     {"gpus", cards_with(catalogue, card.capacity)},
                     {"parts", parts_of(card)}});
  }
  OrderedJson findings = OrderedJson::array();
  for (const Finding finding : diagnosis->findings) findings.push_back(name_of(finding));
  return {{"kind", name_of(diagnosis->kind)},
          {"cards", std::move(cards)},
          {"requested_bytes", diagnosis->requested.value},
          {"shortage_bytes", diagnosis->shortage.value},
          {"findings", std::move(findings)}};
}

}  // namespace vramplan
