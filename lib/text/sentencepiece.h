// Reads the rules of SentencePiece models, and applies the models.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_blanks.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace ql::text {

// A SentencePiece model has rules that change text before it is split into pieces, and after it is
// decoded.

// Holds the rules in a serialized model's normalizer_spec. adds_prefix and removes_blanks have the
// library's defaults.
struct SentencePieceRules {
  bool keeps_text = true;      // decoding returns exactly the bytes of the text
  bool adds_prefix = true;     // puts a space before the text, as before its later words
  bool removes_blanks = true;  // removes spaces at both ends, and all except one between words
  std::string problem;         // why the model cannot be used, or ""
};

// Reads and checks the rules. The library follows the offsets in a model's replacement rules
// (precompiled_charsmap) even outside of the rules' memory, so the offsets are checked here. Rules
// for decoded text (denormalizer_spec) are reported as a problem, too, because the decoder here
// does not apply them.
SentencePieceRules sentencepiece_rules(std::string_view serialized);

// A SentencePiece model has pieces of words, learned from text by the library of that name (Kudo
// and Richardson 2018).

// The library writes a space as U+2581 in its pieces.
constexpr std::string_view kPieceBlank = "\xE2\x96\x81";

// Returns how many bytes of `text` to pass to the library at once. The result is at most `longest`,
// because the library's memory grows with the text of a call. Longer text is cut before a space,
// where a piece begins anyway, or between code points if it has no space. `text` must be valid
// UTF-8.
std::size_t sentencepiece_part(std::string_view text, std::size_t longest = std::size_t{64} * 1024);

class SentencePieceModel {
 public:
  // `serialized` is a model as the library writes it. Throws FormatError at `where`, also for a
  // model with a SentencePieceRules::problem.
  SentencePieceModel(std::string_view serialized, const std::string& where);
  ~SentencePieceModel();

  std::uint32_t size() const;
  const std::string& piece(std::uint32_t id) const;
  // Returns true for the 256 pieces that stand for one byte each, such as "<0x41>".
  bool is_byte(std::uint32_t id) const;
  // Returns true for pieces that text never becomes, such as <eos>.
  bool is_control(std::uint32_t id) const;
  std::uint32_t unk() const;
  std::optional<std::uint32_t> eos() const;
  // Returns true when the model does not rewrite text. Then a line may be encoded in parts. Other
  // models rewrite a line as a unit.
  bool keeps_text() const { return keeps_text_; }
  // Returns the spaces that encoding adds at the beginning of each line.
  AddedBlanks added_blanks() const { return {leading_blanks_, /*after_feed=*/!line_feed_}; }
  // Returns the piece that is a line feed and nothing else, if the model has one.
  std::optional<std::uint32_t> line_feed() const { return line_feed_; }
  // Appends the ids of `text`, which must be valid UTF-8. May be called from several threads.
  void encode(std::string_view text, std::vector<std::uint32_t>& ids) const;

 private:
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  bool keeps_text_;
  LeadingBlanks leading_blanks_ = LeadingBlanks::kNone;
  std::optional<std::uint32_t> line_feed_;
};

}  // namespace ql::text
