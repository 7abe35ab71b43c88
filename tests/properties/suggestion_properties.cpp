// The search over GPU counts loses nothing by its cut, and never says that something fits which does not.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

#include "vramplan/suggestion.hpp"

using namespace vramplan;

namespace {

const std::vector<std::int64_t> kCounts(std::begin(kTriedCounts), std::end(kTriedCounts));

using Needs = std::map<std::int64_t, std::optional<RunNeed>>;

struct Case {
  Needs needs;
  Bytes usable;
  Verdict worst = Verdict::tight;
};

class Cases {
 public:
  // More ranks never need more, the first count aside; some counts are impossible.
  Case monotone() {
    Case example = start();
    std::int64_t need = between(1, 2000);
    for (const std::int64_t count : kCounts) {
      add(example, count, count == 1 ? between(1, 2000) : need);
      need -= between(0, need / 4);
    }
    return example;
  }

  Case arbitrary() {
    Case example = start();
    for (const std::int64_t count : kCounts) add(example, count, between(1, 2000));
    return example;
  }

 private:
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }

  Case start() {
    width_ = between(0, 30);
    return {{}, Bytes(between(1, 1500)), between(0, 1) == 0 ? Verdict::tight : Verdict::at_risk};
  }

  void add(Case& example, std::int64_t count, std::int64_t need) {
    const bool is_impossible = between(0, 5) == 0;
    example.needs[count] = is_impossible ? std::optional<RunNeed>()
                                         : RunNeed{{Bytes(need), Bytes(need + width_), Bytes(need + 2 * width_)}};
  }

  std::mt19937_64 random_{20261130};
  std::int64_t width_ = 0;
};

bool good(const Case& example, std::int64_t count) {
  const auto& need = example.needs.at(count);
  return need && judge(need->device, example.usable).verdict <= example.worst;
}

std::optional<EvaluatedCount> found_by_search(const Case& example, int* evaluations = nullptr) {
  return smallest_fitting(kCounts, example.usable, example.worst, [&](std::int64_t count) {
    if (evaluations != nullptr) ++*evaluations;
    return example.needs.at(count);
  });
}

std::optional<std::int64_t> found_by_trying_all(const Case& example) {
  const auto first = std::find_if(kCounts.begin(), kCounts.end(), [&](std::int64_t n) { return good(example, n); });
  if (first == kCounts.end()) return std::nullopt;
  return *first;
}

}  // namespace

TEST_CASE("the cut loses nothing while more ranks never need more") {
  Cases cases;
  int hits = 0;
  for (int i = 0; i < 20000; ++i) {
    const Case example = cases.monotone();
    const auto expected = found_by_trying_all(example);
    const auto found = found_by_search(example);
    REQUIRE(found.has_value() == expected.has_value());
    if (found) REQUIRE(found->count == *expected);
    hits += found ? 1 : 0;
  }
  CHECK(hits > 2000);  // the cases are neither all hopeless nor all easy
  CHECK(hits < 19000);
}

TEST_CASE("what is said to fit fits, whatever the need looks like") {
  Cases cases;
  for (int i = 0; i < 20000; ++i) {
    const Case example = cases.arbitrary();
    const auto found = found_by_search(example);
    if (!found) continue;
    REQUIRE(good(example, found->count));
    REQUIRE(found->need.device == example.needs.at(found->count)->device);
    REQUIRE(found->fit.verdict == judge(found->need.device, example.usable).verdict);
  }
}

TEST_CASE("no count is evaluated twice, and a hopeless card costs two evaluations") {
  Cases cases;
  for (int i = 0; i < 2000; ++i) {
    int evaluations = 0;
    (void)found_by_search(cases.monotone(), &evaluations);
    REQUIRE(evaluations <= static_cast<int>(kCounts.size()));
  }
  int evaluations = 0;
  CHECK_FALSE(smallest_fitting(kCounts, Bytes(1), Verdict::tight, [&](std::int64_t) {
    ++evaluations;
    return std::optional(RunNeed{{Bytes(2), Bytes(2), Bytes(2)}});
  }));
  CHECK(evaluations == 2);
}

TEST_CASE("a longer list of counts never loses a card") {
  Cases cases;
  for (int i = 0; i < 5000; ++i) {
    const Case example = cases.monotone();
    bool was_found = false;
    for (std::size_t n = 0; n <= kCounts.size(); ++n) {
      const auto found = smallest_fitting(std::span(kCounts).first(n), example.usable, example.worst,
                                          [&](std::int64_t count) { return example.needs.at(count); });
      REQUIRE((found || !was_found));
      was_found = found.has_value();
    }
  }
}

TEST_CASE("offers hold the GPUs asked for with no box too many") {
  std::mt19937_64 random(7);
  const auto between = [&](std::int64_t a, std::int64_t b) {
    return std::uniform_int_distribution<std::int64_t>(a, b)(random);
  };
  for (int i = 0; i < 5000; ++i) {
    System system;
    system.id = "box";
    system.gpus = {"card"};
    system.type = between(0, 1) == 0 ? SystemType::pcie_server : SystemType::workstation;
    for (std::int64_t n = between(1, 3); n <= 16; n += between(1, 6)) system.gpu_counts.push_back(n);
    const std::int64_t count = between(1, 1024);
    Catalogue catalogue;
    catalogue.systems = {system};
    const auto offers = offers_for(catalogue, "card", count);
    const std::int64_t largest = system.gpu_counts.back();
    REQUIRE(offers.empty() == (system.type == SystemType::workstation && count > largest));
    for (const SystemOffer& offer : offers) {
      REQUIRE(offer.gpus_in_system * offer.systems_needed >= count);
      REQUIRE((offer.systems_needed - 1) * largest < count);
      REQUIRE(std::count(system.gpu_counts.begin(), system.gpu_counts.end(), offer.gpus_in_system) == 1);
    }
  }
}
