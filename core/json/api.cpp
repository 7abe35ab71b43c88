#include "api.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "catalogue.hpp"
#include "data.hpp"
#include "evidence.hpp"
#include "parse.hpp"
#include "report.hpp"
#include "request.hpp"
#include "vramplan/planner.hpp"

namespace vramplan::api {
namespace {

constexpr std::string_view kVersion = VRAMPLAN_VERSION;

std::string text(const OrderedJson& json) { return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace); }

std::string answer_with(const Problems& problems) {
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

std::string plan_or_problems(std::string_view request_json) {
  const Result<Json> document = parse_document(request_json);
  if (!document.ok()) return answer_with(document.problems());
  PlanRequest request;
  Problems problems = read_request(document.value(), request);
  if (!problems.empty()) {  // names are looked up all the same: all problems at once
    for (Problem& p : check_names(request, shipped_catalogue())) add_unless_known(problems, std::move(p));
    return answer_with(problems);
  }
  const Result<Report> report = vramplan::plan(request, shipped_catalogue(), shipped_evidence());
  if (!report.ok()) return answer_with(report.problems());
  return text(write_report(report.value(), document.value(), kVersion));
}

// The core throws nothing; what the JSON library or the allocator may throw ends here.
template <class Answer>
std::string guarded(Answer answer) {
  try {
    return answer();
  } catch (const std::exception& e) {
    return answer_with({{ProblemCode::internal, "", {{"what", std::string(e.what())}}}});
  } catch (...) {
    return answer_with({{ProblemCode::internal, "", {{"what", std::string("unknown")}}}});
  }
}

}  // namespace

std::string plan(std::string_view request_json) {
  return guarded([&] { return plan_or_problems(request_json); });
}

std::string catalogue() {
  return guarded([] { return text(write_catalogue(shipped_catalogue(), data::sources_json(), kVersion)); });
}

std::string version() { return text({{"version", kVersion}}); }

bool has_problems(std::string_view report_json) {
  return report_json.find("\"problems\":[]") == std::string_view::npos;
}

}  // namespace vramplan::api
