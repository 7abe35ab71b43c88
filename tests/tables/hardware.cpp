// core/data/gpus and core/data/systems against tables of what was read, and against what visitors were told.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "catalogue_hardware.hpp"
#include "vramplan/device.hpp"
#include "vramplan/suggestion.hpp"

using namespace vramplan;

#ifndef VRAMPLAN_SOURCE_DIR
#define VRAMPLAN_SOURCE_DIR "."
#endif

namespace {

const std::filesystem::path kRoot = VRAMPLAN_SOURCE_DIR;

Json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  REQUIRE_MESSAGE(file.good(), path.string());
  return Json::parse(file);
}

std::vector<std::filesystem::path> files_of(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(kRoot / "core/data" / folder)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

Json read_rows(const std::string& folder) {
  Json rows = Json::array();
  for (const auto& path : files_of(folder)) rows.push_back(read_json(path));
  return rows;
}

std::string text_of(const Problem& problem) { return std::string(name_of(problem.code)) + " " + problem.pointer; }

template <class Row>
std::vector<Row> read_folder(const std::string& folder, Result<Row> (*read)(const Json&, const std::string&)) {
  std::vector<Row> rows;
  for (const auto& path : files_of(folder)) {
    const Result<Row> row = read(read_json(path), "");
    for (const Problem& problem : row.problems()) FAIL_CHECK(path.filename().string() << ": " << text_of(problem));
    if (!row.ok()) continue;
    CHECK_MESSAGE(row.value().id + ".json" == path.filename().string(), "a file is named after its row");
    rows.push_back(row.value());
  }
  return rows;
}

const std::vector<Gpu>& gpus() {
  static const std::vector<Gpu> rows = read_folder<Gpu>("gpus", read_gpu);
  return rows;
}

const std::vector<System>& systems() {
  static const std::vector<System> rows = read_folder<System>("systems", read_system);
  return rows;
}

template <class Row>
const Row* find_row(const std::vector<Row>& rows, std::string_view id) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.id == id; });
  return found == rows.end() ? nullptr : &*found;
}

const Gpu& gpu(std::string_view id) {
  const Gpu* found = find_row(gpus(), id);
  REQUIRE_MESSAGE(found != nullptr, id);
  return *found;
}

std::vector<std::string> formats_of(const Gpu& row) {
  std::vector<std::string> names;
  for (const TensorFormat format : row.formats) names.emplace_back(name_of(format));
  return names;
}

bool is_date(const std::string& text) { return text.size() == 10 && text[4] == '-' && text[7] == '-'; }

double rate_of(const Gpu& row, TensorFormat format) {
  switch (format) {
    case TensorFormat::fp32: return row.fp32_tflops;
    case TensorFormat::fp16: return row.fp16_tflops;
    case TensorFormat::bf16: return row.bf16_tflops;
    case TensorFormat::fp8: return row.fp8_tflops;
    case TensorFormat::fp4: return row.fp4_tflops;
  }
  return 0;
}

}  // namespace

TEST_CASE("every card of the table has its id, size and precisions") {
  const Json table = read_json(kRoot / "tests/tables/gpus.json");
  CHECK(table.size() == gpus().size());
  for (const Json& row : table) {
    const std::string id = row.at("id");
    CAPTURE(id);
    const Gpu* card = find_row(gpus(), id);
    REQUIRE(card != nullptr);
    CHECK(card->memory_gb == row.at("memory_gb").get<std::int64_t>());
    const std::int64_t usable_mib = row.at("usable_mib").is_null() ? 0 : row.at("usable_mib").get<std::int64_t>();
    CHECK(card->usable.value == usable_mib << 20);
    CHECK(formats_of(*card) == row.at("precisions").get<std::vector<std::string>>());
  }
}

TEST_CASE("every system of the table has its type, cards and counts") {
  const Json table = read_json(kRoot / "tests/tables/systems.json");
  CHECK(table.size() == systems().size());
  for (const Json& row : table) {
    const std::string id = row.at("id");
    CAPTURE(id);
    const System* system = find_row(systems(), id);
    REQUIRE(system != nullptr);
    CHECK(name_of(system->type) == row.at("type").get<std::string>());
    CHECK(system->gpus == row.at("gpus").get<std::vector<std::string>>());
    CHECK(system->gpu_counts == row.at("gpu_counts").get<std::vector<std::int64_t>>());
  }
}

TEST_CASE("the rows make one catalogue: ids are unique and every card that a system names is known") {
  std::set<std::string> ids;
  for (const Gpu& row : gpus()) CHECK_MESSAGE(ids.insert(row.id).second, row.id);
  for (const System& row : systems()) {
    CHECK_MESSAGE(ids.insert(row.id).second, row.id);
    for (const std::string& id : row.gpus) CHECK_MESSAGE(find_row(gpus(), id) != nullptr, row.id << " names " << id);
  }
}

TEST_CASE("every row and every constant has a known source, and every row a date") {
  const Json sources = read_json(kRoot / "core/data/sources.json");
  const auto check = [&](const auto& row) {
    CHECK_MESSAGE(is_date(row.read), row.id);
    CHECK_MESSAGE(!row.sources.empty(), row.id);
    for (const std::string& source : row.sources) CHECK_MESSAGE(sources.contains(source), row.id << ": " << source);
  };
  for (const Gpu& row : gpus()) check(row);
  for (const System& row : systems()) check(row);
  for (const std::string_view source :
       {device::kUsableSource, device::kContextSource, device::kCublasSource, device::kNcclSource,
        std::string_view("dgx-spark-notes"), std::string_view("bitsandbytes-accelerators"),
        std::string_view("fit-verdict")}) {
    CHECK_MESSAGE(sources.contains(std::string(source)), source);
  }
}

TEST_CASE("every source says what it is and where") {
  const Json sources = read_json(kRoot / "core/data/sources.json");
  for (const auto& [id, source] : sources.items()) {
    CHECK_MESSAGE(source.contains("title"), id);
    CHECK_MESSAGE((source.contains("url") || source.contains("citation")), id);
  }
}

TEST_CASE("a rate belongs to a format that the card has, and a format without a rate is marked") {
  for (const Gpu& row : gpus()) {
    for (const TensorFormat format :
         {TensorFormat::fp32, TensorFormat::fp16, TensorFormat::bf16, TensorFormat::fp8, TensorFormat::fp4}) {
      if (rate_of(row, format) > 0) CHECK_MESSAGE(row.has(format), row.id << " " << name_of(format));
    }
  }
}

TEST_CASE("usable memory is near the marketing figure and what a process gets a little below it") {
  for (const Gpu& row : gpus()) {
    if (row.usable.value == 0) continue;
    CAPTURE(row.id);
    const double marketed = static_cast<double>(row.memory_gb) * 1e9;
    const double reported = static_cast<double>(row.usable.value);
    CHECK(reported > 0.99 * marketed);
    CHECK(reported < 1.075 * marketed);
    const double process = static_cast<double>(usable_bytes(row).value);
    CHECK(process <= reported);
    CHECK(process >= (row.unified_memory ? 0.89 : 0.979) * reported);
  }
}

TEST_CASE("the share rule is within a percent and a half of every PyTorch total that is known") {
  for (Gpu row : gpus()) {
    if (row.torch_total.value == 0 || row.usable_basis != UsableBasis::driver_total) continue;
    CAPTURE(row.id);
    const auto known = static_cast<double>(row.torch_total.value);
    row.torch_total = Bytes(0);
    const double error = static_cast<double>(usable_bytes(row).value) / known - 1;
    MESSAGE(row.id << ": rule over PyTorch's total " << error * 100 << " %");
    CHECK(error < 0.0015);  // the rule may promise too little, hardly ever too much
    CHECK(error > -0.015);
  }
}

TEST_CASE("cards without a published figure have no usable bytes") {
  std::vector<std::string> unknown;
  for (const Gpu& row : gpus()) {
    if (usable_bytes(row).value == 0) unknown.push_back(row.id);
  }
  CHECK(unknown == std::vector<std::string>{"gb300-desktop-252gb", "mi455x", "rubin-288gb"});
}

TEST_CASE("C10: the sizes that visitors were told, and the exact bytes behind them") {
  struct Row {
    const char* id;
    std::int64_t memory_gb, usable_mib;
    const char* memory_type;
  };
  for (const Row& row : {Row{"h100-sxm-80gb", 80, 81559, "HBM3"}, Row{"h200-sxm-141gb", 141, 143771, "HBM3e"},
                         Row{"a100-sxm4-40gb", 40, 40960, "HBM2"}, Row{"a100-sxm4-80gb", 80, 81920, "HBM2e"},
                         Row{"rtx-4090", 24, 24564, "GDDR6X"}, Row{"b300-sxm-288gb", 288, 275040, "HBM3e"}}) {
    CAPTURE(row.id);
    CHECK(gpu(row.id).memory_gb == row.memory_gb);
    CHECK(gpu(row.id).usable.value == row.usable_mib << 20);
    CHECK(gpu(row.id).memory_type == row.memory_type);
  }
  CHECK(gpu("b300-sxm-288gb").status == Status::shipping);
}

TEST_CASE("C11: links and precisions decide, too") {
  CHECK(gpu("h100-sxm-80gb").link == ScaleUpLink::nvlink);
  CHECK(gpu("h100-sxm-80gb").link_gb_per_s == 900);
  CHECK(gpu("rtx-4090").link == ScaleUpLink::none);
  CHECK_FALSE(precision_refusal(gpu("h100-sxm-80gb"), Precision::fp8));
  CHECK(precision_refusal(gpu("a100-sxm4-80gb"), Precision::fp8) == "no_fp8_units");
  CHECK(precision_refusal(gpu("v100-sxm2-32gb"), Precision::bf16_amp) == "no_bf16_units");
  for (const Gpu& row : gpus()) {
    CHECK_MESSAGE(!precision_refusal(row, Precision::fp32), row.id);
    CHECK_MESSAGE(!precision_refusal(row, Precision::fp16_amp), row.id);
  }
}

TEST_CASE("L8: workstations with 2 or 4 cards of 24 to 48 GB") {
  for (const std::string id : {"rtx-4090", "a10g", "l40s"}) {
    for (const std::int64_t count : {2, 4}) {
      const bool exists = std::any_of(systems().begin(), systems().end(), [&](const System& system) {
        const auto holds = [](const auto& values, const auto& value) {
          return std::find(values.begin(), values.end(), value) != values.end();
        };
        return group_of(system) == SystemGroup::workstation && holds(system.gpus, id) &&
               holds(system.gpu_counts, count);
      });
      CHECK_MESSAGE(exists, count << " x " << id);
    }
    CHECK(gpu(id).memory_gb >= 24);
    CHECK(gpu(id).memory_gb <= 48);
  }
}

TEST_CASE("the rows can be read as one file, and L8: workstations are proposed when they suffice") {
  const Result<Catalogue> catalogue =
      extend_catalogue({}, {{"gpus", read_rows("gpus")}, {"systems", read_rows("systems")}});
  for (const Problem& problem : catalogue.problems()) FAIL_CHECK(text_of(problem));
  REQUIRE(catalogue.ok());
  // A run that a card of 24 GB holds when it is spread over two.
  const auto need = [](const Gpu&, std::int64_t count) -> std::optional<RunNeed> {
    const Bytes bytes = Bytes(4LL << 30) + shard_up(Bytes(32LL << 30), count);
    return RunNeed{{bytes, bytes, bytes}};
  };
  const HardwareSuggestions found = suggest_hardware(catalogue.value(), {}, need);
  CHECK(found.fitting.size() + found.too_small.size() + found.refused.size() + found.unknown.size() == gpus().size());
  const auto on_rtx_4090 = std::find_if(found.fitting.begin(), found.fitting.end(),
                                        [](const HardwareSuggestion& row) { return row.gpu == "rtx-4090"; });
  REQUIRE(on_rtx_4090 != found.fitting.end());
  CHECK(on_rtx_4090->count == 2);
  CHECK(on_rtx_4090->group == SystemGroup::workstation);
  CHECK(on_rtx_4090->systems.size() == 1);
  CHECK(found.fitting.front().verdict == Verdict::comfortable);
  CHECK(found.fitting.front().count == 1);
}

TEST_CASE("the workspace of each generation") {
  CHECK(cublas_workspace(&gpu("a100-sxm4-80gb")).value == 8'519'680);
  for (const char* id : {"h100-sxm-80gb", "b200-sxm-180gb", "rtx-5090", "rubin-288gb", "mi250x", "rx-7900-xtx"}) {
    CHECK_MESSAGE(cublas_workspace(&gpu(id)).value == 32 << 20, id);
  }
  CHECK(cublas_workspace(&gpu("mi300x")).value == 128 << 20);
  CHECK(cublas_workspace(&gpu("mi355x")).value == 128 << 20);
}

TEST_CASE("groups: every one has systems, and a card belongs where its form factor says") {
  std::set<SystemGroup> groups;
  for (const System& system : systems()) groups.insert(group_of(system));
  CHECK(groups.size() == 4);
  CHECK(group_of(gpu("rtx-4090")) == SystemGroup::workstation);
  CHECK(group_of(gpu("l40s")) == SystemGroup::pcie_server);
  CHECK(group_of(gpu("h100-sxm-80gb")) == SystemGroup::hgx);
  CHECK(group_of(gpu("gh200-96gb")) == SystemGroup::hgx);
  CHECK(group_of(gpu("gb200-186gb")) == SystemGroup::rack);
  CHECK(group_of(gpu("gb10-128gb")) == SystemGroup::workstation);
}
