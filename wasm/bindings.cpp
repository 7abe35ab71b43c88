// The planner's door for JavaScript: JSON text in, JSON text out. No object crosses, so there is nothing to release.
// vramplan::api catches everything, so that no C++ exception reaches JavaScript.
#include <emscripten/bind.h>

#include <string>

#include "api.hpp"

namespace {

std::string plan(const std::string& request) { return vramplan::api::plan(request); }
std::string plan_with(const std::string& request, const std::string& vendor) {
  return vramplan::api::plan_with(request, vendor);
}
std::string glance(const std::string& request) { return vramplan::api::glance(request); }
std::string glance_with(const std::string& request, const std::string& vendor) {
  return vramplan::api::glance_with(request, vendor);
}
std::string catalogue_with(const std::string& vendor) { return vramplan::api::catalogue_with(vendor); }
std::string diagnose(const std::string& document) { return vramplan::api::diagnose(document); }

}  // namespace

EMSCRIPTEN_BINDINGS(vramplan) {
  emscripten::function("plan", &plan);
  emscripten::function("catalogue", &vramplan::api::catalogue);
  emscripten::function("planWith", &plan_with);
  emscripten::function("glance", &glance);
  emscripten::function("glanceWith", &glance_with);
  emscripten::function("catalogueWith", &catalogue_with);
  emscripten::function("diagnose", &diagnose);
  emscripten::function("version", &vramplan::api::version);
}
