// Published runs with their layout and the time of a step (tests/tables/layouts.jsonl), as the speed stage sees them.
#pragma once

#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "catalogue.hpp"
#include "parse.hpp"
#include "request.hpp"
#include "vramplan/architecture.hpp"
#include "vramplan/speed.hpp"

namespace vramplan::support {

struct LayoutRow {
  std::string id;
  std::string source;
  std::string group;  // rows of one group differ in nothing but their layout; "" in none
  double seconds = 0;
  PlanRequest request;
  ModelArchitecture model;
  Gpu gpu;  // with what the row says of a card that the catalogue has in another form
  NodeShape node;
  bool experts = false;

  [[nodiscard]] Speed speed(const Calibration& calibration = kCalibration) const {
    const TrainingChoice& t = request.training;
    return SpeedModel(model, t, gpu, node, calibration)(*request.layout, {t.micro_batch, t.sequence_length});
  }
  [[nodiscard]] double tokens() const {
    const TrainingChoice& t = request.training;
    return static_cast<double>(*t.global_batch) * static_cast<double>(t.sequence_length);
  }
};

inline bool has_experts(const ModelArchitecture& model) {
  for (const LayerGroup& group : model.groups) {
    for (const Mlp& mlp : group.mlps) {
      if (std::holds_alternative<MoeMlp>(mlp)) return true;
    }
  }
  return false;
}

// Frameworks and layouts that the planner does not plan yet have their speed all the same; anything else is an error.
inline LayoutRow read_layout_row(const nlohmann::json& document) {
  LayoutRow row;
  row.id = document.at("id");
  for (const Problem& p : read_request(document.at("request"), row.request)) {
    if (p.code != ProblemCode::not_supported) throw std::runtime_error(row.id + ": " + p.pointer);
  }
  row.request = resolve_defaults(row.request);
  Result<ResolvedModel> model = resolve_model(row.request.model, shipped_catalogue());
  const Gpu* gpu = find_gpu(shipped_catalogue(), row.request.hardware->gpu);
  if (!model.ok() || gpu == nullptr) throw std::runtime_error(row.id + ": model or GPU");
  row.model = std::move(model).value().architecture;
  row.gpu = *gpu;
  if (document.contains("card")) {
    const auto& card = document.at("card");
    row.gpu.bf16_tflops = card.value("bf16_tflops", gpu->bf16_tflops);
    row.gpu.memory_bandwidth_gb_per_s = card.at("memory_bandwidth_gb_per_s");
  }
  row.source = document.at("source");
  row.group = document.value("group", "");
  row.seconds = document.at("step_seconds");
  row.experts = has_experts(row.model);
  std::optional<double> network;
  if (document.contains("network_gbit_per_s_per_gpu"))
    network = document.at("network_gbit_per_s_per_gpu").get<double>();
  row.node = node_shape(row.gpu, *row.request.hardware->per_node, network);
  return row;
}

inline std::vector<LayoutRow> layout_rows() {
  std::ifstream file(VRAMPLAN_SOURCE_DIR "/tests/tables/layouts.jsonl");
  std::vector<LayoutRow> rows;
  for (std::string line; std::getline(file, line);) rows.push_back(read_layout_row(nlohmann::json::parse(line)));
  return rows;
}

}  // namespace vramplan::support
