#include "evidence.hpp"

#include <string>
#include <utility>
#include <variant>

#include "data.hpp"
#include "request.hpp"

namespace vramplan {
namespace {

constexpr IntegerRange kPermille{0, 1000};

AccuracyGroup read_group(const Json& value, const std::string& pointer, Problems& problems) {
  AccuracyGroup group;
  ObjectReader reader(value, pointer, problems);
  reader.enumerator("framework", group.framework, Need::required);
  reader.enumerator("method", group.method, Need::required);
  reader.enumerator("metric", group.metric, Need::required);
  reader.integer("runs", group.runs, kAnyCount, Need::required);
  reader.integer("median_permille", group.median, kAnyCount, Need::required);
  reader.integer("p90_permille", group.p90, kAnyCount, Need::required);
  reader.integer("worst_permille", group.worst, kAnyCount, Need::required);
  reader.integer("inside_permille", group.inside, kPermille, Need::required);
  reader.integer("width_permille", group.width, kAnyCount, Need::required);
  reader.finish();
  return group;
}

template <class Unit>
void read_count(ObjectReader& reader, std::string_view name, Unit& destination) {
  reader.integer(name, destination.value, IntegerRange{1, kLargestJsonInteger}, Need::required);
}

MeasuredRun read_run(const Json& value, const std::string& pointer, Problems& problems) {
  MeasuredRun run;
  ObjectReader reader(value, pointer, problems);
  reader.string("id", run.id, Need::required);
  reader.string("source", run.source, Need::required);
  reader.string("date", run.date);
  reader.enumerator("metric", run.metric, Need::required);
  read_count(reader, "measured_bytes", run.measured);
  read_count(reader, "planned_bytes", run.planned);
  read_count(reader, "parameters", run.parameters);
  if (const Json* request = reader.object("request", Need::required)) {
    const Problems found = read_request(*request, run.request);
    problems.insert(problems.end(), found.begin(), found.end());
    run.request = resolve_defaults(std::move(run.request));
    if (!std::holds_alternative<ModelById>(run.request.model))
      report_wrong_type(problems, "/model", "string", *request);
  }
  reader.finish();
  return run;
}

template <class Row>
void read_all(ObjectReader& reader, std::string_view name, Row (*read)(const Json&, const std::string&, Problems&),
              std::vector<Row>& rows) {
  const Json* values = reader.array(name, Need::required);
  if (values == nullptr) return;
  for (std::size_t i = 0; i < values->size(); ++i) {
    rows.push_back(read((*values)[i], child_pointer(reader.pointer_to(name), i), reader.problems()));
  }
}

Evidence read_shipped() {
  Result<Evidence> evidence = read_evidence(Json::parse(data::measured_runs_json(), nullptr, false));
  return evidence.ok() ? std::move(evidence).value() : Evidence{};
}

}  // namespace

Result<Evidence> read_evidence(const Json& document) {
  Evidence evidence;
  Problems problems;
  ObjectReader reader(document, "", problems);
  read_all(reader, "groups", &read_group, evidence.groups);
  read_all(reader, "runs", &read_run, evidence.runs);
  reader.finish();
  if (!problems.empty()) return problems;
  return evidence;
}

const Evidence& shipped_evidence() {
  static const Evidence evidence = read_shipped();
  return evidence;
}

}  // namespace vramplan
