// The planner's door for JavaScript: JSON text in, JSON text out. No object crosses, so there is nothing to release.
// vramplan::api catches everything, so that no C++ exception reaches JavaScript.
#include <emscripten/bind.h>

#include <string>

#include "api.hpp"

namespace {

std::string plan(const std::string& request) { return vramplan::api::plan(request); }

}  // namespace

EMSCRIPTEN_BINDINGS(vramplan) {
  emscripten::function("plan", &plan);
  emscripten::function("catalogue", &vramplan::api::catalogue);
  emscripten::function("version", &vramplan::api::version);
}
