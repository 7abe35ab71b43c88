#include "catalogue_hardware.hpp"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "vramplan/closest.hpp"

namespace vramplan {
namespace {

constexpr IntegerRange kPositive{1, kLargestJsonInteger};
constexpr IntegerRange kMebibytes{1, std::int64_t{1} << 32};  // 4 PiB in all: far beyond any card, far below overflow
constexpr IntegerRange kDomain{1, limits::kGpuCount.maximum};
constexpr NumberRange kRate{0, 1e9};

void read_mebibytes(ObjectReader& reader, std::string_view name, Bytes& destination) {
  std::int64_t mebibytes = 0;
  if (reader.integer(name, mebibytes, kMebibytes)) destination = Bytes(mebibytes << 20);
}

template <NamedEnum Enum>
void read_enumerators(ObjectReader& reader, std::string_view name, std::vector<Enum>& destination) {
  const Json* values = reader.array(name, Need::required);
  if (values == nullptr) return;
  for (std::size_t i = 0; i < values->size(); ++i) {
    Enum read{};
    const std::string pointer = child_pointer(reader.pointer_to(name), i);
    if (read_enumerator((*values)[i], pointer, reader.problems(), read)) destination.push_back(read);
  }
}

// What a card and a system have in common.
template <class Row>
void read_identity(ObjectReader& reader, Row& row) {
  if (reader.string("id", row.id, Need::required) && row.id.empty()) {
    report(reader.problems(), ProblemCode::missing_field, reader.pointer_to("id"));
  }
  reader.string("name", row.name, Need::required);
  reader.string("vendor", row.vendor, Need::required);
  reader.enumerator("status", row.status);
  reader.enumerator("confidence", row.confidence);
  reader.strings("doubtful", row.doubtful);
  reader.string("read", row.read);
  reader.strings("sources", row.sources);
  reader.ignore("note");
}

void read_memory(ObjectReader& reader, Gpu& gpu) {
  reader.integer("memory_gb", gpu.memory_gb, kPositive, Need::required);
  reader.string("memory_type", gpu.memory_type);
  reader.boolean("unified_memory", gpu.unified_memory);
  read_mebibytes(reader, "usable_mib", gpu.usable);
  read_mebibytes(reader, "usable_ecc_on_mib", gpu.usable_ecc_on);
  reader.enumerator("usable_basis", gpu.usable_basis, Need::required);
  read_mebibytes(reader, "torch_total_mib", gpu.torch_total);
  reader.number("memory_bandwidth_gb_per_s", gpu.memory_bandwidth_gb_per_s, kRate, Need::required);
}

void read_rates(ObjectReader& reader, Gpu& gpu) {
  reader.number("fp32_tflops", gpu.fp32_tflops, kRate);
  reader.number("tf32_tflops", gpu.tf32_tflops, kRate);
  reader.number("bf16_tflops", gpu.bf16_tflops, kRate);
  reader.number("fp16_tflops", gpu.fp16_tflops, kRate);
  reader.number("fp8_tflops", gpu.fp8_tflops, kRate);
  reader.number("fp4_tflops", gpu.fp4_tflops, kRate);
  read_enumerators(reader, "precisions", gpu.formats);
}

void read_links(ObjectReader& reader, Gpu& gpu) {
  reader.enumerator("link", gpu.link);
  reader.number("link_gb_per_s", gpu.link_gb_per_s, kRate);
  reader.integer("link_domain", gpu.link_domain, kDomain);
  reader.integer("pcie_generation", gpu.pcie_generation, kPositive, Need::required);
  reader.integer("pcie_lanes", gpu.pcie_lanes, kPositive, Need::required);
}

void report_inconsistent(ObjectReader& reader, std::string_view field, std::string_view other) {
  report(reader.problems(), ProblemCode::inconsistent, reader.pointer_to(field),
         {{"field", std::string(field)}, {"other", std::string(other)}});
}

// No process is told of more memory than the driver has, and a known figure has a basis.
void check_memory(ObjectReader& reader, const Gpu& gpu) {
  if (gpu.torch_total > gpu.usable) report_inconsistent(reader, "torch_total_mib", "usable_mib");
  if (gpu.usable_ecc_on > gpu.usable) report_inconsistent(reader, "usable_ecc_on_mib", "usable_mib");
  if (reader.has("usable_basis") && (gpu.usable.value == 0) != (gpu.usable_basis == UsableBasis::unknown)) {
    report_inconsistent(reader, "usable_basis", "usable_mib");
  }
}

void read_chassis(ObjectReader& reader, System& system) {
  reader.number("network_gbit_per_s_per_gpu", system.network_gbit_per_s_per_gpu, kRate);
  reader.string("cpu", system.cpu);
  reader.integer("dimm_slots", system.dimm_slots, kAnyCount);
  reader.integer("max_ram_gb", system.max_ram_gb, kAnyCount);
  reader.integer("height_u", system.height_u, kAnyCount);
  reader.number("max_power_kw", system.max_power_kw, kRate);
  reader.enumerator("max_power_basis", system.max_power_basis);
  reader.enumerator("cooling", system.cooling);
}

// At least one count, each larger than the one before.
void check_counts(ObjectReader& reader, const std::vector<std::int64_t>& counts) {
  const auto step_down = std::adjacent_find(counts.begin(), counts.end(), std::greater_equal<>());
  if (counts.empty() || step_down != counts.end()) report_inconsistent(reader, "gpu_counts", "gpu_counts");
}

bool same_id(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

template <class Row>
auto find_row(std::vector<Row>& rows, std::string_view id) {
  return std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return same_id(row.id, id); });
}

// The rows of a list that could be read; the problems of the others.
template <class Row>
std::vector<Row> read_rows(const Json& list, const std::string& pointer,
                           Result<Row> (*read)(const Json&, const std::string&), Problems& problems) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string place = child_pointer(pointer, i);
    Result<Row> row = read(list[i], place);
    if (!row.ok()) {
      problems.insert(problems.end(), row.problems().begin(), row.problems().end());
    } else if (const auto twin = find_row(rows, row.value().id); twin != rows.end()) {
      report(problems, ProblemCode::inconsistent, child_pointer(place, "id"), {{"field", "id"}, {"other", twin->id}});
    } else {
      rows.push_back(std::move(row).value());
    }
  }
  return rows;
}

template <class Row>
void merge(std::vector<Row>& rows, std::vector<Row> added, bool replace) {
  if (replace) rows.clear();
  for (Row& row : added) {
    const auto old = find_row(rows, row.id);
    if (old != rows.end()) {
      *old = std::move(row);
    } else {
      rows.push_back(std::move(row));
    }
  }
}

std::string closest_gpu(const Catalogue& catalogue, std::string_view id) {
  std::vector<std::string_view> known;
  for (const Gpu& gpu : catalogue.gpus) known.push_back(gpu.id);
  return std::string(closest(id, known));
}

void check_gpus_of(Catalogue& catalogue, const Json& systems, const std::string& pointer, Problems& problems) {
  for (std::size_t i = 0; i < systems.size(); ++i) {
    const Json& gpus = systems[i].at("gpus");
    for (std::size_t j = 0; j < gpus.size(); ++j) {
      const std::string& id = gpus[j].get_ref<const std::string&>();
      if (find_row(catalogue.gpus, id) != catalogue.gpus.end()) continue;
      report(problems, ProblemCode::unknown_gpu, child_pointer(child_pointer(child_pointer(pointer, i), "gpus"), j),
             {{"value", shortened(id)}, {"closest", closest_gpu(catalogue, id)}});
    }
  }
}

// Systems spell an id as the card does, and those that were there before lose the cards that are gone.
void settle_gpus_of(System& system, std::vector<Gpu>& gpus) {
  std::erase_if(system.gpus, [&](const std::string& id) { return find_row(gpus, id) == gpus.end(); });
  for (std::string& id : system.gpus) id = find_row(gpus, id)->id;
}

void settle_gpus(Catalogue& catalogue) {
  for (System& system : catalogue.systems) settle_gpus_of(system, catalogue.gpus);
  std::erase_if(catalogue.systems, [](const System& system) { return system.gpus.empty(); });
}

}  // namespace

Result<Gpu> read_gpu(const Json& row, const std::string& pointer) {
  Problems problems;
  Gpu gpu;
  ObjectReader reader(row, pointer, problems);
  read_identity(reader, gpu);
  reader.string("architecture", gpu.architecture, Need::required);
  reader.string("compute_capability", gpu.compute_capability);
  reader.string("gfx", gpu.gfx);
  reader.enumerator("form_factor", gpu.form_factor, Need::required);
  reader.string("release", gpu.release);
  read_memory(reader, gpu);
  read_rates(reader, gpu);
  read_links(reader, gpu);
  reader.integer("tdp_w", gpu.tdp_w, kPositive);
  reader.integer("gpus_per_board", gpu.gpus_per_board, kPositive);
  reader.integer("max_per_server", gpu.max_per_server, kPositive, Need::required);
  reader.finish();
  check_memory(reader, gpu);
  if (!problems.empty()) return problems;
  return gpu;
}

Result<System> read_system(const Json& row, const std::string& pointer) {
  Problems problems;
  System system;
  ObjectReader reader(row, pointer, problems);
  read_identity(reader, system);
  reader.enumerator("type", system.type, Need::required);
  if (reader.strings("gpus", system.gpus, Need::required) && system.gpus.empty()) {
    report(problems, ProblemCode::missing_field, reader.pointer_to("gpus"));
  }
  if (reader.integers("gpu_counts", system.gpu_counts, limits::kGpuCount, Need::required)) {
    check_counts(reader, system.gpu_counts);
  }
  reader.enumerator("topology", system.topology, Need::required);
  reader.boolean("nvlink_bridge", system.nvlink_bridge);
  reader.integer("link_domain", system.link_domain, kDomain);
  read_chassis(reader, system);
  reader.finish();
  if (!problems.empty()) return problems;
  return system;
}

Result<Catalogue> extend_catalogue(Catalogue catalogue, const Json& extension) {
  Problems problems;
  ObjectReader reader(extension, "", problems);
  bool replace = false;
  reader.boolean("replace", replace);
  const Json* gpus = reader.array("gpus");
  const Json* systems = reader.array("systems");
  reader.finish();
  if (gpus != nullptr) merge(catalogue.gpus, read_rows(*gpus, "/gpus", read_gpu, problems), replace);
  if (systems != nullptr) merge(catalogue.systems, read_rows(*systems, "/systems", read_system, problems), replace);
  if (!problems.empty()) return problems;
  if (systems != nullptr) check_gpus_of(catalogue, *systems, "/systems", problems);
  if (!problems.empty()) return problems;
  settle_gpus(catalogue);
  return catalogue;
}

}  // namespace vramplan
