// What filled a card: read from what PyTorch says when it runs out of memory, or from the table of nvidia-smi.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "vramplan/enum_names.hpp"
#include "vramplan/units.hpp"

namespace vramplan {

enum class DiagnosisKind : std::uint8_t { pytorch_out_of_memory, nvidia_smi };
template <>
struct EnumNames<DiagnosisKind> {
  static constexpr Names<2> values = {"pytorch_out_of_memory", "nvidia_smi"};
};

enum class CardPart : std::uint8_t {
  allocated,        // live tensors of this process
  unused,           // reserved by its caching allocator, in no tensor
  outside_pytorch,  // of this process: CUDA context, kernels, communication
  other_processes,
  outside,   // the two before together: older messages do not tell them apart
  process,   // one row of nvidia-smi's table, with its name
  unlisted,  // in use, and in no row: driver, other users' processes
  free,
};
template <>
struct EnumNames<CardPart> {
  static constexpr Names<8> values = {"allocated", "unused",  "outside_pytorch", "other_processes",
                                      "outside",   "process", "unlisted",        "free"};
};

enum class Finding : std::uint8_t {
  fragmented,       // what was asked for would go into the unused bytes, were they in one piece
  others_in_way,    // it would fit if the other processes were not there
  run_too_large,    // it would not fit on the empty card either
  several_on_card,  // more than one process on one card
  card_full,        // less than a twentieth is free
};
template <>
struct EnumNames<Finding> {
  static constexpr Names<5> values = {"fragmented", "others_in_way", "run_too_large", "several_on_card", "card_full"};
};

struct CardPartRow {
  CardPart part = CardPart::free;
  std::string name;  // of a process
  Bytes bytes;
};

struct DiagnosedCard {
  std::int64_t index = 0;
  Bytes capacity;
  std::vector<CardPartRow> parts;  // add up to capacity
};

struct Diagnosis {
  DiagnosisKind kind = DiagnosisKind::pytorch_out_of_memory;
  std::vector<DiagnosedCard> cards;
  Bytes requested;  // by the allocation that failed; 0: none did
  Bytes shortage;   // requested less what was free: the run must become smaller by at least as much
  std::vector<Finding> findings;
};

// Nothing when the text is neither of the two. Reads the messages of PyTorch 1.x and 2.x
// (c10/cuda/CUDACachingAllocator.cpp), for CUDA and HIP, wrapped or not, and nvidia-smi's default table.
[[nodiscard]] std::optional<Diagnosis> read_diagnosis(std::string_view text);

}  // namespace vramplan
