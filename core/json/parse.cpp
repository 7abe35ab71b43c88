#include "parse.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace vramplan {
namespace {

// A hostile text can repeat a name half a million times; nobody reads more than these.
constexpr std::size_t kMostDuplicates = 32;

bool is_continuation(std::string_view text, std::size_t index) {
  return index < text.size() && (static_cast<unsigned char>(text[index]) & 0xC0U) == 0x80U;
}

// Length of the UTF-8 sequence at `index`, 0 when there is none. Overlong forms, surrogates and code points beyond
// U+10FFFF show in the first two bytes (RFC 3629, section 4).
std::size_t sequence_length(std::string_view text, std::size_t index) {
  const auto first = static_cast<unsigned char>(text[index]);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4 || !is_continuation(text, index + 1)) return 0;
  const auto second = static_cast<unsigned char>(text[index + 1]);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F)) return 0;
  if ((first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) return 0;
  if (first < 0xE0) return 2;
  if (!is_continuation(text, index + 2)) return 0;
  if (first < 0xF0) return 3;
  return is_continuation(text, index + 3) ? 4 : 0;
}

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = sequence_length(text, i);
    if (length == 0) return false;
    i += length;
  }
  return true;
}

// Index of the quote that ends the string which starts before `index`, or the end of the text.
std::size_t end_of_string(std::string_view text, std::size_t index) {
  while (index < text.size() && text[index] != '"') index += text[index] == '\\' ? 2U : 1U;
  return index;
}

bool is_too_deep(std::string_view text) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      i = end_of_string(text, i + 1);
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepestNesting) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

// Builds the document from the parser's events. nlohmann_json's own builder lets the last of two equal names win.
class DocumentBuilder final : public nlohmann::json_sax<Json> {
 public:
  [[nodiscard]] Json& document() { return document_; }
  [[nodiscard]] Problems& problems() { return problems_; }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // JSON text has none

  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    Frame& frame = frames_.back();
    frame.name = std::move(name);
    if (!frame.container->contains(frame.name)) return true;
    report(problems_, ProblemCode::duplicate_field, pointer(), {{"name", shortened(frame.name)}});
    return problems_.size() < kMostDuplicates;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    const std::size_t byte = position > 0 ? position - 1 : 0;
    report(problems_, ProblemCode::invalid_json, "", {{"byte", static_cast<std::int64_t>(byte)}});
    return false;
  }

 private:
  struct Frame {
    Json* container = nullptr;
    std::string name;  // of the member that is being read
  };

  Json& place(Json value) {
    if (frames_.empty()) return document_ = std::move(value);
    Frame& frame = frames_.back();
    if (frame.container->is_object()) return (*frame.container)[frame.name] = std::move(value);
    frame.container->push_back(std::move(value));
    return frame.container->back();
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    Json& container = place(std::move(value));
    frames_.push_back({&container, {}});
    return true;
  }
  bool close() {
    frames_.pop_back();
    return true;
  }
  [[nodiscard]] std::string pointer() const {
    std::string pointer;
    for (const Frame& frame : frames_) {
      const Json& container = *frame.container;
      // An array that is being read already holds the element that is open.
      pointer =
          container.is_object() ? child_pointer(pointer, frame.name) : child_pointer(pointer, container.size() - 1);
    }
    return pointer;
  }

  Json document_;
  Problems problems_;
  std::vector<Frame> frames_;
};

}  // namespace

Result<Json> parse_document(std::string_view text) {
  if (text.size() > kLongestText) {
    return Problem{
        ProblemCode::too_large_input,
        "",
        {{"bytes", static_cast<std::int64_t>(text.size())}, {"limit", static_cast<std::int64_t>(kLongestText)}}};
  }
  if (!is_utf8(text)) return Problem{ProblemCode::invalid_utf8, "", {}};
  if (is_too_deep(text)) return Problem{ProblemCode::too_deep, "", {{"limit", std::int64_t{kDeepestNesting}}}};
  // The parser takes a zero byte for the end of the text and leaves the rest unread.
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
    return Problem{ProblemCode::invalid_json, "", {{"byte", static_cast<std::int64_t>(zero)}}};
  }
  DocumentBuilder builder;
  const bool complete = Json::sax_parse(text.begin(), text.end(), &builder);
  if (!builder.problems().empty()) return std::move(builder.problems());
  if (!complete) return Problem{ProblemCode::internal, "", {{"what", "parser stopped without a reason"}}};
  return std::move(builder.document());
}

}  // namespace vramplan
