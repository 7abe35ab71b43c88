// What the planner knows by name: models, GPUs, systems. Values only; core/json reads them from core/data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "vramplan/model.hpp"
#include "vramplan/units.hpp"

namespace vramplan {

// How far a fact can be trusted; carried through to the report.
enum class Confidence : std::uint8_t { high, medium, low };

struct ModelCard {
  std::string id;  // Hugging Face repository
  std::string label;
  std::string family;
  std::string model_type;
  std::string release;  // yyyy-mm, empty when unknown
  std::string license;
  std::vector<std::string> aliases;  // other repositories with the same shape
  std::string source;
  std::string read;  // yyyy-mm-dd, when the source was read
  Confidence confidence = Confidence::high;
  ModelArchitecture architecture;
};

enum class FormFactor : std::uint8_t { desktop, workstation, pcie, nvl, sxm, oam, superchip };
enum class Status : std::uint8_t { shipping, eol, announced };
// What `Gpu::usable` is: the total that the vendor's tool shows (nvidia-smi, hl-smi), the total that a process is told
// (PyTorch, HIP, cuDeviceTotalMem), an estimate from related cards, the nominal size, or nothing that anybody
// published.
enum class UsableBasis : std::uint8_t { driver_total, process_total, estimate, nominal, unknown };
enum class ScaleUpLink : std::uint8_t { none, nvlink, infinity_fabric, infinity_fabric_bridge, roce, ualink };
// Formats that the matrix units of a card multiply.
enum class TensorFormat : std::uint8_t { fp32, fp16, bf16, fp8, fp4 };

// One device as a process sees it: a card, one of the four GPUs of an A16, one of the two dies of an MI250X.
struct Gpu {
  std::string id;
  std::string name;
  std::string vendor;
  std::string architecture;
  std::string compute_capability;  // NVIDIA, "9.0"; empty otherwise or when not published
  std::string gfx;                 // AMD, "gfx942"; empty otherwise or when not published
  FormFactor form_factor = FormFactor::pcie;
  Status status = Status::shipping;
  std::string release;          // yyyy-mm, empty when unknown
  std::int64_t memory_gb = 0;   // the marketing figure, for words only
  std::string memory_type;      // HBM3, GDDR7, ...
  bool unified_memory = false;  // one pool for the operating system and the GPU
  Bytes usable;                 // what drivers report; 0 when nobody has published it (device.hpp: usable_bytes)
  Bytes usable_ecc_on;          // the same with error correction switched on; 0: no such switch, or always on
  UsableBasis usable_basis = UsableBasis::unknown;
  Bytes torch_total;  // PyTorch's "total capacity": less than `usable`, the driver keeps a slice; 0: not known
  double memory_bandwidth_gb_per_s = 0;
  // Dense tensor rates with FP32 accumulation, TFLOPS; 0: no such unit, or not published (the formats tell which).
  double fp32_tflops = 0, tf32_tflops = 0, bf16_tflops = 0, fp16_tflops = 0, fp8_tflops = 0, fp4_tflops = 0;
  std::vector<TensorFormat> formats;
  ScaleUpLink link = ScaleUpLink::none;
  double link_gb_per_s = 0;  // both directions together; 0: no link, or not published
  std::int64_t link_domain = 1;
  std::int64_t pcie_generation = 0;
  std::int64_t pcie_lanes = 0;
  std::int64_t tdp_w = 0;  // 0: not published
  std::int64_t gpus_per_board = 1;
  std::int64_t max_per_server = 0;
  Confidence confidence = Confidence::high;
  std::vector<std::string> doubtful;  // keys of core/data whose values are recalled, estimated or disputed
  std::string read;                   // yyyy-mm-dd, when the row was read
  std::vector<std::string> sources;   // ids into sources.json

  [[nodiscard]] bool has(TensorFormat format) const {
    return std::find(formats.begin(), formats.end(), format) != formats.end();
  }
};

enum class SystemType : std::uint8_t { workstation, deskside, pcie_server, hgx, oam, superchip, rack };
// How the page groups systems, from the smallest to the largest.
enum class SystemGroup : std::uint8_t { workstation, pcie_server, hgx, rack };
enum class Topology : std::uint8_t { pcie, pcie_switch, nvlink, nvswitch, mesh, superchip };
enum class Cooling : std::uint8_t { air, closed_loop_liquid, direct_liquid };
// What `System::max_power_kw` is. A supply's rating is a ceiling, not a draw.
enum class PowerBasis : std::uint8_t {
  unknown,
  estimate,
  psu_rating,
  redundant_psu_output,
  platform_maximum,
  reference_design,
  third_party
};

struct System {
  std::string id;
  std::string name;
  std::string vendor;
  SystemType type = SystemType::pcie_server;
  Status status = Status::shipping;
  std::vector<std::string> gpus;         // ids
  std::vector<std::int64_t> gpu_counts;  // ascending
  Topology topology = Topology::pcie;
  bool nvlink_bridge = false;  // pairs or fours of cards can be bridged
  std::int64_t link_domain = 1;
  double network_gbit_per_s_per_gpu = 0;  // with every NIC of the reference pattern fitted, one direction; 0: unknown
  std::string cpu;
  std::int64_t dimm_slots = 0;  // 0: unknown, or soldered
  std::int64_t max_ram_gb = 0;  // 0: unknown
  std::int64_t height_u = 0;    // 0: unknown, or not for a rack
  double max_power_kw = 0;      // 0: unknown
  PowerBasis max_power_basis = PowerBasis::unknown;
  Cooling cooling = Cooling::air;
  Confidence confidence = Confidence::high;
  std::vector<std::string> doubtful;
  std::string read;
  std::vector<std::string> sources;
};

[[nodiscard]] SystemGroup group_of(const System& system);
// Where a card belongs when no system offers it.
[[nodiscard]] SystemGroup group_of(const Gpu& gpu);

struct Catalogue {
  std::vector<ModelCard> models;
  std::vector<Gpu> gpus;
  std::vector<System> systems;
};

// By id, or for models by alias; case-insensitive. nullptr when unknown.
[[nodiscard]] const ModelCard* find_model(const Catalogue& catalogue, std::string_view id);
[[nodiscard]] const Gpu* find_gpu(const Catalogue& catalogue, std::string_view id);
[[nodiscard]] const System* find_system(const Catalogue& catalogue, std::string_view id);

}  // namespace vramplan
