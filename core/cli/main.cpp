// vramplan: the planner's door on the command line. One JSON object in, one out; `--lines` reads a request a line.
// Exit 0 with a report, 1 with problems (on standard output, as JSON), 2 for bad usage.
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>

#include "api.hpp"

namespace {

constexpr std::string_view kUsage =
    "usage: vramplan plan [--lines] < request.json\n"
    "       vramplan diagnose < text-and-request.json\n"
    "       vramplan catalogue\n"
    "       vramplan version\n";

int answer_one(std::string (*door)(std::string_view)) {
  const std::string request(std::istreambuf_iterator<char>(std::cin), {});
  const std::string answer = door(request);
  std::cout << answer << '\n';
  return vramplan::api::has_problems(answer) ? 1 : 0;
}

int plan_lines() {
  int code = 0;
  for (std::string line; std::getline(std::cin, line);) {
    const std::string answer = vramplan::api::plan(line);
    std::cout << answer << '\n';
    if (vramplan::api::has_problems(answer)) code = 1;
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  const std::string_view verb = argc > 1 ? argv[1] : "";
  const std::string_view option = argc > 2 ? argv[2] : "";
  if (verb == "plan" && argc == 2) return answer_one(vramplan::api::plan);
  if (verb == "diagnose" && argc == 2) return answer_one(vramplan::api::diagnose);
  if (verb == "plan" && argc == 3 && option == "--lines") return plan_lines();
  if (verb == "catalogue" && argc == 2) return std::cout << vramplan::api::catalogue() << '\n', 0;
  if (verb == "version" && argc == 2) return std::cout << vramplan::api::version() << '\n', 0;
  std::cerr << kUsage;
  return 2;
}
