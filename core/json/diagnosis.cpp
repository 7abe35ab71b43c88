#include "vramplan/diagnosis.hpp"

#include <algorithm>
#include <utility>

namespace vramplan {
namespace {

// A text of any length: nobody reads more rows than these.
constexpr std::size_t kMostCards = 16;
constexpr std::size_t kMostProcesses = 64;
constexpr std::size_t kLongestName = 80;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// One space for each run of them: a pasted message may be wrapped anywhere between its words.
std::string unwrapped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (!is_space(c)) {
      out += c;
    } else if (!out.empty() && out.back() != ' ') {
      out += ' ';
    }
  }
  return out;
}

struct Unit {
  std::string_view name;
  std::int64_t bytes;
};
constexpr Unit kUnits[] = {
    {"bytes", 1}, {"KiB", 1LL << 10}, {"MiB", 1LL << 20}, {"GiB", 1LL << 30}, {"TiB", 1LL << 40}};
constexpr std::size_t kMostDigits = 9;  // before and after the point: products stay far below overflow

// "79.15 GiB", "22000MiB" at the start of the text; what follows is left in it.
std::optional<Bytes> take_amount(std::string_view& text) {
  std::int64_t whole = 0, fraction = 0, scale = 1;
  std::size_t at = 0;
  for (; at < text.size() && at < kMostDigits && is_digit(text[at]); ++at) whole = whole * 10 + (text[at] - '0');
  if (at == 0) return std::nullopt;
  if (at < text.size() && text[at] == '.') {
    for (++at; at < text.size() && scale < 100'000 && is_digit(text[at]); ++at) {
      fraction = fraction * 10 + (text[at] - '0');
      scale *= 10;
    }
  }
  if (at < text.size() && text[at] == ' ') ++at;
  text.remove_prefix(at);
  for (const Unit& unit : kUnits) {
    if (!text.starts_with(unit.name)) continue;
    text.remove_prefix(unit.name.size());
    return Bytes(saturating_multiply(whole, unit.bytes)) + Bytes(fraction * unit.bytes / scale);
  }
  return std::nullopt;
}

std::optional<Bytes> amount_after(std::string_view text, std::string_view phrase) {
  const std::size_t at = text.find(phrase);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + phrase.size());
  return take_amount(text);
}

// The two words before the phrase.
std::optional<Bytes> amount_before(std::string_view text, std::string_view phrase) {
  const std::size_t at = text.find(phrase);
  if (at == std::string_view::npos) return std::nullopt;
  text = text.substr(0, at);
  const std::size_t unit = text.rfind(' ');
  if (unit == std::string_view::npos || unit == 0) return std::nullopt;
  const std::size_t number = text.rfind(' ', unit - 1);
  text.remove_prefix(number == std::string_view::npos ? 0 : number + 1);
  return take_amount(text);
}

std::int64_t number_after(std::string_view text, std::string_view phrase) {
  std::int64_t number = 0;
  const std::size_t at = text.find(phrase);
  if (at == std::string_view::npos) return 0;
  text.remove_prefix(at + phrase.size());
  for (std::size_t i = 0; i < text.size() && i < 3 && is_digit(text[i]); ++i) number = number * 10 + (text[i] - '0');
  return number;
}

Bytes at_least_zero(Bytes bytes) { return std::max(bytes, Bytes{}); }

// What one message of PyTorch says; a number that it lacks is absent.
struct Message {
  std::optional<Bytes> requested, capacity, free, of_process, allocated, unused;
};

// "… Of the allocated memory 76.56 GiB is allocated by PyTorch, and 1.20 GiB is reserved by PyTorch but unallocated."
Message read_message(std::string_view text) {
  Message m;
  m.requested = amount_after(text, "Tried to allocate ");
  m.capacity = amount_before(text, " of which ");
  m.free = amount_after(text, " of which ");
  m.of_process = amount_after(text, "this process has ");
  m.allocated = amount_after(text, "Of the allocated memory ");
  m.unused = amount_before(text, " is reserved by PyTorch but unallocated");
  return m;
}

// "… (GPU 0; 23.65 GiB total capacity; 20.00 GiB already allocated; 1.00 GiB free; 22.00 GiB reserved in total by …"
Message read_old_message(std::string_view text) {
  Message m;
  m.requested = amount_after(text, "Tried to allocate ");
  m.capacity = amount_before(text, " total capacity");
  m.allocated = amount_before(text, " already allocated");
  m.free = amount_before(text, " free;");
  const std::optional<Bytes> reserved = amount_before(text, " reserved in total");
  if (reserved && m.allocated) m.unused = at_least_zero(*reserved - *m.allocated);
  return m;
}

DiagnosedCard card_of(const Message& m) {
  const Bytes allocated = m.allocated.value_or(Bytes{}), unused = m.unused.value_or(Bytes{});
  DiagnosedCard card;
  card.capacity = *m.capacity;
  card.parts = {{CardPart::allocated, {}, allocated}, {CardPart::unused, {}, unused}};
  const Bytes rest = at_least_zero(*m.capacity - *m.free - allocated - unused);
  if (m.of_process) {
    const Bytes own = std::min(rest, at_least_zero(*m.of_process - allocated - unused));
    card.parts.push_back({CardPart::outside_pytorch, {}, own});
    card.parts.push_back({CardPart::other_processes, {}, rest - own});
  } else {
    card.parts.push_back({CardPart::outside, {}, rest});
  }
  card.parts.push_back({CardPart::free, {}, *m.free});
  return card;
}

Bytes part_of(const DiagnosedCard& card, CardPart part) {
  Bytes sum;
  for (const CardPartRow& row : card.parts) {
    if (row.part == part) sum += row.bytes;
  }
  return sum;
}

Finding cause_of(const DiagnosedCard& card, Bytes requested) {
  const Bytes free = part_of(card, CardPart::free), unused = part_of(card, CardPart::unused);
  if (unused + free >= requested) return Finding::fragmented;
  if (unused + free + part_of(card, CardPart::other_processes) >= requested) return Finding::others_in_way;
  return Finding::run_too_large;
}

std::optional<Diagnosis> read_out_of_memory(std::string_view text) {
  const std::size_t start = text.find("Tried to allocate ");
  if (start == std::string_view::npos) return std::nullopt;
  const std::string_view from = text.substr(start);
  Message message = read_message(from);
  const bool is_old = !message.capacity || !message.free;
  if (is_old) message = read_old_message(from);
  if (!message.requested || !message.capacity || !message.free || !message.allocated) return std::nullopt;
  Diagnosis d;
  d.cards.push_back(card_of(message));
  d.cards.front().index = number_after(from, "GPU ");
  d.requested = *message.requested;
  d.shortage = at_least_zero(d.requested - *message.free);
  d.findings.push_back(cause_of(d.cards.front(), d.requested));
  return d;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (is_space(text.front()) || text.front() == '|')) text.remove_prefix(1);
  while (!text.empty() && (is_space(text.back()) || text.back() == '|')) text.remove_suffix(1);
  return text;
}

std::string_view last_word(std::string_view text) {
  const std::size_t space = text.rfind(' ');
  return space == std::string_view::npos ? text : text.substr(space + 1);
}

// "22000MiB / 24576MiB" within a row of the first table.
std::optional<DiagnosedCard> card_row(std::string_view line) {
  const std::size_t slash = line.find("MiB / ");
  if (slash == std::string_view::npos) return std::nullopt;
  std::string_view used_text = last_word(line.substr(0, slash + 3)), capacity_text = trimmed(line.substr(slash + 6));
  const std::optional<Bytes> used = take_amount(used_text), capacity = take_amount(capacity_text);
  if (!used || !capacity) return std::nullopt;
  DiagnosedCard card;
  card.capacity = *capacity;
  card.parts = {{CardPart::unlisted, {}, std::min(*used, *capacity)},
                {CardPart::free, {}, at_least_zero(*capacity - *used)}};
  return card;
}

struct ProcessRow {
  std::int64_t card = 0;
  CardPartRow part;
};

// "|    0   N/A  N/A      1234      C   python3                 21990MiB |"
std::optional<ProcessRow> process_row(std::string_view line) {
  std::string_view row = trimmed(line);
  if (row.empty() || !is_digit(row.front()) || !row.ends_with("MiB")) return std::nullopt;
  ProcessRow process;
  for (std::size_t i = 0; i < row.size() && i < 3 && is_digit(row[i]); ++i)
    process.card = process.card * 10 + (row[i] - '0');
  std::string_view amount = last_word(row);
  const std::string_view name = last_word(trimmed(row.substr(0, row.size() - amount.size())));
  const std::optional<Bytes> bytes = take_amount(amount);
  if (!bytes) return std::nullopt;
  process.part = {CardPart::process, std::string(name.substr(0, kLongestName)), *bytes};
  return process;
}

void add_process(std::vector<DiagnosedCard>& cards, ProcessRow process) {
  if (process.card >= static_cast<std::int64_t>(cards.size())) return;
  std::vector<CardPartRow>& parts = cards[static_cast<std::size_t>(process.card)].parts;
  if (parts.size() >= kMostProcesses) return;
  CardPartRow& unlisted = parts[parts.size() - 2];
  process.part.bytes = std::min(process.part.bytes, unlisted.bytes);
  unlisted.bytes -= process.part.bytes;
  parts.insert(parts.end() - 2, std::move(process.part));
}

void find_in_table(Diagnosis& d) {
  constexpr std::int64_t kFullParts = 20;  // less than one of these is free: full
  const auto any = [&](auto holds) { return std::any_of(d.cards.begin(), d.cards.end(), holds); };
  if (any([](const DiagnosedCard& c) { return part_of(c, CardPart::free) * kFullParts < c.capacity; }))
    d.findings.push_back(Finding::card_full);
  const auto processes = [](const DiagnosedCard& c) {
    return std::count_if(c.parts.begin(), c.parts.end(), [](const auto& p) { return p.part == CardPart::process; });
  };
  if (any([&](const DiagnosedCard& c) { return processes(c) > 1; })) d.findings.push_back(Finding::several_on_card);
}

std::optional<Diagnosis> read_nvidia_smi(std::string_view text) {
  Diagnosis d;
  d.kind = DiagnosisKind::nvidia_smi;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (auto card = card_row(line); card && d.cards.size() < kMostCards) {
      card->index = static_cast<std::int64_t>(d.cards.size());
      d.cards.push_back(*std::move(card));
    } else if (auto process = process_row(line)) {
      add_process(d.cards, *std::move(process));
    }
  }
  if (d.cards.empty()) return std::nullopt;
  find_in_table(d);
  return d;
}

}  // namespace

std::optional<Diagnosis> read_diagnosis(std::string_view text) {
  if (auto crash = read_out_of_memory(unwrapped(text))) return crash;
  return read_nvidia_smi(text);
}

}  // namespace vramplan
