#include "vramplan/diagnosis.hpp"

#include <doctest/doctest.h>

#include <string>

#include "api.hpp"

using namespace vramplan;

namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

Bytes part(const DiagnosedCard& card, CardPart id) {
  Bytes sum;
  for (const CardPartRow& row : card.parts) {
    if (row.part == id) sum += row.bytes;
  }
  return sum;
}

Bytes all_parts(const DiagnosedCard& card) {
  Bytes sum;
  for (const CardPartRow& row : card.parts) sum += row.bytes;
  return sum;
}

}  // namespace

TEST_CASE("PyTorch's message of today is read in full, however it is wrapped") {
  const auto d = read_diagnosis(
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total\n   capacity of 24.00 "
      "GiB "
      "of which 512.00 MiB is free. Including non-PyTorch memory, this process has 23.00 GiB memory in use. Of the "
      "allocated memory 21.00 GiB is allocated by PyTorch, and 1.25 GiB is reserved by PyTorch but unallocated. If "
      "...");
  REQUIRE(d.has_value());
  CHECK(d->kind == DiagnosisKind::pytorch_out_of_memory);
  REQUIRE(d->cards.size() == 1);
  const DiagnosedCard& card = d->cards.front();
  CHECK(card.index == 1);
  CHECK(card.capacity.value == 24 * 1024 * kMiB);
  CHECK(part(card, CardPart::allocated).value == 21 * 1024 * kMiB);
  CHECK(part(card, CardPart::unused).value == 1280 * kMiB);
  CHECK(part(card, CardPart::outside_pytorch).value == 768 * kMiB);  // 23 - 21 - 1.25 GiB
  CHECK(part(card, CardPart::other_processes).value == 512 * kMiB);  // 24 - 0.5 - 23 GiB
  CHECK(part(card, CardPart::free).value == 512 * kMiB);
  CHECK(all_parts(card) == card.capacity);
  CHECK(d->requested.value == 2048 * kMiB);
  CHECK(d->shortage.value == 1536 * kMiB);
  // 1.25 unused + 0.5 free < 2 GiB, with the other processes' 0.5 it would have been enough.
  REQUIRE(d->findings.size() == 1);
  CHECK(d->findings.front() == Finding::others_in_way);
}

TEST_CASE("PyTorch's message of before 2.1 is read too") {
  const auto d = read_diagnosis(
      "RuntimeError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 23.00 GiB total capacity; 20.00 GiB "
      "already "
      "allocated; 256.00 MiB free; 21.00 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory");
  REQUIRE(d.has_value());
  const DiagnosedCard& card = d->cards.front();
  CHECK(part(card, CardPart::allocated).value == 20 * 1024 * kMiB);
  CHECK(part(card, CardPart::unused).value == 1024 * kMiB);
  CHECK(part(card, CardPart::outside).value == (2 * 1024 - 256) * kMiB);
  CHECK(all_parts(card) == card.capacity);
  CHECK(d->findings.front() == Finding::run_too_large);
}

TEST_CASE("unused bytes that would have been enough are told as fragments") {
  const auto d = read_diagnosis(
      "Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 24.00 GiB of which 10.00 MiB is free. Including "
      "non-PyTorch memory, this process has 23.99 GiB memory in use. Of the allocated memory 20.00 GiB is allocated by "
      "PyTorch, and 3.00 GiB is reserved by PyTorch but unallocated.");
  REQUIRE(d.has_value());
  CHECK(d->findings.front() == Finding::fragmented);
}

TEST_CASE("the table of nvidia-smi gives each card with its processes") {
  const auto d = read_diagnosis(
      "| 30%   55C    P2   300W / 450W |  22000MiB / 24564MiB |     99%      Default |\n"
      "| 30%   35C    P8    20W / 450W |  24400MiB / 24564MiB |      0%      Default |\n"
      "|    0   N/A  N/A      1234      C   python                          18000MiB |\n"
      "|    0   N/A  N/A      1300      G   /usr/lib/xorg/Xorg                500MiB |\n");
  REQUIRE(d.has_value());
  CHECK(d->kind == DiagnosisKind::nvidia_smi);
  REQUIRE(d->cards.size() == 2);
  const DiagnosedCard& card = d->cards.front();
  CHECK(card.parts.front().name == "python");
  CHECK(part(card, CardPart::process).value == 18'500 * kMiB);
  CHECK(part(card, CardPart::unlisted).value == 3'500 * kMiB);
  CHECK(part(card, CardPart::free).value == 2'564 * kMiB);
  CHECK(all_parts(card) == card.capacity);
  // The second card has 164 of 24564 MiB free, the first runs two processes.
  CHECK(d->findings == std::vector<Finding>{Finding::card_full, Finding::several_on_card});
  CHECK(d->requested.value == 0);
}

TEST_CASE("anything else is no diagnosis") {
  CHECK_FALSE(read_diagnosis("").has_value());
  CHECK_FALSE(read_diagnosis("Segmentation fault").has_value());
  CHECK_FALSE(read_diagnosis("Tried to allocate 20.00 MiB").has_value());
  CHECK_FALSE(read_diagnosis("Tried to allocate 99999999999999999999999 GiB of which").has_value());
}

TEST_CASE("the door names the cards that large, and only changes that free enough") {
  const std::string crash =
      "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.54 GiB of which 1.00 GiB is free. Including "
      "non-PyTorch "
      "memory, this process has 22.54 GiB memory in use. Of the allocated memory 21.00 GiB is allocated by PyTorch, "
      "and "
      "0.50 GiB is reserved by PyTorch but unallocated.";
  const std::string request =
      R"({"model": "meta-llama/Llama-3.1-8B", "training": {"method": "lora", "recompute": "none"}})";
  const std::string answer = api::diagnose("{\"text\": \"" + crash + "\", \"request\": " + request + "}");
  CHECK(answer.find("\"rtx-4090\"") != std::string::npos);
  CHECK(answer.find("\"shortage_bytes\":1073741824") != std::string::npos);
  CHECK(answer.find("\"id\":\"recompute_full\"") != std::string::npos);
  const std::string none = api::diagnose(R"({"text": "hello"})");
  CHECK(none.find("\"diagnosis\":null") != std::string::npos);
  CHECK(api::diagnose("{}").find("\"missing_field\"") != std::string::npos);
  CHECK(api::diagnose("{").find("\"invalid_json\"") != std::string::npos);
}
