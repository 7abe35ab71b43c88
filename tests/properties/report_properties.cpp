// What must hold for every model of the catalogue, whatever is trained: sums, peaks, notations, orders, promises.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "catalogue.hpp"
#include "support/door.hpp"
#include "support/layouts.hpp"
#include "support/notation.hpp"
#include "vramplan/memory.hpp"
#include "vramplan/planner.hpp"
#include "vramplan/step.hpp"

using namespace vramplan;

namespace {

// One way to train, with its layout.
struct Choice {
  std::string name;
  TrainingChoice training;
  LayoutChoice layout;
};

Choice choice(std::string name, const std::function<void(TrainingChoice&, LayoutChoice&)>& set) {
  PlanRequest request;
  LayoutChoice layout;
  set(request.training, layout);
  request.layout = layout;
  CHECK(check_request(request).empty());
  return {std::move(name), resolve_defaults(request).training, layout};
}

// Together they touch every stage: adapters and trained bases, quantized and sharded weights, both frameworks, with and
// without recompute, gradient accumulation, chunked losses.
const std::vector<Choice>& choices() {
  static const std::vector<Choice> all = {
      choice("LoRA", [](TrainingChoice&, LayoutChoice&) {}),
      choice("full, AMP, no recompute",
             [](TrainingChoice& t, LayoutChoice&) {
               t.method = Method::full;
               t.recompute = Recompute::none;
               t.optimizer.foreach = true;
             }),
      choice("QLoRA, fused, two sequences",
             [](TrainingChoice& t, LayoutChoice&) {
               t.method = Method::qlora;
               t.base_weights = WeightFormat::nf4_dq;
               t.recompute = Recompute::none;
               t.kernels = Kernels::fused;
               t.cross_entropy = CrossEntropy::chunked;
               t.micro_batch = 2;
               t.kbit_upcast = true;
             }),
      choice("full, BF16, sharded over 8, accumulation",
             [](TrainingChoice& t, LayoutChoice& l) {
               t.method = Method::full;
               t.precision = Precision::bf16;
               t.optimizer.states = StateFormat::int8;
               t.global_batch = 64;
               l.dp = 8;
               l.zero = 3;
             }),
      choice("last two layers, eager attention, over 3",
             [](TrainingChoice& t, LayoutChoice& l) {
               t.method = Method::freeze;
               t.trainable_layers = 2;
               t.recompute = Recompute::none;
               t.attention = AttentionKernel::eager;
               t.optimizer.name = OptimizerName::adafactor;
               t.sequence_length = 512;
               l.dp = 3;
               l.zero = 2;
             }),
      choice("QLoRA in Unsloth",
             [](TrainingChoice& t, LayoutChoice&) {
               t.method = Method::qlora;
               t.framework = FrameworkId::unsloth;
             }),
      choice("LoRA in litgpt, over 4",
             [](TrainingChoice& t, LayoutChoice& l) {
               t.method = Method::lora;
               t.framework = FrameworkId::litgpt;
               t.precision = Precision::bf16;
               t.cross_entropy = CrossEntropy::chunked;
               l.dp = 4;
               l.zero = 3;
             }),
      choice("DeepSpeed with everything offloaded, accumulating, over 4",
             [](TrainingChoice& t, LayoutChoice& l) {
               t.method = Method::full;
               t.framework = FrameworkId::deepspeed;
               t.offload = {true, true, true};
               t.global_batch = 1024;
               l.dp = 4;
               l.zero = 3;
             }),
      choice("DPO against a model, copies of embedding and head",
             [](TrainingChoice& t, LayoutChoice&) {
               t.method = Method::lora;
               t.objective = Objective::dpo;
               t.reference = Reference::model;
               t.lora.modules_to_save = {SavedModule::embedding, SavedModule::head};
             }),
      choice("LOMO under Liger",
             [](TrainingChoice& t, LayoutChoice&) {
               t.method = Method::lomo;
               t.framework = FrameworkId::liger;
               t.precision = Precision::bf16;
             }),
      choice("DoRA in torchtune, over 2",
             [](TrainingChoice& t, LayoutChoice& l) {
               t.method = Method::dora;
               t.framework = FrameworkId::torchtune;
               t.precision = Precision::bf16;
               t.cross_entropy = CrossEntropy::chunked;
               l.dp = 2;
             }),
  };
  return all;
}

Step step_of(const ModelArchitecture& model, const TrainingChoice& training, const LayoutChoice& layout) {
  return Step(prepare(model, training, layout, Bytes(8'519'680)));
}

// Calls visit(model, choice) for the whole catalogue.
template <class Visit>
void for_everything(Visit visit) {
  for (const ModelCard& card : shipped_catalogue().models) {
    CAPTURE(card.id);
    for (const Choice& c : choices()) {
      CAPTURE(c.name);
      visit(card.architecture, c);
    }
  }
}

Bytes total(const std::vector<Contribution>& contributions) {
  Bytes sum;
  for (const Contribution& c : contributions) sum += c.bytes();
  return sum;
}

Bytes total(const std::vector<ComponentRow>& rows) {
  Bytes sum;
  for (const ComponentRow& row : rows) sum += row.bytes;
  return sum;
}

void check_notations(const std::vector<ComponentRow>& rows) {
  for (const ComponentRow& row : rows) {
    const auto value = Notation(row.notation, row.terms).value();
    if (value && *value == row.bytes.value) continue;
    FAIL_CHECK(name_of(row.component) << ": " << row.notation << " is " << value.value_or(-1) << ", not "
                                      << row.bytes.value);
  }
}

Bytes allocated(const ModelArchitecture& model, const TrainingChoice& training, const LayoutChoice& layout) {
  const Step step = step_of(model, training, layout);
  return step.live(step.peak());
}

// Bytes of activations that wait for backward when forward has ended.
Bytes waiting_activations(const Step& step) {
  Bytes sum;
  for (const Contribution& c : step.contributions({EventKind::forward_head})) {
    const bool waits = c.component >= Component::checkpoints && c.component <= Component::activations_residual;
    if (waits) sum += c.bytes();
  }
  return sum;
}

bool ordered(const Estimate& e) { return e.low <= e.expected && e.expected <= e.high && e.low.value >= 0; }

}  // namespace

TEST_CASE("every model of the catalogue can be walked") {
  CHECK(shipped_catalogue().models.size() >= 300);
  for_everything(
      [](const ModelArchitecture& model, const Choice& c) { CHECK(step_of(model, c.training, c.layout).valid()); });
}

TEST_CASE("what is alive at an event is what it is said to be made of") {
  for_everything([](const ModelArchitecture& model, const Choice& c) {
    const Step step = step_of(model, c.training, c.layout);
    for (const Event event : step.events()) {
      const Bytes parts = total(step.contributions(event));
      if (parts == step.live(event)) continue;
      FAIL_CHECK(name_of(event.kind) << ' ' << event.layer << ": parts " << parts.value << ", live "
                                     << step.live(event).value);
    }
  });
}

TEST_CASE("the peak is the highest of all events") {
  for_everything([](const ModelArchitecture& model, const Choice& c) {
    const Step step = step_of(model, c.training, c.layout);
    const std::vector<Event> events = step.events();
    const auto highest =
        std::max_element(events.begin(), events.end(), [&](Event a, Event b) { return step.live(a) < step.live(b); });
    CHECK(step.live(step.peak()) == step.live(*highest));
    CHECK(std::find(events.begin(), events.end(), step.peak()) != events.end());
  });
}

TEST_CASE("components add up, and each notation evaluates to its bytes") {
  for_everything([](const ModelArchitecture& model, const Choice& c) {
    const Step step = step_of(model, c.training, c.layout);
    const MemoryEstimate m = estimate_memory(step, nullptr);
    const std::vector<ComponentRow> components = breakdown(step, m.peak);
    const std::vector<ComponentRow> beyond = beyond_allocated(m);
    CHECK(total(components) == m.allocated.expected);
    CHECK(total(beyond) == m.device.expected - m.allocated.expected);
    check_notations(components);
    check_notations(beyond);
    check_notations(breakdown(step, {EventKind::optimizer_step}));
  });
}

TEST_CASE("the evaluator of notations refuses what is none") {
  const std::vector<Term> terms = {{"b", 2}, {"s", 3}, {"f_2", 5}};
  const auto value = [&](std::string_view text) { return Notation(text, terms).value(); };
  CHECK(value("7 + 4*b*s*f_2") == 127);
  CHECK(value("2*ceil(b*s*f_2/7)*4") == 40);
  CHECK(value("ceil(b/s)") == 1);
  for (const std::string_view bad :
       {"", "b +", "b*", "x", "ceil(b)", "b s", "b/s", "ceil(b/0)", "2b", "(b)", "b - s"}) {
    CAPTURE(bad);
    CHECK_FALSE(value(bad).has_value());
  }
}

TEST_CASE("low, expected, high; allocated, reserved, device") {
  const auto& gpus = shipped_catalogue().gpus;
  std::size_t turn = 0;
  for_everything([&](const ModelArchitecture& model, const Choice& c) {
    const Gpu& gpu = gpus[turn++ % gpus.size()];
    const MemoryEstimate m = evaluate(model, c.training, c.layout, &gpu);
    CHECK((ordered(m.allocated) && ordered(m.reserved) && ordered(m.device)));
    CHECK((m.allocated.low <= m.reserved.low && m.reserved.low <= m.device.low));
    CHECK((m.allocated.expected <= m.reserved.expected && m.reserved.expected <= m.device.expected));
    CHECK((m.allocated.high <= m.reserved.high && m.reserved.high <= m.device.high));
  });
}

TEST_CASE("more ranks never need more weights, gradients or states on each") {
  for_everything([](const ModelArchitecture& model, const Choice& c) {
    Bytes before(kSaturated);
    for (const std::int64_t ranks : {1, 2, 3, 4, 8, 16, 128, 1024}) {
      LayoutChoice layout = c.layout;
      layout.dp = ranks;
      layout.zero = 3;
      TrainingChoice training = c.training;
      training.global_batch.reset();
      const Step step = step_of(model, training, layout);
      Bytes sharded;
      for (const Contribution& part : step.contributions({EventKind::gradient_reduction})) {
        if (part.component <= Component::optimizer_states && part.component != Component::buffers)
          sharded += part.bytes();
      }
      CHECK(sharded <= before);
      before = sharded;
    }
  });
}

// What the search over GPU counts relies on (suggestion.hpp): the first count aside, more never need more.
TEST_CASE("fully sharded, a run on more ranks never needs more of each card, one rank aside") {
  for_everything([](const ModelArchitecture& model, const Choice& c) {
    for (const bool accumulates : {false, true}) {
      TrainingChoice training = c.training;
      training.global_batch.reset();
      if (accumulates) training.global_batch = training.micro_batch * 1024;
      Estimate before{Bytes(kSaturated), Bytes(kSaturated), Bytes(kSaturated)};
      for (const std::int64_t ranks : {4, 8, 16, 64, 256, 1024}) {
        const Estimate now = evaluate(model, training, support::sharded(ranks), nullptr).device;
        CHECK((now.low <= before.low && now.expected <= before.expected && now.high <= before.high));
        before = now;
      }
    }
  });
}

// Searches keep the graphs and change sizes: that must be the same answer as one made from nothing.
TEST_CASE("an evaluator that has seen other sizes answers as a fresh evaluation") {
  for_everything([](const ModelArchitecture& model, const Choice& c) {
    Evaluator evaluator(model, c.training);
    for (const std::int64_t length : {64, 8192, 600}) {
      for (const std::int64_t ranks : {1, 4}) {
        TrainingChoice training = c.training;
        training.sequence_length = length;
        training.micro_batch = 3;
        const MemoryEstimate now = evaluator(support::sharded(ranks), {3, length}, nullptr);
        const MemoryEstimate expected = evaluate(model, training, support::sharded(ranks), nullptr);
        CHECK(now.device == expected.device);
        CHECK(now.peak == expected.peak);
      }
    }
  });
}

TEST_CASE("recompute keeps no more activations than none does") {
  for_everything([](const ModelArchitecture& model, const Choice& c) {
    TrainingChoice none = c.training;
    none.recompute = Recompute::none;
    TrainingChoice full = c.training;
    full.recompute = Recompute::full;
    const Bytes without = waiting_activations(step_of(model, none, c.layout));
    const Bytes with = waiting_activations(step_of(model, full, c.layout));
    CHECK(with <= without);
  });
}

TEST_CASE("a longer sequence or a larger micro-batch never needs less") {
  for_everything([](const ModelArchitecture& model, const Choice& c) {
    // Unsloth's loss does take less there: of a few more tokens it makes chunks of half as many (unsloth_zoo,
    // fused_losses/cross_entropy_loss.py).
    if (c.training.framework == FrameworkId::unsloth) return;
    TrainingChoice t = c.training;
    t.global_batch.reset();
    Bytes before;
    for (const std::int64_t length : {1, 17, 512, 2048, 8192, 131'072}) {
      t.sequence_length = length;
      const Bytes now = allocated(model, t, c.layout);
      CHECK(before <= now);
      before = now;
    }
    t.sequence_length = c.training.sequence_length;
    before = Bytes{};
    for (const std::int64_t sequences : {1, 2, 3, 8, 64}) {
      t.micro_batch = sequences;
      const Bytes now = allocated(model, t, c.layout);
      CHECK(before <= now);
      before = now;
    }
  });
}

TEST_CASE("a larger adapter never needs less") {
  for_everything([](const ModelArchitecture& model, const Choice& c) {
    TrainingChoice t = c.training;
    Bytes before;
    for (const std::int64_t rank : {1, 8, 16, 64, 256}) {
      t.lora.rank = rank;
      const Bytes now = allocated(model, t, c.layout);
      CHECK(before <= now);
      before = now;
    }
  });
}

TEST_CASE("the timeline, the breakdown and the figures of a report are of one mind") {
  for (const door::Golden& golden : door::golden_requests()) {
    if (door::has_problems(golden)) continue;
    CAPTURE(golden.name);
    const door::Json r = door::report(door::Json::parse(golden.text));
    const door::Json& memory = r.at("memory");
    std::int64_t highest = 0;
    for (const door::Json& event : r.at("timeline")) {
      std::int64_t sum = 0;
      for (const auto& [id, bytes] : event.at("by_component").items()) sum += bytes.get<std::int64_t>();
      CHECK(sum == event.at("live_bytes"));
      highest = std::max(highest, sum);
    }
    CHECK(highest == door::allocated(r));
    std::int64_t beyond = 0;
    for (const door::Json& row : memory.at("beyond_allocated")) beyond += row.at("bytes").get<std::int64_t>();
    CHECK(door::allocated(r) + beyond == memory.at("per_gpu").at("device").at("expected"));
  }
}

TEST_CASE("every number of a report has a source of the catalogue") {
  std::set<std::string> known;
  const door::Json catalogue = door::Json::parse(api::catalogue());
  for (const door::Json& source : catalogue.at("sources")) known.insert(source.at("id"));
  for (const door::Golden& golden : door::golden_requests()) {
    if (door::has_problems(golden)) continue;
    CAPTURE(golden.name);
    const door::Json memory = door::report(door::Json::parse(golden.text)).at("memory");
    for (const char* list : {"components", "beyond_allocated"}) {
      for (const door::Json& row : memory.at(list)) {
        CAPTURE(row.at("id").get<std::string>());
        CHECK(known.contains(row.at("source").get<std::string>()));
      }
    }
  }
}

namespace {

// Whole reports take their time: each golden request is planned once.
const door::Json& planned(const door::Golden& golden) {
  static std::map<std::string, door::Json> known;
  const auto found = known.find(golden.name);
  if (found != known.end()) return found->second;
  return known.emplace(golden.name, door::plan(door::Json::parse(golden.text))).first->second;
}

}  // namespace

TEST_CASE("what was understood, asked again, is answered the same") {
  int turn = 0;
  for (const door::Golden& golden : door::golden_requests()) {
    if (door::has_problems(golden)) continue;
    CAPTURE(golden.name);
    const door::Json& first = planned(golden);
    door::Json request = first.at("request");
    // With the layout that was chosen the run is the same; without it, everything is.
    const door::Json given = door::report(request);
    for (const char* field : {"model", "memory", "timeline", "host_memory", "fit", "speed"}) {
      CHECK((first.at(field) == given.at(field)));
    }
    if (turn++ % 4 != 0) continue;
    if (first.at("layout_chosen") == true) request.erase("layout");
    CHECK((first == door::plan(request)));
  }
}

TEST_CASE("applying a change gives the figures that it promised") {
  int applied = 0;
  int turn = 0;
  for (const door::Golden& golden : door::golden_requests()) {
    if (door::has_problems(golden)) continue;
    CAPTURE(golden.name);
    const door::Json& r = planned(golden);
    const door::Json& now = r.at("memory").at("per_gpu").at("device");
    for (const door::Json& change : r.at("suggestions").at("changes")) {
      if (turn++ % 3 != 0) continue;  // each kind of change comes up in many requests
      CAPTURE(change.at("id").get<std::string>());
      const door::Json after = door::report(change.at("request"));
      const door::Json& device = after.at("memory").at("per_gpu").at("device");
      CHECK(device == change.at("device"));
      CHECK(change.at("saved_bytes").get<std::int64_t>() ==
            now.at("expected").get<std::int64_t>() - device.at("expected").get<std::int64_t>());
      CHECK(change.at("saved_bytes").get<std::int64_t>() > 0);
      CHECK(change.at("verdict") ==
            (after.at("fit").is_null() ? door::Json("unknown") : after.at("fit").at("verdict")));
      const door::Json& speed = after.at("speed");
      if (!speed.is_null() && !speed.contains("refused")) {
        CHECK(speed.at("tokens_per_second").at("expected") == change.at("tokens_per_second"));
      }
      ++applied;
    }
  }
  CHECK(applied > 50);
}

TEST_CASE("hardware that is said to fit fits when it is asked for") {
  int asked = 0;
  for (const door::Golden& golden : door::golden_requests()) {
    if (door::has_problems(golden)) continue;
    CAPTURE(golden.name);
    const door::Json& r = planned(golden);
    std::size_t turn = 0;
    for (const door::Json& system : r.at("suggestions").at("systems")) {
      if (turn++ % 29 != 0) continue;  // they share their figures by the number of GPUs
      CAPTURE(system.at("gpu").get<std::string>());
      CAPTURE(system.at("count").get<std::int64_t>());
      door::Json request = r.at("request");
      request["hardware"] = {{"gpu", system.at("gpu")}, {"count", system.at("count")}};
      request.erase("layout");
      const door::Json planned = door::report(request);
      CHECK(planned.at("memory").at("per_gpu").at("device") == system.at("device"));
      CHECK(planned.at("fit").at("verdict") == system.at("verdict"));
      CHECK(planned.at("fit").at("headroom_bytes") == system.at("headroom_bytes"));
      CHECK((system.at("verdict") == "comfortable" || system.at("verdict") == "tight"));
      ++asked;
    }
  }
  CHECK(asked > 100);
}
