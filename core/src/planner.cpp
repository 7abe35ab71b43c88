#include "vramplan/planner.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <memory>

#include "vramplan/changes.hpp"
#include "vramplan/closest.hpp"
#include "vramplan/curves.hpp"
#include "vramplan/device.hpp"
#include "vramplan/fit_matrix.hpp"
#include "vramplan/memory.hpp"
#include "vramplan/placement.hpp"

namespace vramplan {
namespace {

// The largest whole number that JavaScript keeps exactly.
constexpr std::int64_t kLargestOnTheWire = (std::int64_t{1} << 53) - 1;

// As many measured runs as a visitor compares at a glance.
constexpr std::size_t kNearestRuns = 4;
constexpr std::size_t kLayouts = 5;

struct Resolved {
  PlanRequest request;  // with a layout
  ResolvedModel model;
  const Gpu* gpu = nullptr;
  bool layout_chosen = false;  // by the planner
};

const Gpu* named_gpu(const PlanRequest& request, const Catalogue& catalogue, Problems& problems) {
  if (!request.hardware) return nullptr;
  const Gpu* gpu = find_gpu(catalogue, request.hardware->gpu);
  if (gpu != nullptr) return gpu;
  std::vector<std::string_view> ids;
  for (const Gpu& g : catalogue.gpus) ids.push_back(g.id);
  problems.push_back(
      {ProblemCode::unknown_gpu,
       "/hardware/gpu",
       {{"value", request.hardware->gpu}, {"closest", std::string(closest(request.hardware->gpu, ids))}}});
  return nullptr;
}

const Gpu* resolve_gpu(const PlanRequest& request, const Catalogue& catalogue, Problems& problems) {
  const Gpu* gpu = named_gpu(request, catalogue, problems);
  if (gpu == nullptr) return nullptr;
  if (const auto reason = precision_refusal(*gpu, request.training.precision)) {
    problems.push_back({ProblemCode::precision_unsupported,
                        "/training/precision",
                        {{"precision", std::string(name_of(request.training.precision))},
                         {"gpu", gpu->name},
                         {"reason", std::string(*reason)}}});
  }
  return gpu;
}

void check_targets(const Resolved& r, Problems& problems) {
  if (!has_adapters(r.request.training.method)) return;
  if (adapter_targets(r.request.training, parameter_groups(r.model.architecture)) != 0) return;
  problems.push_back({ProblemCode::inconsistent, "/training/lora/targets", {{"field", "targets"}, {"other", "model"}}});
}

Gpus gpus_of(const Resolved& r) {
  const HardwareChoice& chosen = *r.request.hardware;
  const Gpus usual = usual_nodes(*r.gpu, chosen.count);
  return {r.gpu, chosen.count, chosen.per_node.value_or(usual.per_node)};
}

// One GPU leaves no choice but under an engine that offloads what it has divided.
Problems choose_layout(Resolved& r) {
  r.layout_chosen = true;
  r.request.layout = LayoutChoice{};
  if (r.gpu == nullptr) return {};
  const auto found = Placement(r.model.architecture, r.request.training).best(gpus_of(r), true);
  if (!found) {
    return {{ProblemCode::inconsistent,
             "/training/global_batch",
             {{"field", std::string("global_batch")}, {"other", std::string("hardware.count")}}}};
  }
  r.request.layout = found->layout;
  return {};
}

Result<Resolved> resolve(const PlanRequest& request, const Catalogue& catalogue) {
  Problems problems = check_request(request);
  Resolved r;
  r.request = resolve_defaults(request);
  Result<ResolvedModel> model = resolve_model(request.model, catalogue);
  problems.insert(problems.end(), model.problems().begin(), model.problems().end());
  r.gpu = resolve_gpu(r.request, catalogue, problems);
  if (model.ok()) {
    r.model = std::move(model).value();
    check_targets(r, problems);
  }
  if (!problems.empty()) return problems;
  if (r.request.layout) {
    problems = check_layout(r.model.architecture, *r.request.layout);
  } else {
    problems = choose_layout(r);
  }
  if (!problems.empty()) return problems;
  return r;
}

Step step_for(const Resolved& r, std::int64_t stage) {
  return Step(prepare(r.model.architecture, r.request.training, *r.request.layout, cublas_workspace(r.gpu), stage));
}

// Every stage of the pipeline, and the step of the first that needs the most.
struct Stages {
  std::vector<MemoryEstimate> memory;
  Step binding;
  std::size_t binding_index = 0;
};
Stages stages_of(const Resolved& r) {
  Stages stages{{}, step_for(r, 0)};
  stages.memory.push_back(estimate_memory(stages.binding, r.gpu));
  for (std::int64_t i = 1; i < r.request.layout->pp; ++i) {
    Step step = step_for(r, i);
    stages.memory.push_back(estimate_memory(step, r.gpu));
    if (stages.memory.back().device.expected <= stages.memory[stages.binding_index].device.expected) continue;
    stages.binding_index = static_cast<std::size_t>(i);
    stages.binding = std::move(step);
  }
  return stages;
}

Inventory inventory_of(const Resolved& r) {
  const ModelArchitecture& model = r.model.architecture;
  return take_inventory(model, r.request.training, groups_for(model, r.request.training));
}

bool too_large(const MemoryEstimate& m) { return m.device.high.value > kLargestOnTheWire; }

std::optional<RunNeed> need_of(const std::optional<FoundLayout>& found) {
  return found ? std::optional(RunNeed{found->device, found->tokens_per_second}) : std::nullopt;
}

// What a run needs on other hardware, where it fits.
NeedPerGpu needs_of(std::shared_ptr<Placement> placement) {
  return [placement = std::move(placement)](const Gpu& gpu, std::int64_t count) {
    return need_of(placement->best(usual_nodes(gpu, count), false));
  };
}

std::vector<TimelinePoint> timeline_of(const Step& step) {
  std::vector<TimelinePoint> points;
  for (const Event event : step.events()) {
    Composition sum;
    for (const Contribution& c : step.contributions(event)) sum[c.component] += c.bytes();
    TimelinePoint point{event, step.live(event), {}};
    for (std::size_t i = 0; i < kComponentCount; ++i) {
      if (sum.bytes[i].value != 0) point.by_component.emplace_back(static_cast<Component>(i), sum.bytes[i]);
    }
    points.push_back(std::move(point));
  }
  return points;
}

void warn_about_model(const Resolved& r, std::vector<Warning>& out) {
  const ModelArchitecture& a = r.model.architecture;
  const std::int64_t length = r.request.training.sequence_length;
  if (r.model.inferred) out.push_back({WarningCode::model_inferred, "/model", {}});
  if (r.model.confidence != Confidence::high) {
    out.push_back(
        {WarningCode::model_confidence, "/model", {{"confidence", std::string(name_of(r.model.confidence))}}});
  }
  if (a.max_position_embeddings > 0 && length > a.max_position_embeddings) {
    out.push_back({WarningCode::beyond_context,
                   "/training/sequence_length",
                   {{"sequence_length", length}, {"maximum", a.max_position_embeddings}}});
  }
  Params towers;
  for (const Tower& t : a.towers) towers += t.parameters;
  if (towers.value > 0) out.push_back({WarningCode::towers_not_walked, "/model", {{"parameters", towers.value}}});
}

void warn_about_hardware(const Resolved& r, std::vector<Warning>& out) {
  if (r.layout_chosen && ranks_of(*r.request.layout) > 1)
    out.push_back({WarningCode::layout_chosen, "/layout", {{"count", ranks_of(*r.request.layout)}}});
  if (r.gpu == nullptr) return;
  if (r.gpu->usable.value == 0) out.push_back({WarningCode::usable_unknown, "/hardware/gpu", {{"gpu", r.gpu->name}}});
  std::string fields;
  for (const std::string& field : r.gpu->doubtful) fields += (fields.empty() ? "" : ", ") + field;
  if (!fields.empty())
    out.push_back({WarningCode::gpu_doubtful, "/hardware/gpu", {{"gpu", r.gpu->name}, {"fields", fields}}});
  const WeightFormat base = r.request.training.base_weights.value_or(WeightFormat::bf16);
  if (const auto reason = weight_format_caution(*r.gpu, base)) {
    out.push_back({WarningCode::weight_format_caution,
                   "/training/base_weights",
                   {{"gpu", r.gpu->name}, {"reason", std::string(*reason)}}});
  }
}

// Without a card: nodes of eight.
std::int64_t gpus_per_node(const Resolved& r) {
  return r.gpu != nullptr ? gpus_of(r).per_node : std::min(ranks_of(*r.request.layout), kUsualNode);
}

SpeedEstimate speed_of(const Resolved& r) {
  const TrainingChoice& t = r.request.training;
  SpeedEstimate estimate;
  if (const auto reason = speed_refusal(*r.gpu, t)) {
    estimate.refused = *reason;
    return estimate;
  }
  const NodeShape node = node_shape(*r.gpu, gpus_per_node(r), std::nullopt);
  const SpeedModel model(r.model.architecture, t, *r.gpu, node);
  estimate.speed = model(*r.request.layout, {t.micro_batch, t.sequence_length});
  if (t.tokens) estimate.budget = budget_of(estimate.speed, *t.tokens, *r.gpu, ranks_of(*r.request.layout));
  return estimate;
}

// All ranks of a node together.
void add_host_memory(const Step& step, std::int64_t per_node, Report& report) {
  Composition sum;
  for (const Contribution& c : step.host_memory()) sum[c.component] += c.bytes() * per_node;
  for (std::size_t i = 0; i < kComponentCount; ++i) {
    if (sum.bytes[i].value != 0) report.host_components.emplace_back(static_cast<Component>(i), sum.bytes[i]);
  }
  report.host_memory_per_node = sum.total();
}

double tokens_per_second(const Report& report) {
  return report.speed && report.speed->refused.empty() ? report.speed->speed.tokens_per_second.expected : 0;
}

// A changed request on the layout that it names, or on the one that suits it.
std::optional<RunNeed> need_of(const Resolved& r, const PlanRequest& changed) {
  const ModelArchitecture& model = r.model.architecture;
  Resolved other{changed, r.model, r.gpu};
  if (!changed.layout) {
    if (r.gpu == nullptr) return RunNeed{evaluate(model, changed.training, LayoutChoice{}, nullptr).device};
    return need_of(Placement(model, changed.training).best(gpus_of(other), true));
  }
  RunNeed need{evaluate(model, changed.training, *changed.layout, r.gpu).device};
  if (r.gpu == nullptr) return need;
  const SpeedEstimate speed = speed_of(other);
  if (speed.refused.empty()) need.tokens_per_second = speed.speed.tokens_per_second.expected;
  return need;
}

std::vector<Change> changes_of(const Resolved& r, const Report& report) {
  const Bytes usable = r.gpu != nullptr ? usable_bytes(*r.gpu) : Bytes{};
  return suggest_changes(own_choices(report), {report.memory.device, tokens_per_second(report)}, usable,
                         [&](const PlanRequest& changed) { return need_of(r, changed); });
}

// `own`: of the request as it is.
FitMatrix matrix_of(const Resolved& r, const Catalogue& catalogue, const NeedPerGpu& own) {
  return fit_matrix(catalogue, r.request, [&](const PlanRequest& column) {
    if (column.training.method == r.request.training.method) return own;
    return needs_of(std::make_shared<Placement>(r.model.architecture, column.training));
  });
}

// The shortest sequence that a curve begins with.
constexpr std::int64_t kShortestOfInterest = 128;

void add_curves(const Resolved& r, Outlook& outlook) {
  const TrainingChoice& t = r.request.training;
  const Bytes usable = r.gpu != nullptr ? usable_bytes(*r.gpu) : Bytes{};
  Evaluator evaluate(r.model.architecture, t);
  const auto need = [&](std::int64_t micro_batch, std::int64_t sequence_length) {
    return evaluate(*r.request.layout, {micro_batch, sequence_length}, r.gpu).device;
  };
  CurveValues batches{limits::kMicroBatch, std::nullopt};
  if (t.global_batch) batches.divides = *t.global_batch / r.request.layout->dp;
  outlook.micro_batch_curve = curve_of(t.micro_batch, batches, usable,
                                       [&](std::int64_t micro_batch) { return need(micro_batch, t.sequence_length); });
  const std::int64_t answers = t.generation ? t.generation->completion_length : 1;
  const std::int64_t shortest = std::max(answers, std::min(kShortestOfInterest, t.sequence_length));
  outlook.sequence_length_curve =
      curve_of(t.sequence_length, {{shortest, limits::kSequenceLength.maximum}, std::nullopt}, usable,
               [&](std::int64_t length) { return need(t.micro_batch, length); });
}

// Other models on this GPU. One model is asked for on several numbers of GPUs in a row: its graphs stay.
class OtherModels {
 public:
  explicit OtherModels(const Gpus& own) : own_(own) {}

  std::optional<RunNeed> operator()(const ModelCard& model, const TrainingChoice& training, std::int64_t count) {
    if (model_ != &model || method_ != training.method) {
      model_ = &model;
      method_ = training.method;
      placement_.emplace(model.architecture, training);
    }
    return need_of(placement_->best(count == own_.count ? own_ : usual_nodes(*own_.gpu, count), false));
  }

 private:
  Gpus own_;
  const ModelCard* model_ = nullptr;
  Method method_ = Method::full;
  std::optional<Placement> placement_;
};

std::vector<Growth> growth_of(const Resolved& r, const Catalogue& catalogue) {
  const Bytes usable = r.gpu != nullptr ? usable_bytes(*r.gpu) : Bytes{};
  if (usable.value == 0) return {};
  OtherModels others(gpus_of(r));
  return suggest_growth(r.request, catalogue, usable, std::ref(others));
}

// Of all users at their full context.
bool too_large(const AfterTraining& after) {
  return std::any_of(after.serving.begin(), after.serving.end(),
                     [](const ServingMemory& s) { return s.total.value > kLargestOnTheWire; });
}

void add_evidence(const Evidence& evidence, const Report& report, Outlook& outlook) {
  if (const AccuracyGroup* group = accuracy_group(evidence, report.request.training)) outlook.accuracy = *group;
  outlook.nearest = nearest_runs(evidence, report.request, report.inventory.total, kNearestRuns);
}

Outlook outlook_of(const Resolved& r, const Report& report, const Catalogue& catalogue, const Evidence& evidence) {
  Outlook outlook;
  SuggestionQuery query;
  query.precision = r.request.training.precision;
  query.optimizer_states = r.request.training.optimizer.states;
  const auto placement = std::make_shared<Placement>(r.model.architecture, r.request.training);
  const NeedPerGpu own = needs_of(placement);
  outlook.systems = suggest_hardware(catalogue, query, own);
  outlook.ladder = ladder_of(catalogue, query, outlook.systems, own);
  if (r.gpu != nullptr) outlook.layouts = placement->all(gpus_of(r), kLayouts);
  outlook.matrix = matrix_of(r, catalogue, own);
  outlook.changes = changes_of(r, report);
  add_curves(r, outlook);
  add_evidence(evidence, report, outlook);
  outlook.growth = growth_of(r, catalogue);
  outlook.after_training = after_training(r.request, r.model.architecture);
  outlook.launch = launch_configuration(r.request, r.model);
  return outlook;
}

Result<Report> glance_at(const Resolved& r, const Stages& stages) {
  const Step& step = stages.binding;
  if (!step.valid()) return Problem{ProblemCode::internal, "/model", {{"what", "graph"}}};
  Report report;
  report.request = r.request;
  report.layout_chosen = r.layout_chosen;
  report.model = r.model;
  report.inventory = inventory_of(r);
  report.stages = stages.memory;
  report.layers = layers_of(r.model.architecture);
  report.memory = stages.memory[stages.binding_index];
  report.first_step = step.highest_of_first_step();
  if (too_large(report.memory)) return Problem{ProblemCode::too_large, "", {}};
  report.components = breakdown(step, report.memory.peak);
  report.beyond_allocated = beyond_allocated(report.memory);
  for (const LayerStack& s : step.stacks()) report.layer_rows.push_back({s.first, s.count, step.kept_per_layer(s)});
  add_host_memory(step, gpus_per_node(r), report);
  if (r.gpu != nullptr) {
    report.fit = judge(report.memory.device, usable_bytes(*r.gpu));
    report.speed = speed_of(r);
    report.ranks = map_ranks(*r.request.layout, gpus_per_node(r));
  }
  warn_about_model(r, report.warnings);
  warn_about_hardware(r, report.warnings);
  return report;
}

Result<Report> answer_to(const Resolved& r) {
  const Stages stages = stages_of(r);
  Result<Report> glanced = glance_at(r, stages);
  if (!glanced.ok()) return glanced;
  Report report = std::move(glanced).value();
  report.timeline = timeline_of(stages.binding);
  return report;
}

}  // namespace

Problems check_names(const PlanRequest& request, const Catalogue& catalogue) {
  Problems problems = resolve_model(request.model, catalogue).problems();
  (void)named_gpu(request, catalogue, problems);
  return problems;
}

MemoryEstimate evaluate(const ModelArchitecture& model, const TrainingChoice& training, const LayoutChoice& layout,
                        const Gpu* gpu) {
  return Evaluator(model, training)(layout, {training.micro_batch, training.sequence_length}, gpu);
}

Result<Report> glance(const PlanRequest& request, const Catalogue& catalogue) {
  const Result<Resolved> resolved = resolve(request, catalogue);
  return resolved.ok() ? glance_at(resolved.value(), stages_of(resolved.value())) : resolved.problems();
}

Result<Report> answer(const PlanRequest& request, const Catalogue& catalogue) {
  const Result<Resolved> resolved = resolve(request, catalogue);
  return resolved.ok() ? answer_to(resolved.value()) : resolved.problems();
}

Result<Report> plan(const PlanRequest& request, const Catalogue& catalogue, const Evidence& evidence) {
  const Result<Resolved> resolved = resolve(request, catalogue);
  if (!resolved.ok()) return resolved.problems();
  Result<Report> answered = answer_to(resolved.value());
  if (!answered.ok()) return answered;
  Report report = std::move(answered).value();
  report.outlook = outlook_of(resolved.value(), report, catalogue, evidence);
  if (too_large(report.outlook->after_training)) return Problem{ProblemCode::too_large, "/serving", {}};
  return report;
}

}  // namespace vramplan
