// What one rank of a layout holds, against shapes and schedules worked out by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "support/steps.hpp"
#include "vramplan/layout.hpp"

using namespace vramplan;

namespace {

const ModelArchitecture& llama() { return support::model_of("meta-llama/Llama-3.1-8B"); }
const ModelArchitecture& mixtral() { return support::model_of("mistralai/Mixtral-8x7B-v0.1"); }

LayoutChoice layout(std::int64_t tp, std::int64_t pp = 1, std::int64_t vpp = 1) {
  LayoutChoice l;
  l.tp = tp;
  l.pp = pp;
  l.vpp = vpp;
  return l;
}

std::int64_t parameters(const ModelArchitecture& model, const LayoutChoice& l, std::int64_t stage) {
  return total_parameters(parameter_groups(part_of(model, l, stage_of(model, l, 64, stage), 1))).value;
}

// Of Llama 3.1 8B: the table, and of a layer the matrices and the norms.
constexpr std::int64_t kTable = 128256LL * 4096;
constexpr std::int64_t kMatrices = 2LL * 4096 * 4096 + 2LL * 1024 * 4096 + 3LL * 14336 * 4096;
constexpr std::int64_t kNorms = 2LL * 4096;

std::int64_t argument(const Problem& problem, std::string_view name) {
  for (const ProblemArgument& a : problem.arguments) {
    if (a.name == name) return std::get<std::int64_t>(a.value);
  }
  return -1;
}

}  // namespace

TEST_CASE("tensor parallelism deals out matrices and vocabulary, and leaves norms whole") {
  CHECK(parameters(llama(), layout(8), 0) == 2 * kTable / 8 + 32 * (kMatrices / 8 + kNorms) + 4096);
  // More ranks than key heads: each holds one whole key head.
  constexpr std::int64_t kKeys = 2LL * 1024 * 4096;
  CHECK(parameters(llama(), layout(16), 0) ==
        2 * kTable / 16 + 32 * ((kMatrices - kKeys) / 16 + kKeys / 8 + kNorms) + 4096);
}

TEST_CASE("a pipeline cuts the stack; the ends hold embedding and head") {
  const LayoutChoice l = layout(1, 4);
  const std::int64_t eight = 8 * (kMatrices + kNorms);
  CHECK(parameters(llama(), l, 0) == kTable + eight);
  CHECK(parameters(llama(), l, 1) == eight);
  CHECK(parameters(llama(), l, 3) == eight + kTable + 4096);
  // 32 layers in 5 stages: two more, behind the first stage.
  const LayoutChoice uneven = layout(1, 5);
  const std::vector<Dim> expected{6, 7, 7, 6, 6};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(stage_of(llama(), uneven, 8, static_cast<std::int64_t>(i)).held == std::vector<Dim>{expected[i]});
  }
}

TEST_CASE("the ends of a pipeline take the layers that they are given, the other stages share the rest") {
  const auto held = [](const LayoutChoice& l) {
    std::vector<Dim> layers;
    for (std::int64_t i = 0; i < l.pp; ++i) layers.push_back(stage_of(llama(), l, 8, i).held.front());
    return layers;
  };
  LayoutChoice l = layout(1, 5);
  l.first_stage_layers = 5;  // 27 more for four stages
  CHECK(held(l) == std::vector<Dim>{5, 7, 7, 7, 6});
  l.last_stage_layers = 4;  // 23 for three
  CHECK(held(l) == std::vector<Dim>{5, 8, 8, 7, 4});
  l.first_stage_layers.reset();  // 28 for four
  CHECK(held(l) == std::vector<Dim>{7, 7, 7, 7, 4});
  l.last_stage_layers = 6;  // 26 for four: what is left over comes behind the first
  CHECK(held(l) == std::vector<Dim>{6, 7, 7, 6, 6});
  LayoutChoice two = layout(1, 2);
  two.first_stage_layers = 20, two.last_stage_layers = 12;
  CHECK(held(two) == std::vector<Dim>{20, 12});
  // Virtual stages: 6 in two chunks, and 26 for the four chunks of the others, in turn: 7 and 7, 6 and 6.
  LayoutChoice chunks = layout(1, 3, 2);
  chunks.first_stage_layers = 6;
  CHECK(held(chunks) == std::vector<Dim>{6, 13, 13});
}

TEST_CASE("what the ends of a pipeline take leaves every other stage a layer") {
  const auto problems = [](std::int64_t pp, std::int64_t vpp, std::optional<std::int64_t> first,
                           std::optional<std::int64_t> last) {
    LayoutChoice l = layout(1, pp, vpp);
    l.first_stage_layers = first, l.last_stage_layers = last;
    return check_layout(llama(), l);
  };
  CHECK(problems(4, 1, 7, 7).empty());
  CHECK(problems(2, 1, 20, 12).empty());
  const Problems most = problems(4, 1, 30, {});  // 3 other stages of 32 layers
  REQUIRE(most.size() == 1);
  CHECK(most.front().pointer == "/layout/first_stage_layers");
  CHECK(argument(most.front(), "below") == 29);
  const Problems uneven = problems(4, 2, {}, 5);  // two chunks
  REQUIRE(uneven.size() == 1);
  CHECK(uneven.front().pointer == "/layout/last_stage_layers");
  CHECK(argument(uneven.front(), "below") == 4);
  CHECK(argument(uneven.front(), "above") == 6);
  const Problems alone = problems(1, 1, 16, {});
  REQUIRE(alone.size() == 1);
  CHECK(alone.front().code == ProblemCode::inconsistent);
}

TEST_CASE("a table that is embedding and head is on the first and on the last stage") {
  const ModelArchitecture& tied = support::model_of("meta-llama/Llama-3.2-1B");
  const std::int64_t table = 128256LL * 2048;
  const std::int64_t whole = total_parameters(parameter_groups(tied)).value;
  CHECK(parameters(tied, layout(1, 2), 0) + parameters(tied, layout(1, 2), 1) == whole + table);
}

TEST_CASE("expert parallelism deals out experts, not the router") {
  LayoutChoice l = layout(1);
  l.ep = 4;
  constexpr std::int64_t kExpert = 3LL * 14336 * 4096;
  const std::int64_t whole = total_parameters(parameter_groups(mixtral())).value;
  CHECK(parameters(mixtral(), l, 0) == whole - 32 * 6 * kExpert);
  // Experts dealt out are not cut by tp, unless etp says so.
  l.tp = 2;
  l.dp = 2;
  const std::int64_t uncut = parameters(mixtral(), l, 0);
  l.etp = 2;
  CHECK(uncut - parameters(mixtral(), l, 0) == 32 * 2 * kExpert / 2);
}

TEST_CASE("1F1B: stage i of p has p - i micro-batches in flight, of which the newest runs") {
  const LayoutChoice l = layout(1, 4);
  for (std::int64_t i = 0; i < 4; ++i) {
    const Stage stage = stage_of(llama(), l, 64, i);
    CHECK(stage.walked == std::vector<Dim>{8});
    CHECK(stage.waiting == std::vector<Dim>{8 * (4 - i - 1)});
  }
  CHECK(stage_of(llama(), l, 2, 0).waiting == std::vector<Dim>{8});  // no more than there are
  CHECK(stage_of(llama(), l, 64, 0).embeddings_waiting == 3);
}

TEST_CASE("interleaved: 2 (p - i - 1) + (v - 1) p + 1 chunks are in flight") {
  const LayoutChoice l = layout(1, 4, 2);
  // Chunks of 4 layers. Stage 0: 2 x 3 + 4 + 1 = 11 forwards: 4 of chunk 0, 4 of chunk 1, 3 of chunk 0 again.
  const Stage first = stage_of(llama(), l, 64, 0);
  CHECK(first.held == std::vector<Dim>{8});
  CHECK(first.walked == std::vector<Dim>{4});
  CHECK(first.waiting == std::vector<Dim>{10 * 4});
  CHECK(first.embeddings_waiting == 6);
  const Stage last = stage_of(llama(), l, 64, 3);  // 0 + 4 + 1
  CHECK(last.waiting == std::vector<Dim>{4 * 4});
}

TEST_CASE("every layer is on one stage, whatever the cut") {
  for (const char* id : {"meta-llama/Llama-3.1-8B", "deepseek-ai/DeepSeek-V3", "google/gemma-2-9b"}) {
    const ModelArchitecture& model = support::model_of(id);
    for (std::int64_t pp = 1; pp <= 8; ++pp) {
      for (std::int64_t vpp = 1; vpp <= (pp > 1 ? 3 : 1); ++vpp) {
        std::vector<Dim> sum(model.groups.size());
        for (std::int64_t i = 0; i < pp; ++i) {
          const std::vector<Dim> held = stage_of(model, layout(1, pp, vpp), 64, i).held;
          std::transform(sum.begin(), sum.end(), held.begin(), sum.begin(), std::plus<>());
        }
        for (std::size_t g = 0; g < sum.size(); ++g) CHECK(sum[g] == model.groups[g].count);
      }
    }
  }
}

TEST_CASE("the stage that holds the most is the first, the second, the last, or where another kind of layer begins") {
  using Stages = std::vector<std::int64_t>;
  CHECK(binding_stages(llama(), layout(1)) == Stages{0});
  CHECK(binding_stages(llama(), layout(1, 2)) == Stages{0, 1});
  CHECK(binding_stages(llama(), layout(1, 8)) == Stages{0, 1, 7});
  // 61 layers over 32 stages: one on the first and on the last two, two on the others. Experts begin at the fourth
  // layer, the first one of stage 2: none is both.
  const ModelArchitecture& deepseek = support::model_of("deepseek-ai/DeepSeek-V3");
  CHECK(binding_stages(deepseek, layout(1, 32)) == Stages{0, 1, 31, 2});
  LayoutChoice ends = layout(1, 8);
  ends.first_stage_layers = 1;
  // 1, then 60 / 7: 8 on each and one more on the first four. The fourth layer is on stage 1, behind others.
  CHECK(binding_stages(deepseek, ends) == Stages{0, 1, 7, 2});
}

TEST_CASE("the rest of a rank's numbers follow: symbols of widths, tokens of a sequence") {
  TrainingChoice t;
  t.method = Method::full;
  LayoutChoice l = layout(4);
  l.cp = 2;
  l.sp = true;
  const Step step(prepare(llama(), resolve_defaults({ModelById{}, t, {}, l, {}}).training, l, Bytes(0)));
  const SymbolTable& symbols = step.stacks().front().block.symbols;
  CHECK(symbols[Symbol::s] == 1024);
  CHECK(symbols[Symbol::w] == 2048);
  CHECK(symbols[Symbol::h] == 4096);
  CHECK(symbols[Symbol::hp] == 1024);
  CHECK(symbols[Symbol::f] == 14336 / 4);
  CHECK(symbols[Symbol::a] == 8);
  CHECK(symbols[Symbol::ak] == 2);
}

TEST_CASE("micro-batches that wait keep what one keeps, times as many") {
  TrainingChoice t;
  t.method = Method::full;
  t.recompute = Recompute::none;
  t.global_batch = 16;
  const LayoutChoice l = layout(1, 4);
  const TrainingChoice resolved = resolve_defaults({ModelById{}, t, {}, l, {}}).training;
  const Step first(prepare(llama(), resolved, l, Bytes(0), 0));
  const Step third(prepare(llama(), resolved, l, Bytes(0), 2));
  const WalkedGraph& block = first.stacks().front().block;
  const Event event{EventKind::backward_block, 7};
  // Two micro-batches of 8 layers more, and of the first stage what the embedding keeps of all four.
  const std::int64_t kept = 2 * 8 * block.saved.value;
  CHECK(third.stacks().front().block.saved == block.saved);
  const std::int64_t difference = first.live(event).value - third.live(event).value;
  CHECK(difference >= kept);
  CHECK((difference - kept) % 2 == 0);
}

TEST_CASE("experts that are dealt out are shared by the ranks that hold the same ones") {
  TrainingChoice t;
  t.method = Method::full;
  t.precision = Precision::bf16;
  LayoutChoice l = layout(1);
  l.dp = 8;
  l.ep = 4;
  l.zero = 1;
  const Step step(prepare(mixtral(), resolve_defaults({ModelById{}, t, {}, l, {}}).training, l, Bytes(0)));
  const std::int64_t experts = 32 * 2 * 3LL * 14336 * 4096;  // two of eight a layer
  const std::int64_t rest = total_parameters(parameter_groups(mixtral())).value - 4 * experts;
  // Two states of two bytes: the rest over eight ranks, the experts over two.
  CHECK(support::held(step, Component::optimizer_states, EventKind::steady) == 4 * (rest / 8 + experts / 2));
  CHECK(support::held(step, Component::weights, EventKind::steady) == 2 * (rest + experts));
}

TEST_CASE("layouts that do not suit the model: the rule, and the nearest legal values") {
  LayoutChoice l = layout(6);
  Problems problems = check_layout(llama(), l);
  REQUIRE(problems.size() == 2);  // heads and widths
  CHECK(problems[0].pointer == "/layout/tp");
  CHECK(argument(problems[0], "below") == 4);
  CHECK(argument(problems[0], "above") == 8);
  problems = check_layout(llama(), layout(1, 40));
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].pointer == "/layout/pp");
  CHECK(argument(problems[0], "below") == 32);
  l = layout(1);
  l.ep = 3;
  l.dp = 12;
  problems = check_layout(mixtral(), l);
  REQUIRE(problems.size() == 1);
  CHECK(argument(problems[0], "below") == 2);
  CHECK(argument(problems[0], "above") == 4);
  CHECK(check_layout(llama(), l).size() == 1);  // no experts at all
  CHECK(check_layout(llama(), layout(1, 1, 2)).at(0).pointer == "/layout/vpp");
  l = layout(1);
  l.sp = true;
  CHECK(check_layout(llama(), l).at(0).pointer == "/layout/sp");
  CHECK(check_layout(llama(), layout(8, 4, 2)).empty());
}

TEST_CASE("ranks lie as Megatron lays them out: tensors next to each other, then sequences, then data, then stages") {
  // 2 x 2 x 4 x 2 = 32 GPUs; a stage is 16 of them. Rank 21 is the sixth of the second stage: 5 = 1 + 2 x (0 + 2 x 1).
  LayoutChoice l = layout(2, 2);
  l.cp = 2;
  l.dp = 4;
  const RankMap map = map_ranks(l, 8);
  CHECK(map.nodes == 4);
  CHECK(map.per_node == 8);
  REQUIRE(map.kinds.size() == 2);  // a stage fills two nodes of the same parts
  CHECK(map.kinds[0].nodes == 2);
  CHECK(map.kinds[1].nodes == 2);
  const PlacedRank& r = map.kinds[1].ranks[5];
  CHECK(r.rank == 21);
  CHECK(r.pp == 1);
  CHECK(r.tp == 1);
  CHECK(r.cp == 0);
  CHECK(r.dp == 1);
  CHECK(r.ep == 0);
}

TEST_CASE("experts are dealt to ranks that see other data; a last node may be partly filled") {
  LayoutChoice l;  // 10 GPUs, each with its own data; experts in five, so ranks 4 and 9 hold the last fifth
  l.dp = 10;
  l.ep = 5;
  const RankMap map = map_ranks(l, 8);
  CHECK(map.nodes == 2);
  REQUIRE(map.kinds.size() == 2);
  CHECK(map.kinds[0].ranks[4].ep == 4);
  CHECK(map.kinds[1].ranks.size() == 2);
  CHECK(map.kinds[1].ranks[1].rank == 9);
  CHECK(map.kinds[1].ranks[1].ep == 4);
  CHECK(map.kinds[1].ranks[1].dp == 9);
}

TEST_CASE("a tensor that two nodes share makes two kinds of node") {
  LayoutChoice l = layout(4);
  l.dp = 2;
  const RankMap map = map_ranks(l, 2);
  CHECK(map.nodes == 4);
  REQUIRE(map.kinds.size() == 2);
  CHECK(map.kinds[0].nodes == 2);
  CHECK(map.kinds[1].ranks[0].tp == 2);
}
