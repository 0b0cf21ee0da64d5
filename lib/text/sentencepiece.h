// Reads the rules of SentencePiece models, applies the models, and trains them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ql::text {

// These rules change text before a SentencePiece model splits it, and pieces when they become text
// again.

// Holds the rules in the normalizer_spec of a serialized model. The defaults are the library's.
struct SentencePieceRules {
  bool keeps_text = true;   // text becomes pieces and comes back byte by byte
  bool adds_prefix = true;  // a blank is put before the text, so that its first word is like others
  bool removes_blanks = true;  // at both ends, and all but one between words
  std::string problem;         // why the model cannot be used, "" when it can
};

// Reads and checks the rules. The library follows a precompiled_charsmap wherever it points, even
// outside its memory, so the charsmap is checked here. Rules for decoded text (denormalizer_spec)
// are reported as a problem, too, because nothing here would follow them.
SentencePieceRules sentencepiece_rules(std::string_view serialized);

}  // namespace ql::text

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace ql::text {

// A SentencePiece model has pieces of words, learned from text by the library of that name (Kudo
// and Richardson 2018).

// The library writes a blank as U+2581 in its pieces.
constexpr std::string_view kPieceBlank = "\xE2\x96\x81";

// Returns the number of bytes of `text`, valid UTF-8, to pass to the library at once, at most
// `longest`: the library takes memory for all that it gets. Long text is cut before a blank, where
// pieces begin anyway, or else between code points.
std::size_t sentencepiece_part(std::string_view text, std::size_t longest = std::size_t{64} * 1024);

// LeadingBlanks names the blanks at the beginning of tokens that are not part of the text, because
// encoding adds them.
enum class LeadingBlanks {
  kNone,
  kOne,         // the first one
  kAll,         // all before the first other character
  kFirstToken,  // all in the first token
};
constexpr auto names_of(LeadingBlanks) { return std::array{"none", "one", "all", "first-token"}; }

class SentencePieceModel {
 public:
  // `serialized` is a model as the library writes it. Throws FormatError at `where`, also for a
  // model whose rules would lead the library outside its memory.
  SentencePieceModel(std::string_view serialized, const std::string& where);
  ~SentencePieceModel();

  std::uint32_t size() const;
  const std::string& piece(std::uint32_t id) const;
  // Returns true for the 256 pieces that stand for one byte each, written "<0x41>".
  bool is_byte(std::uint32_t id) const;
  // Returns true for pieces that text never becomes, such as <eos>.
  bool is_control(std::uint32_t id) const;
  std::uint32_t unk() const;
  std::optional<std::uint32_t> eos() const;
  // Returns true when the texts of a line's pieces, joined, equal the line. Then it may be cut
  // where a piece ends. Other models rewrite a line as a unit.
  bool keeps_text() const { return keeps_text_; }
  // Returns the blanks that encoding adds at the beginning of each line.
  LeadingBlanks leading_blanks() const { return leading_blanks_; }
  // Returns the piece that is a line feed and nothing else.
  std::optional<std::uint32_t> line_feed() const { return line_feed_; }
  // Appends the ids of `text`, which must be valid UTF-8. May be called from several threads.
  void encode(std::string_view text, std::vector<std::uint32_t>& ids) const;

 private:
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  bool keeps_text_;
  LeadingBlanks leading_blanks_ = LeadingBlanks::kNone;
  std::optional<std::uint32_t> line_feed_;
};

struct SentencePieceTraining {
  std::int64_t max_size = 0;
  bool byte_pieces = true;  // otherwise characters outside the vocabulary become <unk>
  // The share of the text whose characters get pieces of their own, the most frequent first: above
  // 0, at most 1. Without a value it is kUsualCoverage, or less if max_size has no room for that.
  std::optional<double> coverage{};
};
constexpr double kUsualCoverage = 0.9995;

struct TrainedSentencePiece {
  std::string model;            // serialized
  std::int64_t characters = 0;  // distinct characters of the text
  std::int64_t covered = 0;     // characters with pieces of their own
  bool lowered = false;         // max_size has no room for those of kUsualCoverage
};

// Trains a unigram model of at most `max_size` pieces on `lines`. <eos> is piece 0, <unk> piece 1.
// The model keeps text unchanged: no normalization, no added or removed blanks. The same lines give
// the same model. Throws ConfigError when the size does not fit the text, Error when there is no
// text.
TrainedSentencePiece train_sentencepiece(const std::vector<std::string_view>& lines,
                                         const SentencePieceTraining& training);

}  // namespace ql::text
