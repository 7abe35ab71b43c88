#include "api.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "catalogue.hpp"
#include "data.hpp"
#include "diagnose.hpp"
#include "evidence.hpp"
#include "parse.hpp"
#include "report.hpp"
#include "request.hpp"
#include "vramplan/planner.hpp"

namespace vramplan::api {
namespace {

constexpr std::string_view kVersion = VRAMPLAN_VERSION;

std::string text(const OrderedJson& json) { return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace); }

std::string refused_for(const Problems& problems) {
  return text({{"version", kVersion}, {"problems", write_problems(problems)}});
}

// A field that could not be read has its problem already; what stands there is no name.
void add_unless_known(Problems& problems, Problem problem) {
  const auto touches = [&](const Problem& known) {
    return known.pointer.empty() || problem.pointer.starts_with(known.pointer) ||
           known.pointer.starts_with(problem.pointer);
  };
  if (std::none_of(problems.begin(), problems.end(), touches)) problems.push_back(std::move(problem));
}

using Planner = Result<Report> (*)(const PlanRequest&, const Catalogue&);

Result<Report> whole_report(const PlanRequest& request, const Catalogue& catalogue) {
  return vramplan::plan(request, catalogue, shipped_evidence());
}

Result<Report> report_on(const Json& document, const Catalogue& catalogue, Planner planner) {
  PlanRequest request;
  Problems problems = read_request(document, request);
  if (!problems.empty()) {  // names are looked up all the same: all problems at once
    for (Problem& p : check_names(request, catalogue)) add_unless_known(problems, std::move(p));
    return problems;
  }
  return planner(request, catalogue);
}

std::string report_or_problems(std::string_view request_json, const Catalogue& catalogue, Planner planner) {
  const Result<Json> document = parse_document(request_json);
  if (!document.ok()) return refused_for(document.problems());
  const Result<Report> report = report_on(document.value(), catalogue, planner);
  if (!report.ok()) return refused_for(report.problems());
  return text(write_report(report.value(), document.value(), kVersion));
}

// The shipped catalogue with a vendor's rows; what is wrong with them.
Result<Catalogue> catalogue_of(std::string_view vendor_json) {
  const Result<Json> document = parse_document(vendor_json);
  if (!document.ok()) return document.problems();
  return extend_catalogue(shipped_catalogue(), document.value());
}

std::string with_vendor(std::string_view request_json, std::string_view vendor_json, Planner planner) {
  const Result<Catalogue> catalogue = catalogue_of(vendor_json);
  if (!catalogue.ok()) return refused_for(catalogue.problems());
  return report_or_problems(request_json, catalogue.value(), planner);
}

// Those changes of the run that free what the failed allocation lacked.
OrderedJson sufficient_changes(const Report& report, const Json& request, Bytes shortage) {
  std::vector<Change> enough = report.outlook->changes;
  std::erase_if(enough, [&](const Change& c) { return c.saved < shortage; });
  return write_changes(enough, own_choices(report), request);
}

std::string diagnosis_or_problems(std::string_view document_json) {
  const Result<Json> document = parse_document(document_json);
  if (!document.ok()) return refused_for(document.problems());
  Problems problems;
  ObjectReader reader(document.value(), "", problems);
  std::string message;
  reader.string("text", message, Need::required);
  const Json* request = reader.object("request");
  reader.finish();
  if (!problems.empty()) return refused_for(problems);
  const std::optional<Diagnosis> diagnosis = read_diagnosis(message);
  OrderedJson answer = {{"version", kVersion},
                        {"problems", OrderedJson::array()},
                        {"diagnosis", write_diagnosis(diagnosis, shipped_catalogue())},
                        {"changes", OrderedJson::array()}};
  if (!diagnosis || request == nullptr) return text(answer);
  const Result<Report> report = report_on(*request, shipped_catalogue(), whole_report);
  if (report.ok()) answer["changes"] = sufficient_changes(report.value(), *request, diagnosis->shortage);
  return text(answer);
}

// The core throws nothing; what the JSON library or the allocator may throw ends here.
template <class Answer>
std::string guarded(Answer answer) {
  try {
    return answer();
  } catch (const std::exception& e) {
    return refused_for({{ProblemCode::internal, "", {{"what", std::string(e.what())}}}});
  } catch (...) {
    return refused_for({{ProblemCode::internal, "", {{"what", std::string("unknown")}}}});
  }
}

}  // namespace

std::string plan(std::string_view request_json) {
  return guarded([&] { return report_or_problems(request_json, shipped_catalogue(), whole_report); });
}

std::string plan_with(std::string_view request_json, std::string_view vendor_json) {
  return guarded([&] { return with_vendor(request_json, vendor_json, whole_report); });
}

std::string answer(std::string_view request_json) {
  return guarded([&] { return report_or_problems(request_json, shipped_catalogue(), vramplan::answer); });
}

std::string glance(std::string_view request_json) {
  return guarded([&] { return report_or_problems(request_json, shipped_catalogue(), vramplan::glance); });
}

std::string glance_with(std::string_view request_json, std::string_view vendor_json) {
  return guarded([&] { return with_vendor(request_json, vendor_json, vramplan::glance); });
}

std::string catalogue() {
  return guarded([] { return text(write_catalogue(shipped_catalogue(), data::sources_json(), kVersion)); });
}

std::string catalogue_with(std::string_view vendor_json) {
  return guarded([&] {
    const Result<Catalogue> catalogue = catalogue_of(vendor_json);
    if (!catalogue.ok()) return refused_for(catalogue.problems());
    return text(write_catalogue(catalogue.value(), data::sources_json(), kVersion));
  });
}

std::string diagnose(std::string_view document_json) {
  return guarded([&] { return diagnosis_or_problems(document_json); });
}

std::string version() { return text({{"version", kVersion}}); }

bool has_problems(std::string_view report_json) {
  return report_json.find("\"problems\":[]") == std::string_view::npos;
}

}  // namespace vramplan::api
