// Readers, the vendor's file, what a device gives and takes, and the search over the catalogue on small examples.
#include <doctest/doctest.h>

#include "catalogue_hardware.hpp"
#include "vramplan/device.hpp"
#include "vramplan/suggestion.hpp"

using namespace vramplan;
using namespace vramplan::literals;

namespace {

Json card(const std::string& id) {
  return {{"id", id},
          {"name", "Card"},
          {"vendor", "NVIDIA"},
          {"architecture", "Ada Lovelace"},
          {"compute_capability", "8.9"},
          {"form_factor", "desktop"},
          {"memory_gb", 24},
          {"usable_mib", 24564},
          {"usable_basis", "driver_total"},
          {"memory_bandwidth_gb_per_s", 1008},
          {"precisions", {"fp32", "fp16", "bf16", "fp8"}},
          {"pcie_generation", 4},
          {"pcie_lanes", 16},
          {"max_per_server", 4}};
}

Json box(const std::string& id, const std::vector<std::string>& gpus, const std::vector<int>& counts,
         const std::string& type = "pcie_server") {
  return {{"id", id},     {"name", "Box"},        {"vendor", "Vendor"}, {"type", type},
          {"gpus", gpus}, {"gpu_counts", counts}, {"topology", "pcie"}};
}

Gpu gpu_with(const std::string& field, const Json& value) {
  Json row = card("card");
  row[field] = value;
  const Result<Gpu> gpu = read_gpu(row);
  REQUIRE(gpu.ok());
  return gpu.value();
}

// "code pointer" of each problem, in order.
template <class T>
std::vector<std::string> problems_of(const Result<T>& result) {
  std::vector<std::string> found;
  for (const Problem& problem : result.problems())
    found.push_back(std::string(name_of(problem.code)) + " " + problem.pointer);
  return found;
}

std::vector<std::string> problems_with(const std::string& field, const Json& value) {
  Json row = card("card");
  row[field] = value;
  return problems_of(read_gpu(row));
}

// Braces around one value make a copy of it, not an array of one.
template <class... Values>
Json list(Values... values) {
  Json array = Json::array();
  (array.push_back(std::move(values)), ...);
  return array;
}

Catalogue catalogue_of(const Json& gpus, const Json& systems) {
  const Result<Catalogue> catalogue = extend_catalogue({}, {{"gpus", gpus}, {"systems", systems}});
  REQUIRE(catalogue.ok());
  return catalogue.value();
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("a card is read as it is written") {
  const Result<Gpu> read = read_gpu(card("rtx-4090"));
  REQUIRE(read.ok());
  const Gpu& gpu = read.value();
  CHECK(gpu.id == "rtx-4090");
  CHECK(gpu.usable == 24564_MiB);
  CHECK(gpu.form_factor == FormFactor::desktop);
  CHECK(gpu.has(TensorFormat::fp8));
  CHECK_FALSE(gpu.has(TensorFormat::fp4));
  CHECK(gpu.link == ScaleUpLink::none);
  CHECK(gpu.link_domain == 1);
}

TEST_CASE("every problem of a card has its pointer") {
  CHECK(problems_of(read_gpu(Json::array())) == Texts{"wrong_type "});
  CHECK(problems_with("form_factor", "dekstop") == Texts{"unknown_value /form_factor"});
  CHECK(problems_with("precisions", {"bf16", "bf17"}) == Texts{"unknown_value /precisions/1"});
  CHECK(problems_with("usable_mib", "24564") == Texts{"wrong_type /usable_mib", "inconsistent /usable_basis"});
  CHECK(problems_with("usable_mib", 24564.5) == Texts{"not_an_integer /usable_mib", "inconsistent /usable_basis"});
  CHECK(problems_with("tdp_w", -1) == Texts{"out_of_range /tdp_w"});
  CHECK(problems_with("price_usd", 1) == Texts{"unknown_field /price_usd"});
  CHECK(problems_with("id", "") == Texts{"missing_field /id"});
  CHECK(problems_with("torch_total_mib", 24565) == Texts{"inconsistent /torch_total_mib"});
  CHECK(problems_with("usable_basis", "unknown") == Texts{"inconsistent /usable_basis"});
}

TEST_CASE("every missing field of a row is named") {
  CHECK(problems_of(read_gpu(Json::object())).size() == 12);
  CHECK(problems_of(read_system(Json::object(), "/systems/3")) ==
        Texts{"missing_field /systems/3/id", "missing_field /systems/3/name", "missing_field /systems/3/vendor",
              "missing_field /systems/3/type", "missing_field /systems/3/gpus", "missing_field /systems/3/gpu_counts",
              "missing_field /systems/3/topology"});
}

TEST_CASE("counts of a system ascend and are at least one") {
  CHECK(read_system(box("a", {"x"}, {1, 2, 4})).ok());
  CHECK(problems_of(read_system(box("a", {"x"}, {2, 1}))) == Texts{"inconsistent /gpu_counts"});
  CHECK(problems_of(read_system(box("a", {"x"}, {1, 1}))) == Texts{"inconsistent /gpu_counts"});
  CHECK(problems_of(read_system(box("a", {"x"}, {}))) == Texts{"inconsistent /gpu_counts"});
  CHECK(problems_of(read_system(box("a", {"x"}, {0}))) == Texts{"out_of_range /gpu_counts/0"});
  CHECK(problems_of(read_system(box("a", {}, {1}))) == Texts{"missing_field /gpus"});
}

TEST_CASE("a vendor adds rows, and replaces those with the same id") {
  const Catalogue before = catalogue_of(list(card("a"), card("b")), list(box("one", {"a", "b"}, {1})));
  Json changed = card("A");
  changed["memory_gb"] = 48;
  const Result<Catalogue> after = extend_catalogue(before, {{"gpus", list(changed, card("c"))}});
  REQUIRE(after.ok());
  CHECK(after.value().gpus.size() == 3);
  CHECK(after.value().gpus[0].memory_gb == 48);
  CHECK(after.value().systems[0].gpus == Texts{"A", "b"});  // spelled as the card spells itself
}

TEST_CASE("a vendor replaces a list; systems lose the cards that are gone") {
  const Catalogue before =
      catalogue_of(list(card("a"), card("b")), list(box("one", {"a", "b"}, {1}), box("two", {"b"}, {1})));
  const Result<Catalogue> after = extend_catalogue(before, {{"replace", true}, {"gpus", list(card("a"))}});
  REQUIRE(after.ok());
  CHECK(after.value().gpus.size() == 1);
  REQUIRE(after.value().systems.size() == 1);
  CHECK(after.value().systems[0].gpus == Texts{"a"});
}

TEST_CASE("a vendor's file is checked as a whole") {
  const Catalogue before = catalogue_of(list(card("rtx-4090")), list());
  CHECK(problems_of(extend_catalogue(before, {{"gpus", list(card("x"), card("X"))}})) ==
        Texts{"inconsistent /gpus/1/id"});
  CHECK(problems_of(extend_catalogue(before, {{"cards", list()}})) == Texts{"unknown_field /cards"});
  CHECK(problems_of(extend_catalogue(before, {{"gpus", Json::object()}})) == Texts{"wrong_type /gpus"});
  CHECK(problems_of(extend_catalogue(before, {{"gpus", list(1, card("y"), "z")}})) ==
        Texts{"wrong_type /gpus/0", "wrong_type /gpus/2"});
  const auto unknown = extend_catalogue(before, {{"systems", list(box("one", {"rtx-4090", "rtx-4091"}, {1}))}});
  CHECK(problems_of(unknown) == Texts{"unknown_gpu /systems/0/gpus/1"});
  CHECK(std::get<std::string>(unknown.problems()[0].arguments[1].value) == "rtx-4090");
}

TEST_CASE("a process gets PyTorch's total where it is known, else a share of the driver's") {
  CHECK(usable_bytes(gpu_with("torch_total_mib", 24109)) == 24109_MiB);
  CHECK(usable_bytes(gpu_with("usable_basis", "process_total")) == 24564_MiB);
  CHECK(usable_bytes(gpu_with("form_factor", "desktop")).value ==
        (24564LL << 20) / 1000 * 980 + (24564LL << 20) % 1000 * 980 / 1000);
  CHECK(usable_bytes(gpu_with("form_factor", "workstation")) > usable_bytes(gpu_with("form_factor", "desktop")));
  CHECK(usable_bytes(gpu_with("form_factor", "sxm")) > usable_bytes(gpu_with("form_factor", "workstation")));
}

TEST_CASE("a pool that the operating system shares is not ours alone") {
  Json row = card("spark");
  row["unified_memory"] = true;
  row["torch_total_mib"] = 20000;
  CHECK(usable_bytes(read_gpu(row).value()) == 18000_MiB);
}

TEST_CASE("no published figure, no bytes") {
  Json row = card("rubin");
  row["usable_mib"] = nullptr;
  row["usable_basis"] = "unknown";
  const Result<Gpu> gpu = read_gpu(row);
  REQUIRE(gpu.ok());
  CHECK(usable_bytes(gpu.value()) == Bytes(0));
}

TEST_CASE("the cuBLAS workspace follows the architecture") {
  const Gpu ada = gpu_with("compute_capability", "8.9");
  const Gpu hopper = gpu_with("compute_capability", "9.0");
  const Gpu blackwell = gpu_with("compute_capability", "12.0");
  CHECK(cublas_workspace(&ada).value == 8'519'680);  // 8.125 MiB
  CHECK(cublas_workspace(&hopper) == 32_MiB);
  CHECK(cublas_workspace(&blackwell) == 32_MiB);
  CHECK(cublas_workspace(nullptr) == 32_MiB);
  Gpu amd = ada;
  amd.vendor = "AMD";
  amd.gfx = "gfx90a";
  CHECK(cublas_workspace(&amd) == 32_MiB);
  amd.gfx = "gfx950";
  CHECK(cublas_workspace(&amd) == 128_MiB);
  amd.vendor = "Intel";
  CHECK(cublas_workspace(&amd) == Bytes(0));
}

TEST_CASE("context and communication") {
  CHECK(cuda_context(nullptr) == 512_MiB);
  CHECK(cuda_context_range(nullptr) == Estimate{256_MiB, 512_MiB, 1_GiB});
  CHECK(nccl_buffers(1, 1) == Bytes(0));
  CHECK(nccl_buffers(8, 0) == Bytes(0));
  CHECK(nccl_buffers(2, 1) == 1_GiB);
  CHECK(nccl_range(2, 1).low == Bytes(342'000'000));
  CHECK(nccl_range(8, 1).low == Bytes(392'000'000));
  CHECK(nccl_buffers(8, 3) == 1_GiB + Bytes(784'000'000));
}

TEST_CASE("a precision that a card lacks is refused with the reason") {
  const Gpu volta = gpu_with("precisions", {"fp32", "fp16"});
  CHECK(precision_refusal(volta, Precision::bf16) == "no_bf16_units");
  CHECK(precision_refusal(volta, Precision::bf16_amp) == "no_bf16_units");
  CHECK(precision_refusal(volta, Precision::fp8) == "no_fp8_units");
  CHECK_FALSE(precision_refusal(volta, Precision::fp16_amp));
  CHECK_FALSE(precision_refusal(volta, Precision::fp32));
  Gpu gaudi = gpu_with("architecture", "Gaudi2");
  CHECK(state_format_refusal(gaudi, StateFormat::int8) == "no_8bit_optimizers");
  CHECK_FALSE(state_format_refusal(volta, StateFormat::int8));
  CHECK(weight_format_caution(gaudi, WeightFormat::nf4_dq) == "bitsandbytes_4bit_partial");
  CHECK_FALSE(weight_format_caution(gaudi, WeightFormat::int8));
}

TEST_CASE("offers: one box where it is large enough, else the fewest boxes; workstations are not combined") {
  const Catalogue catalogue =
      catalogue_of(list(card("a")), list(box("hgx", {"a"}, {8}, "hgx"), box("pcie", {"a"}, {1, 2, 4, 8, 10}),
                                         box("tower", {"a"}, {1, 2, 4}, "workstation")));
  const auto two = offers_for(catalogue, "a", 2);
  REQUIRE(two.size() == 3);
  CHECK(two[0].id == "tower");
  CHECK(two[0].gpus_in_system == 2);
  CHECK(two[2].id == "hgx");
  CHECK(two[2].gpus_in_system == 8);
  const auto sixteen = offers_for(catalogue, "a", 16);
  REQUIRE(sixteen.size() == 2);
  CHECK(sixteen[0].id == "pcie");
  CHECK(sixteen[0].systems_needed == 2);
  CHECK(sixteen[0].gpus_in_system == 8);  // 2 x 8, not 2 x 10
  CHECK(sixteen[1].systems_needed == 2);
  CHECK(offers_for(catalogue, "b", 1).empty());
}

TEST_CASE("suggestions: comfortable first, then fewest GPUs; what is not published stands apart") {
  Json large = card("large"), old = card("old"), secret = card("secret"), small = card("small");
  large["usable_mib"] = 81920;
  old["precisions"] = {"fp32", "fp16"};
  secret["usable_mib"] = nullptr;
  secret["usable_basis"] = "unknown";
  small["usable_mib"] = 1024;
  const Catalogue catalogue = catalogue_of(list(small, card("medium"), large, old, secret),
                                           list(box("box", {"medium", "large"}, {1, 2, 4, 8})));
  const NeedPerGpu need = [](const Gpu&, std::int64_t count) -> std::optional<RunNeed> {
    const Bytes bytes = 1_GiB + shard_up(40_GiB, count);
    return RunNeed{{bytes, bytes, bytes}};
  };
  const HardwareSuggestions found = suggest_hardware(catalogue, {}, need);
  REQUIRE(found.fitting.size() == 2);
  CHECK(found.fitting[0].gpu == "large");
  CHECK(found.fitting[0].count == 1);
  CHECK(found.fitting[0].verdict == Verdict::comfortable);
  CHECK(found.fitting[0].systems.at(0).id == "box");
  CHECK(found.fitting[1].gpu == "medium");
  CHECK(found.fitting[1].count == 2);
  CHECK(found.fitting[1].group == SystemGroup::pcie_server);
  CHECK(found.too_small == Texts{"small"});
  CHECK(found.unknown == Texts{"secret"});
  REQUIRE(found.refused.size() == 1);
  CHECK(found.refused[0].reason == "no_bf16_units");
}

TEST_CASE("a run that cannot be spread further is found all the same") {
  const std::vector<std::int64_t> counts(std::begin(kTriedCounts), std::end(kTriedCounts));
  const auto found = smallest_fitting(counts, 24_GiB, Verdict::tight, [](std::int64_t n) -> std::optional<RunNeed> {
    if (n > 4 || n == 3) return std::nullopt;  // a global batch of four sequences
    const Bytes bytes = shard_up(80_GiB, n);
    return RunNeed{{bytes, bytes, bytes}};
  });
  REQUIRE(found);
  CHECK(found->count == 4);
}
