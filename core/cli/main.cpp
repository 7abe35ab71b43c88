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
    "       vramplan answer [--lines] < request.json      the same without suggestions, changes and outlook\n"
    "       vramplan diagnose [--lines] < text-and-request.json\n"
    "       vramplan catalogue\n"
    "       vramplan version\n";

using Door = std::string (*)(std::string_view);

int answer_one(Door door) {
  const std::string request(std::istreambuf_iterator<char>(std::cin), {});
  const std::string answer = door(request);
  std::cout << answer << '\n';
  return vramplan::api::has_problems(answer) ? 1 : 0;
}

int answer_lines(Door door) {
  int code = 0;
  for (std::string line; std::getline(std::cin, line);) {
    const std::string answer = door(line);
    std::cout << answer << '\n';
    if (vramplan::api::has_problems(answer)) code = 1;
  }
  return code;
}

Door door_named(std::string_view verb) {
  if (verb == "plan") return vramplan::api::plan;
  if (verb == "answer") return vramplan::api::answer;
  return verb == "diagnose" ? vramplan::api::diagnose : nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  const std::string_view verb = argc > 1 ? argv[1] : "";
  const std::string_view option = argc > 2 ? argv[2] : "";
  const Door door = door_named(verb);
  if (door != nullptr && argc == 2) return answer_one(door);
  if (door != nullptr && argc == 3 && option == "--lines") return answer_lines(door);
  if (verb == "catalogue" && argc == 2) return std::cout << vramplan::api::catalogue() << '\n', 0;
  if (verb == "version" && argc == 2) return std::cout << vramplan::api::version() << '\n', 0;
  std::cerr << kUsage;
  return 2;
}
