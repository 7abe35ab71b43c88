// How long an answer takes: requests through the door, and the memory of one rank as searches ask for it. Figures of
// this process's own time, for the eye and for bench.mjs; nothing is judged here.
//   bench [SECONDS] [--json] [--evaluate]     at least so long for each figure; without it just long enough to see that
//                                             it works. --evaluate: only the memory of one rank
#include <algorithm>
#include <ctime>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "api.hpp"
#include "catalogue.hpp"
#include "support/layouts.hpp"
#include "vramplan/memory.hpp"
#include "vramplan/planner.hpp"
#include "vramplan/search.hpp"
#include "vramplan/speed.hpp"

using namespace vramplan;

namespace {

// bench.mjs times the same ones.
constexpr std::string_view kRequests[] = {"lora-bf16_amp-llama-3.1-8b", "full-bf16_amp-llama-3.1-8b-zero3",
                                          "qlora-nf4-qwen3-30b-a3b-moe-fused"};

struct Figure {
  std::string name;
  double seconds = 0;  // one call
};

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// The mean of as many calls as fill the time. Whole batches: reading the clock costs more than a call may.
double mean_of_calls(double least, const std::function<void()>& call) {
  const double start = processor_seconds();
  double now = start;
  std::int64_t calls = 0;
  for (std::int64_t batch = 1; calls == 0 || now - start < least; batch *= 2) {
    for (std::int64_t i = 0; i < batch; ++i) call();
    calls += batch;
    now = processor_seconds();
  }
  return (now - start) / static_cast<double>(calls);
}

// The quickest of a few rounds, after one that fills the caches: what else the machine does only adds.
double seconds_per_call(double least, const std::function<void()>& call) {
  constexpr int kRounds = 5;
  (void)mean_of_calls(0, call);
  double best = mean_of_calls(least / kRounds, call);
  for (int round = 1; round < kRounds; ++round) best = std::min(best, mean_of_calls(least / kRounds, call));
  return best;
}

std::string read_request(std::string_view name) {
  const std::string path = std::string(VRAMPLAN_SOURCE_DIR) + "/tests/golden/requests/" + std::string(name) + ".json";
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A checksum of everything that is computed, so that no call can be left out.
std::int64_t seen = 0;

Figure plan_figure(double least, std::string_view name) {
  const std::string request = read_request(name);
  if (api::has_problems(api::plan(request))) std::cerr << name << " has problems\n";
  return {"plan " + std::string(name),
          seconds_per_call(least, [&] { seen += static_cast<std::int64_t>(api::plan(request).size()); })};
}

// The memory of one rank as a search asks for it: each call another layout, batch and length.
Figure evaluate_figure(double least, std::string_view id, Method method) {
  const ModelCard* card = find_model(shipped_catalogue(), id);
  if (card == nullptr) return {"evaluate " + std::string(id) + ": no such model", 0};
  PlanRequest request;
  request.training.method = method;
  Evaluator evaluate(card->architecture, resolve_defaults(request).training);
  constexpr std::int64_t kSizes = 16;
  std::int64_t turn = 0;
  const auto call = [&] {
    turn = (turn + 1) % kSizes;
    const LayoutChoice layout = support::sharded(turn + 2);
    seen += evaluate(layout, {turn % 4 + 1, 512 * (turn + 1)}, nullptr).device.expected.value % 1024;
  };
  return {"evaluate " + std::string(id) + " " + std::string(name_of(method)), seconds_per_call(least, call)};
}

// All layouts of so many GPUs for a full training, with their micro-batches and recomputation, ranked by the planner's
// own estimate of their speed: one ranked layout.
Figure search_figure(double least, std::string_view id, FrameworkId framework, std::int64_t gpus) {
  const std::string name = "search " + std::string(id) + " " + std::string(name_of(framework)) + " " +
                           std::to_string(gpus) + " GPUs, a layout";
  const ModelCard* card = find_model(shipped_catalogue(), id);
  const Gpu* gpu = find_gpu(shipped_catalogue(), "h100-sxm-80gb");
  if (card == nullptr || gpu == nullptr) return {name + ": no such model", 0};
  PlanRequest request;
  request.training.method = Method::full;
  request.training.framework = framework;
  request.training.sequence_length = 8192;
  request.training.global_batch = gpus;
  const TrainingChoice training = resolve_defaults(request).training;
  const SearchSpace space{.gpus = gpus, .micro_batches = true, .recomputation = true};
  const SpeedModel model(card->architecture, training, *gpu, node_shape(*gpu, gpu->max_per_server, std::nullopt));
  const TokensPerSecond speed = [&](const LayoutChoice& l, std::int64_t micro_batch, Recompute recompute) {
    return model(l, {micro_batch, training.sequence_length}, recompute).tokens_per_second.expected;
  };
  std::int64_t layouts = 1;
  const double all = seconds_per_call(least, [&] {
    const SearchResult found = LayoutSearch(card->architecture, training)(*gpu, space, speed);
    layouts = std::max<std::int64_t>(found.layouts, 1);
    seen += found.evaluated;
  });
  return {name, all / static_cast<double>(layouts)};
}

std::vector<Figure> measure(double least, bool plans) {
  std::vector<Figure> figures;
  for (const std::string_view name : kRequests) {
    if (plans) figures.push_back(plan_figure(least, name));
  }
  for (const Method method : {Method::full, Method::lora}) {
    figures.push_back(evaluate_figure(least, "meta-llama/Llama-3.1-8B", method));
  }
  figures.push_back(search_figure(least, "meta-llama/Llama-3.1-8B", FrameworkId::transformers, 8));
  figures.push_back(search_figure(least, "meta-llama/Llama-3.1-405B", FrameworkId::megatron, 1024));
  figures.push_back(search_figure(least, "deepseek-ai/DeepSeek-V3", FrameworkId::megatron, 1024));
  return figures;
}

void print(const Figure& figure) {
  const double rate = figure.seconds > 0 ? 1 / figure.seconds : 0;
  std::cout << figure.name << ": " << figure.seconds * 1e6 << " us, " << rate << " a second\n";
}

}  // namespace

int main(int argc, char** argv) {
  double least = 0;
  bool as_json = false;
  bool plans = true;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--json") {
      as_json = true;
    } else if (std::string_view(argv[i]) == "--evaluate") {
      plans = false;
    } else {
      least = std::stod(argv[i]);
    }
  }
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const Figure& figure : measure(least, plans)) {
    json[figure.name] = figure.seconds;
    if (!as_json) print(figure);
  }
  if (as_json) std::cout << json.dump() << '\n';
  return seen == 0 ? 1 : 0;
}
