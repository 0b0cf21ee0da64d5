// Removes the spaces that encoding added to the text of pieces, as decoding does.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace ql::text {

// LeadingBlanks names the spaces that decoding removes at the beginning of a line or document,
// because encoding may add a space there.
enum class LeadingBlanks {
  kNone,
  kOne,         // the first space
  kAll,         // the first space of each token, until a token has another character
  kFirstToken,  // all spaces in the first token
};
constexpr auto names_of(LeadingBlanks) { return std::array{"none", "one", "all", "first-token"}; }

// The spaces that encoding adds. They come at the beginning of each document, and after a token
// that ends a line.
struct AddedBlanks {
  LeadingBlanks leading = LeadingBlanks::kNone;
  bool after_feed = false;  // a token whose text ends with a line feed ends a line
  bool after_eos = true;    // <eos> ends a line
};

// Takes the tokens of documents, one after the other.
class BlankRemover {
 public:
  explicit BlankRemover(AddedBlanks added) : added_(added) {}

  void begin_document() { line_empty_ = true; }
  // Appends the text of the next token to `text`, without the spaces that encoding added. The
  // token is not <eos>.
  void append(std::string_view token, std::string& text);
  // Says that the next token is <eos>.
  void eos() { line_empty_ = added_.after_eos; }

 private:
  AddedBlanks added_;
  bool line_empty_ = true;  // the line or document has no text yet
};

}  // namespace ql::text
