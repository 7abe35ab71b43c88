#include "reader.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <string>

#include "catalogue.hpp"
#include "data.hpp"
#include "vramplan/closest.hpp"

namespace vramplan {
namespace {

Json parse(const char* text) { return Json::parse(text, nullptr, false); }

std::string text(const Problem& problem, const std::string& name) {
  for (const ProblemArgument& argument : problem.arguments) {
    if (argument.name == name && std::holds_alternative<std::string>(argument.value)) {
      return std::get<std::string>(argument.value);
    }
  }
  return "?";
}

TEST_CASE("integers: as JSON means them") {
  const auto read = [](const char* value, IntegerRange range = {-1'000, kLargestJsonInteger}) {
    Problems problems;
    std::int64_t integer = 42;
    const bool good = read_integer(parse(value), "/x", range, problems, integer);
    CHECK(good == problems.empty());
    return good ? std::to_string(integer) : std::string(name_of(problems[0].code));
  };
  CHECK(read("7") == "7");
  CHECK(read("-7") == "-7");
  CHECK(read("7e9") == "7000000000");
  CHECK(read("7.0") == "7");
  CHECK(read("9007199254740991") == "9007199254740991");
  CHECK(read("7.5") == "not_an_integer");
  CHECK(read("1e300") == "out_of_range");
  CHECK(read("18446744073709551615") == "out_of_range");
  CHECK(read("9007199254740992") == "out_of_range");
  CHECK(read("0", {1, 8}) == "out_of_range");
  CHECK(read("9", {1, 8}) == "out_of_range");
  CHECK(read("8", {1, 8}) == "8");
  CHECK(read("\"7\"") == "wrong_type");
  CHECK(read("true") == "wrong_type");
  CHECK(read("null") == "wrong_type");
}

TEST_CASE("a problem says where, what was expected and what was found") {
  Problems problems;
  std::int64_t integer = 5;
  const Json value = parse(R"({"rank": "many", "a/b~c": 1.5, "dropout": 2, "on": 1, "kind": "qlora2"})");
  ObjectReader reader(value, "/training", problems);
  CHECK_FALSE(reader.integer("rank", integer, limits::kLoraRank));
  CHECK_FALSE(reader.integer("a/b~c", integer, limits::kLoraRank));
  double number = 0.5;
  CHECK_FALSE(reader.number("dropout", number, {0, 1}));
  bool on = false;
  CHECK_FALSE(reader.boolean("on", on));
  Method method = Method::dora;
  CHECK_FALSE(reader.enumerator("kind", method));
  CHECK_FALSE(reader.integer("absent", integer, limits::kLoraRank, Need::required));
  reader.finish();
  REQUIRE(problems.size() == 6);
  CHECK(problems[0].pointer == "/training/rank");
  CHECK(text(problems[0], "expected") == "integer");
  CHECK(text(problems[0], "found") == "string");
  CHECK(problems[1].pointer == "/training/a~1b~0c");
  CHECK(problems[1].code == ProblemCode::not_an_integer);
  CHECK(problems[2].code == ProblemCode::out_of_range);
  CHECK(problems[3].code == ProblemCode::wrong_type);
  CHECK(problems[4].code == ProblemCode::unknown_value);
  CHECK(text(problems[4], "allowed").find("qlora") != std::string::npos);
  CHECK(problems[5].code == ProblemCode::missing_field);
  CHECK(problems[5].pointer == "/training/absent");
  CHECK(integer == 5);
  CHECK(number == 0.5);
  CHECK(method == Method::dora);
}

TEST_CASE("absent and null leave the destination alone; null is no value where one is required") {
  Problems problems;
  const Json value = parse(R"({"a": null, "b": null})");
  ObjectReader reader(value, "", problems);
  std::int64_t integer = 5;
  std::optional<bool> flag;
  CHECK_FALSE(reader.integer("a", integer, kAnyCount));
  CHECK_FALSE(reader.boolean("c", flag));
  CHECK_FALSE(reader.has("a"));
  CHECK(problems.empty());
  CHECK_FALSE(reader.integer("b", integer, kAnyCount, Need::required));
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].code == ProblemCode::wrong_type);
  CHECK(integer == 5);
  CHECK_FALSE(flag.has_value());
}

TEST_CASE("unknown fields are named, with the closest known one") {
  Problems problems;
  const Json value = parse(R"({"micro_batch": 1, "sequence_lenght": 4, "zebra": 1})");
  ObjectReader reader(value, "", problems);
  std::int64_t integer = 0;
  reader.integer("micro_batch", integer, kAnyCount);
  reader.integer("sequence_length", integer, kAnyCount);
  reader.finish();
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].code == ProblemCode::unknown_field);
  CHECK(problems[0].pointer == "/sequence_lenght");
  CHECK(text(problems[0], "name") == "sequence_lenght");
  CHECK(text(problems[0], "closest") == "sequence_length");
  CHECK(text(problems[1], "closest").empty());
}

TEST_CASE("lists: each faulty element is a problem of its own") {
  Problems problems;
  const Json value = parse(R"({"targets": ["q", 1, "v", null], "counts": [1, 2.5, 3], "good": ["a"]})");
  ObjectReader reader(value, "", problems);
  std::vector<std::string> targets = {"kept"};
  std::vector<std::int64_t> counts;
  CHECK_FALSE(reader.strings("targets", targets));
  CHECK_FALSE(reader.integers("counts", counts, kAnyCount));
  REQUIRE(problems.size() == 3);
  CHECK(problems[0].pointer == "/targets/1");
  CHECK(problems[1].pointer == "/targets/3");
  CHECK(problems[2].pointer == "/counts/1");
  CHECK(targets == std::vector<std::string>{"kept"});
  CHECK(reader.strings("good", targets));
  CHECK(targets == std::vector<std::string>{"a"});
}

TEST_CASE("what is no object is one problem, not many") {
  Problems problems;
  const Json value = parse("[1]");
  ObjectReader reader(value, "/model", problems);
  std::int64_t integer = 0;
  CHECK_FALSE(reader.integer("a", integer, kAnyCount, Need::required));
  reader.finish();
  REQUIRE(problems.size() == 1);
  CHECK(text(problems[0], "expected") == "object");
  CHECK(text(problems[0], "found") == "array");
}

TEST_CASE("echoes are short and whole characters") {
  CHECK(shortened("short") == "short");
  std::string wide;
  for (int i = 0; i < 100; ++i) wide += "é";
  CHECK(shortened(wide).size() == 120 + 3);
  CHECK(shortened("x" + wide).size() == 119 + 3);
}

TEST_CASE("closest: one slip, a swap, letter case; nothing far away") {
  const std::array<std::string_view, 3> names = {"micro_batch", "global_batch", "packing"};
  CHECK(closest("micro_batc", names) == "micro_batch");
  CHECK(closest("MICRO_BATCH", names) == "micro_batch");
  CHECK(closest("pakcing", names) == "packing");
  CHECK(closest("sequence", names).empty());
  CHECK(closest("", names).empty());
}

template <class Enum>
void check_names() {
  for (std::size_t i = 0; i < EnumNames<Enum>::values.size(); ++i) {
    const auto value = static_cast<Enum>(i);
    CHECK_FALSE(name_of(value).empty());
    CHECK(parse_enum<Enum>(name_of(value)) == value);
  }
  CHECK(name_of(static_cast<Enum>(EnumNames<Enum>::values.size())).empty());
  CHECK_FALSE(parse_enum<Enum>("no such name").has_value());
}

TEST_CASE("names of enumerators are unique, there and back") {
  check_names<ProblemCode>();
  check_names<WeightFormat>();
  check_names<Activation>();
  check_names<Method>();
  check_names<FrameworkId>();
  check_names<SystemType>();
  check_names<FormFactor>();
  check_names<Module>();
  check_names<ParameterKind>();
  CHECK(name_of(Method::qlora) == "qlora");
  CHECK(name_of(Module::shared_expert_gate) == "shared_expert_gate");
  CHECK(name_of(ProblemCode::unknown_dialect) == "unknown_dialect");
  CHECK(name_of(SystemType::pcie_server) == "pcie_server");
}

TEST_CASE("the shipped rows read without a problem") {
  const Result<Catalogue> catalogue = read_catalogue(Json::parse(data::models_json()), Json::parse(data::gpus_json()),
                                                     Json::parse(data::systems_json()));
  for (const Problem& problem : catalogue.problems()) {
    MESSAGE(name_of(problem.code) << " " << problem.pointer << " " << text(problem, "name"));
  }
  REQUIRE(catalogue.ok());
  CHECK(catalogue.value().models.size() == shipped_catalogue().models.size());
}

const char* const kModel = R"({
  "id": "a/b", "label": "B", "family": "f", "model_type": "llama", "source": "s",
  "hidden_size": 64, "vocab_size": 100, "max_position_embeddings": 128,
  "layers": [{"count": 2, "mixers": [{"kind": "attention", "heads": 4, "kv_heads": 2, "head_dim": 16}],
              "mlps": [{"kind": "dense", "intermediate_size": 128}]}]})";

TEST_CASE("a model row: defaults filled in") {
  const Result<ModelCard> card = read_model(parse(kModel), "");
  REQUIRE(card.ok());
  const ModelArchitecture& m = card.value().architecture;
  CHECK(layers_of(m) == 2);
  CHECK(std::get<Attention>(m.groups[0].mixers[0]).v_head_dim == 16);
  CHECK(m.groups[0].norms == 2);
  CHECK(card.value().confidence == Confidence::high);
}

TEST_CASE("a model row: every problem at once, deep inside") {
  Json row = parse(kModel);
  row["hiden_size"] = 1;
  row["hidden_size"] = "wide";
  row["layers"][0]["mixers"][0]["heads"] = 0;
  row["layers"][0]["mlps"][0]["experts"] = 4;
  row["layers"].push_back(parse(R"({"count": 1, "mixers": [{"kind": "atention"}]})"));
  row["total"] = 7;
  const Result<ModelCard> card = read_model(row, "/models/3");
  REQUIRE_FALSE(card.ok());
  std::vector<std::string> found;
  for (const Problem& problem : card.problems()) {
    found.push_back(std::string(name_of(problem.code)) + " " + problem.pointer);
  }
  std::sort(found.begin(), found.end());
  CHECK(found ==
        std::vector<std::string>{"out_of_range /models/3/layers/0/mixers/0/heads", "unknown_field /models/3/hiden_size",
                                 "unknown_field /models/3/layers/0/mlps/0/experts", "unknown_field /models/3/total",
                                 "unknown_value /models/3/layers/1/mixers/0/kind", "wrong_type /models/3/hidden_size"});
}

TEST_CASE("a model row: numbers that read well and do not fit together") {
  Json row = parse(kModel);
  row["layers"][0]["mixers"][0]["kv_heads"] = 3;
  const Result<ModelCard> card = read_model(row, "/models/0");
  REQUIRE(card.problems().size() == 1);
  CHECK(card.problems()[0].code == ProblemCode::inconsistent);
}

}  // namespace
}  // namespace vramplan
