#include "report.hpp"

#include <algorithm>

#include "launch.hpp"
#include "outlook.hpp"
#include "vramplan/enum_names.hpp"

namespace vramplan {
namespace {

OrderedJson arguments_of(const std::vector<ProblemArgument>& arguments) {
  OrderedJson out = OrderedJson::object();
  for (const ProblemArgument& a : arguments) {
    std::visit([&](const auto& value) { out[a.name] = value; }, a.value);
  }
  return out;
}

template <NamedEnum Code>
OrderedJson notice(Code code, const std::string& pointer, const std::vector<ProblemArgument>& arguments) {
  return {{"code", name_of(code)}, {"pointer", pointer}, {"arguments", arguments_of(arguments)}};
}

OrderedJson estimate(const Estimate& e) {
  return {{"low", e.low.value}, {"expected", e.expected.value}, {"high", e.high.value}};
}

OrderedJson event_block(const Event& event) {
  return event.layer >= 0 ? OrderedJson(event.layer) : OrderedJson(nullptr);
}

OrderedJson component_rows(const std::vector<ComponentRow>& rows) {
  OrderedJson out = OrderedJson::array();
  for (const ComponentRow& row : rows) {
    OrderedJson terms = OrderedJson::array();
    for (const Term& term : row.terms) terms.push_back({{"symbol", term.symbol}, {"value", term.value}});
    out.push_back({{"id", name_of(row.component)},
                   {"group", is_static(row.component) ? "static" : "temporary"},
                   {"bytes", row.bytes.value},
                   {"formula", name_of(row.component)},
                   {"notation", row.notation},
                   {"terms", std::move(terms)},
                   {"certainty", name_of(row.certainty)},
                   {"source", row.source}});
  }
  return out;
}

OrderedJson host_memory(const Report& r) {
  OrderedJson parts = OrderedJson::array();
  for (const auto& [component, bytes] : r.host_components) {
    parts.push_back({{"id", name_of(component)}, {"bytes", bytes.value}});
  }
  return {{"per_node_bytes", r.host_memory_per_node.value}, {"components", std::move(parts)}};
}

OrderedJson layers(const std::vector<LayerRow>& rows) {
  OrderedJson out = OrderedJson::array();
  for (const LayerRow& row : rows)
    out.push_back({{"first", row.first}, {"count", row.count}, {"kept_bytes", row.kept.value}});
  return out;
}

OrderedJson three_numbers(const MemoryEstimate& m) {
  return {{"allocated", estimate(m.allocated)}, {"reserved", estimate(m.reserved)}, {"device", estimate(m.device)}};
}

OrderedJson stages(const std::vector<MemoryEstimate>& all) {
  OrderedJson out = OrderedJson::array();
  for (const MemoryEstimate& m : all) {
    OrderedJson stage = {{"stage", m.stage}};
    stage.update(three_numbers(m));
    out.push_back(std::move(stage));
  }
  return out;
}

OrderedJson memory(const Report& r) {
  return {{"per_gpu", three_numbers(r.memory)},
          {"components", component_rows(r.components)},
          {"peak", {{"event", name_of(r.memory.peak.kind)}, {"block", event_block(r.memory.peak)}}},
          {"first_step_bytes", r.first_step.value},
          {"beyond_allocated", component_rows(r.beyond_allocated)},
          {"layers", layers(r.layer_rows)},
          {"stages", stages(r.stages)}};
}

OrderedJson timeline(const std::vector<TimelinePoint>& points) {
  OrderedJson out = OrderedJson::array();
  for (const TimelinePoint& point : points) {
    OrderedJson parts = OrderedJson::object();
    for (const auto& [component, bytes] : point.by_component) parts[std::string(name_of(component))] = bytes.value;
    out.push_back({{"event", name_of(point.event.kind)},
                   {"block", event_block(point.event)},
                   {"live_bytes", point.live.value},
                   {"by_component", std::move(parts)}});
  }
  return out;
}

// The first rank of the stage that needs the most: ranks are numbered stage by stage.
std::int64_t binding_rank(const Report& r) {
  const LayoutChoice& l = *r.request.layout;
  return r.memory.stage * (ranks_of(l) / l.pp);
}

OrderedJson fit(const Report& r) {
  const std::optional<Fit>& f = r.fit;
  if (!f) return nullptr;
  OrderedJson reasons = OrderedJson::array();
  for (const FitReason reason : f->reasons) reasons.push_back(notice(reason, "/hardware/gpu", {}));
  return {{"verdict", name_of(f->verdict)},
          {"headroom_bytes", f->headroom.value},
          {"usable_bytes", f->usable.value},
          {"rank", binding_rank(r)},
          {"reasons", std::move(reasons)}};
}

OrderedJson band(const Band& b) { return {{"low", b.low}, {"expected", b.expected}, {"high", b.high}}; }

OrderedJson budget(const std::optional<Budget>& b) {
  if (!b) return nullptr;
  return {{"tokens", b->tokens},
          {"days", band(b->days)},
          {"energy_kwh", b->energy_kwh > 0 ? OrderedJson(b->energy_kwh) : OrderedJson(nullptr)}};
}

OrderedJson phases(const Speed& s) {
  OrderedJson out = OrderedJson::array();
  for (std::size_t i = 0; i < kSpeedPhases; ++i) {
    const PhaseTime& time = s.phases[i];
    if (time.seconds <= 0) continue;
    out.push_back(
        {{"id", name_of(static_cast<SpeedPhase>(i))}, {"seconds", time.seconds}, {"bound", name_of(time.bound)}});
  }
  return out;
}

OrderedJson speed(const std::optional<SpeedEstimate>& estimate) {
  if (!estimate) return nullptr;
  if (!estimate->refused.empty()) return {{"refused", estimate->refused}};
  const Speed& s = estimate->speed;
  return {{"step_seconds", band(s.step_seconds)},
          {"tokens_per_second", band(s.tokens_per_second)},
          {"tokens_per_second_per_gpu", band(s.tokens_per_second_per_gpu)},
          {"mfu", s.mfu},
          {"bound", name_of(s.bound)},
          {"phases", phases(s)},
          {"budget", budget(estimate->budget)}};
}

OrderedJson offers(const std::vector<SystemOffer>& systems) {
  OrderedJson out = OrderedJson::array();
  for (const SystemOffer& s : systems) {
    out.push_back({{"id", s.id}, {"gpus_in_system", s.gpus_in_system}, {"systems_needed", s.systems_needed}});
  }
  return out;
}

OrderedJson rate(double value) { return value > 0 ? OrderedJson(value) : OrderedJson(nullptr); }

OrderedJson machine(const HardwareSuggestion& s) {
  return {{"gpu", s.gpu},
          {"count", s.count},
          {"group", name_of(s.group)},
          {"verdict", name_of(s.verdict)},
          {"device", estimate(s.device)},
          {"usable_bytes", s.usable.value},
          {"headroom_bytes", s.headroom.value},
          {"tokens_per_second", rate(s.tokens_per_second)},
          {"status", name_of(s.status)},
          {"confidence", name_of(s.confidence)},
          {"systems", offers(s.systems)}};
}

OrderedJson systems(const HardwareSuggestions& suggestions) {
  OrderedJson out = OrderedJson::array();
  for (const HardwareSuggestion& s : suggestions.fitting) out.push_back(machine(s));
  return out;
}

OrderedJson ladder(const std::vector<LadderStep>& steps) {
  OrderedJson out = OrderedJson::array();
  for (const LadderStep& step : steps) {
    OrderedJson row = {{"role", name_of(step.rung)}};
    row.update(machine(step.machine));
    row["times_faster"] = rate(step.times_faster);
    out.push_back(std::move(row));
  }
  return out;
}

OrderedJson refused(const HardwareSuggestions& suggestions) {
  OrderedJson out = OrderedJson::array();
  for (const std::string& gpu : suggestions.too_small) out.push_back({{"gpu", gpu}, {"reason", "too_small"}});
  for (const RefusedGpu& r : suggestions.refused) out.push_back({{"gpu", r.gpu}, {"reason", r.reason}});
  for (const std::string& gpu : suggestions.unknown) out.push_back({{"gpu", gpu}, {"reason", "usable_not_published"}});
  return out;
}

template <class T>
OrderedJson or_null(const std::optional<T>& value) {
  if (!value) return nullptr;
  if constexpr (NamedEnum<T>) {
    return name_of(*value);
  } else {
    return *value;
  }
}

OrderedJson curve(const Curve& c) {
  OrderedJson points = OrderedJson::array();
  for (const CurvePoint& p : c.points) points.push_back({{"value", p.value}, {"device", estimate(p.device)}});
  return {{"now", c.now},
          {"points", std::move(points)},
          {"largest_that_fits", or_null(c.largest_that_fits)},
          {"runs_out_at", or_null(c.runs_out_at)}};
}

OrderedJson curves(const Outlook& o, Bytes limit) {
  return {{"limit_bytes", limit.value},
          {"micro_batch", curve(o.micro_batch_curve)},
          {"sequence_length", curve(o.sequence_length_curve)}};
}

OrderedJson fit_matrix(const FitMatrix& matrix) {
  OrderedJson methods = OrderedJson::array();
  for (const Method method : matrix.methods) methods.push_back(name_of(method));
  OrderedJson rows = OrderedJson::array();
  for (const MatrixRow& row : matrix.rows) {
    OrderedJson cells = OrderedJson::array();
    for (const MatrixCell& cell : row.cells) {
      cells.push_back(cell.count > 0 ? OrderedJson{{"count", cell.count}, {"verdict", name_of(cell.verdict)}}
                                     : OrderedJson(nullptr));
    }
    rows.push_back({{"gpu", row.gpu}, {"cells", std::move(cells)}});
  }
  return {{"methods", std::move(methods)}, {"rows", std::move(rows)}};
}

OrderedJson value_of(const PatchValue& value) {
  return std::visit([](const auto& v) { return OrderedJson(v); }, value);
}

// The field that a pointer of the request names; such pointers have no escapes. (json_pointer's own lookup in an
// ordered object compares keys with pointers, which is deprecated and refused by clang.)
OrderedJson& field_at(OrderedJson& document, std::string_view pointer) {
  OrderedJson* at = &document;
  while (!pointer.empty()) {
    const std::size_t end = std::min(pointer.find('/', 1), pointer.size());
    at = &(*at)[std::string(pointer.substr(1, end - 1))];
    pointer.remove_prefix(end);
  }
  return *at;
}

OrderedJson changes(const std::vector<Change>& list, const OrderedJson& request) {
  OrderedJson out = OrderedJson::array();
  for (const Change& c : list) {
    OrderedJson changed = request;
    for (const Patch& patch : c.patches) field_at(changed, patch.pointer) = value_of(patch.value);
    out.push_back({{"id", c.id},
                   {"request", std::move(changed)},
                   {"pointer", c.patches.front().pointer},
                   {"from", value_of(c.from)},
                   {"to", value_of(c.patches.front().value)},
                   {"device", estimate(c.device)},
                   {"saved_bytes", c.saved.value},
                   {"tokens_per_second", rate(c.tokens_per_second)},
                   {"times_as_fast", rate(c.times_as_fast)},
                   {"verdict", name_of(c.verdict)}});
  }
  return out;
}

OrderedJson model(const Report& r) {
  return {{"id", r.model.id},
          {"label", r.model.label},
          {"model_type", r.model.model_type},
          {"parameters", r.inventory.total.value},
          {"trainable", r.inventory.trained().value},
          {"active", r.inventory.active.value},
          {"layers", r.layers},
          {"inferred", r.model.inferred},
          {"confidence", name_of(r.model.confidence)},
          {"source", r.model.source}};
}

OrderedJson version(const std::optional<Version>& v) {
  if (!v) return nullptr;
  return std::to_string(v->major) + "." + std::to_string(v->minor);
}

template <NamedEnum Enum>
OrderedJson names(const std::vector<Enum>& set) {
  OrderedJson out = OrderedJson::array();
  for (const Enum one : set) out.push_back(name_of(one));
  return out;
}

OrderedJson lora(const LoraChoice& l) {
  return {{"rank", l.rank},
          {"targets", l.targets},
          {"dropout", or_null(l.dropout)},
          {"modules_to_save", names(l.modules_to_save)},
          {"rslora", l.rslora}};
}

OrderedJson generation(const std::optional<GenerationChoice>& g) {
  if (!g) return nullptr;
  return {{"completion_length", g->completion_length},
          {"engine_share", g->engine_share},
          {"generations", or_null(g->generations)}};
}

OrderedJson training(const TrainingChoice& t) {
  return {{"objective", name_of(t.objective)},
          {"method", name_of(t.method)},
          {"framework", name_of(t.framework)},
          {"framework_version", version(t.framework_version)},
          {"trainer", or_null(t.trainer)},
          {"precision", name_of(t.precision)},
          {"base_weights", or_null(t.base_weights)},
          {"optimizer",
           {{"name", name_of(t.optimizer.name)},
            {"states", or_null(t.optimizer.states)},
            {"paged", t.optimizer.paged},
            {"foreach", or_null(t.optimizer.foreach)},
            {"fused", or_null(t.optimizer.fused)},
            {"in_backward", t.optimizer.in_backward},
            {"momentum", t.optimizer.momentum},
            {"master_weights", t.optimizer.master_weights},
            {"rank", or_null(t.optimizer.rank)}}},
          {"ema", t.ema},
          {"fp8_parameters", t.fp8_parameters},
          {"mtp_layers", t.mtp_layers},
          {"fp32_gradients", or_null(t.fp32_gradients)},
          {"lora", lora(t.lora)},
          {"sequence_length", t.sequence_length},
          {"micro_batch", t.micro_batch},
          {"global_batch", or_null(t.global_batch)},
          {"packing", t.packing},
          {"recompute", name_of(t.recompute)},
          {"recompute_modules", names(t.recompute_modules)},
          {"attention", name_of(t.attention)},
          {"cross_entropy", or_null(t.cross_entropy)},
          {"logits_upcast", or_null(t.logits_upcast)},
          {"kernels", or_null(t.kernels)},
          {"recurrence", or_null(t.recurrence)},
          {"kbit_upcast", or_null(t.kbit_upcast)},
          {"compile", t.compile},
          {"trainable_layers", or_null(t.trainable_layers)},
          {"moe", {{"imbalance", t.moe.imbalance}, {"capacity_factor", or_null(t.moe.capacity_factor)}}},
          {"offload",
           {{"optimizer", t.offload.optimizer},
            {"parameters", t.offload.parameters},
            {"activations", t.offload.activations}}},
          {"reference", or_null(t.reference)},
          {"value_model", or_null(t.value_model)},
          {"reward_model", or_null(t.reward_model)},
          {"generation", generation(t.generation)},
          {"tokens", or_null(t.tokens)}};
}

OrderedJson layout(const LayoutChoice& l) {
  return {{"dp", l.dp},
          {"zero", l.zero},
          {"tp", l.tp},
          {"sp", l.sp},
          {"loss_parallel", l.loss_parallel},
          {"pp", l.pp},
          {"vpp", l.vpp},
          {"first_stage_layers", or_null(l.first_stage_layers)},
          {"last_stage_layers", or_null(l.last_stage_layers)},
          {"cp", l.cp},
          {"cp_exchange", or_null(l.cp_exchange)},
          {"ep", l.ep},
          {"etp", or_null(l.etp)},
          {"shard", or_null(l.shard)},
          {"fsdp", or_null(l.fsdp)},
          {"reshard", or_null(l.reshard)},
          {"no_sync", or_null(l.no_sync)}};
}

OrderedJson accuracy_group(const AccuracyGroup& g) {
  return {{"framework", name_of(g.framework)}, {"method", name_of(g.method)},
          {"metric", name_of(g.metric)},       {"runs", g.runs},
          {"median_permille", g.median},       {"p90_permille", g.p90},
          {"worst_permille", g.worst},         {"inside_permille", g.inside},
          {"width_permille", g.width}};
}

OrderedJson measured_run(const MeasuredRun& run) {
  const Json document = {{"model", std::get<ModelById>(run.request.model).id}};
  return {{"id", run.id},
          {"source", run.source},
          {"date", run.date},
          {"metric", name_of(run.metric)},
          {"measured_bytes", run.measured.value},
          {"planned_bytes", run.planned.value},
          {"difference_permille", difference_permille(run)},
          {"request", write_request(run.request, document)}};
}

OrderedJson accuracy(const Outlook& o) {
  OrderedJson nearest = OrderedJson::array();
  for (const MeasuredRun& run : o.nearest) nearest.push_back(measured_run(run));
  return {{"group", o.accuracy ? accuracy_group(*o.accuracy) : OrderedJson(nullptr)}, {"nearest", std::move(nearest)}};
}

OrderedJson node_kind(const NodeKind& kind) {
  OrderedJson gpus = OrderedJson::array();
  for (const PlacedRank& r : kind.ranks)
    gpus.push_back({{"rank", r.rank}, {"dp", r.dp}, {"cp", r.cp}, {"pp", r.pp}, {"tp", r.tp}, {"ep", r.ep}});
  return {{"nodes", kind.nodes}, {"gpus", std::move(gpus)}};
}

OrderedJson placement(const std::optional<RankMap>& map) {
  if (!map) return nullptr;
  OrderedJson kinds = OrderedJson::array();
  for (const NodeKind& kind : map->kinds) kinds.push_back(node_kind(kind));
  return {{"nodes", map->nodes}, {"per_node", map->per_node}, {"kinds", std::move(kinds)}};
}

// The request as it would be with another layout, micro-batch and recomputation.
OrderedJson layouts(const SearchResult& found, const OrderedJson& request) {
  OrderedJson best = OrderedJson::array();
  for (const FoundLayout& f : found.best) {
    OrderedJson changed = request;
    changed["training"]["micro_batch"] = f.micro_batch;
    changed["training"]["recompute"] = name_of(f.recompute);
    if (f.recompute != Recompute::selective) changed["training"]["recompute_modules"] = OrderedJson::array();
    changed["layout"] = layout(f.layout);
    best.push_back({{"request", std::move(changed)},
                    {"device", estimate(f.device)},
                    {"verdict", name_of(f.verdict)},
                    {"tokens_per_second", rate(f.tokens_per_second)}});
  }
  return {{"tried", found.layouts}, {"evaluated", found.evaluated}, {"best", std::move(best)}};
}

OrderedJson outlook(const Outlook& o, const Report& r, const Json& document) {
  const OrderedJson own = write_request(own_choices(r), document);
  return {{"layouts", layouts(o.layouts, own)},
          {"curves", curves(o, r.fit ? r.fit->usable : Bytes{})},
          {"fit_matrix", fit_matrix(o.matrix)},
          {"suggestions",
           {{"systems", systems(o.systems)},
            {"ladder", ladder(o.ladder)},
            {"not_fitting", refused(o.systems)},
            {"changes", changes(o.changes, own)}}},
          {"accuracy", accuracy(o)},
          {"launch", write_launch_texts(o.launch)},
          {"launch_left_out", write_launch_omissions(o.launch)},
          {"growth", write_growth(o.growth)},
          {"after_training", write_after_training(o.after_training)}};
}

}  // namespace

OrderedJson write_problems(const Problems& problems) {
  OrderedJson out = OrderedJson::array();
  for (const Problem& p : problems) out.push_back(notice(p.code, p.pointer, p.arguments));
  return out;
}

OrderedJson write_request(const PlanRequest& request, const Json& document) {
  OrderedJson out = {{"model", document.contains("model") ? OrderedJson(document["model"]) : OrderedJson(nullptr)},
                     {"training", training(request.training)}};
  if (request.hardware) {
    out["hardware"] = {{"gpu", request.hardware->gpu},
                       {"count", request.hardware->count},
                       {"per_node", or_null(request.hardware->per_node)}};
  }
  if (request.layout) out["layout"] = layout(*request.layout);
  if (request.serving) {
    out["serving"] = {{"context", or_null(request.serving->context)}, {"users", request.serving->users}};
  }
  return out;
}

OrderedJson write_changes(const std::vector<Change>& list, const PlanRequest& request, const Json& document) {
  return changes(list, write_request(request, document));
}

OrderedJson write_report(const Report& r, const Json& document, std::string_view version) {
  OrderedJson warnings = OrderedJson::array();
  for (const Warning& w : r.warnings) warnings.push_back(notice(w.code, w.pointer, w.arguments));
  OrderedJson out = {{"version", version},
                     {"problems", OrderedJson::array()},
                     {"warnings", std::move(warnings)},
                     {"request", write_request(r.request, document)},
                     {"layout_chosen", r.layout_chosen},
                     {"model", model(r)},
                     {"memory", memory(r)},
                     {"host_memory", host_memory(r)},
                     {"fit", fit(r)},
                     {"speed", speed(r.speed)},
                     {"placement", placement(r.ranks)}};
  if (!r.timeline.empty()) out["timeline"] = timeline(r.timeline);
  if (r.outlook) out.update(outlook(*r.outlook, r, document));
  return out;
}

}  // namespace vramplan
