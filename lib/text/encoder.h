// Turns text into token ids: checks of the text, lines, blocks and files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shard/manifest.h"
#include "shard/token_stream.h"
#include "text/text_reader.h"
#include "text/vocabulary.h"

namespace ql::text {

// Invalid UTF-8 is refused or replaced before text is split into tokens.

enum class InvalidText {
  kError,    // FormatError with file, line and byte offset
  kReplace,  // one U+FFFD for each invalid sequence
};
constexpr auto names_of(InvalidText) { return std::array{"error", "replace"}; }

// Returns where lines may be cut without changing the tokens of this type of vocabulary.
LineCut line_cut(TokenType type, bool lowercase, Blanks blanks);

// Makes block.text valid UTF-8. For TokenType::kByte it does nothing, because bytes take any text.
void validate_text(TextBlock& block, TokenType type, InvalidText invalid);

// Removes the byte order mark at the beginning of a file, for words only: text of the other types
// must decode to the same bytes.
void remove_mark(TextBlock& block, TokenType type);

// The types of vocabulary differ in how they encode one line.

// Text outside the vocabulary becomes <unk> or is an error.
enum class UnknownRule { kUnk, kError };
constexpr auto names_of(UnknownRule) { return std::array{"unk", "error"}; }

// Collects the text that is outside the vocabulary, and decides its id.
class Unknowns {
 public:
  static constexpr std::size_t kMostTexts = 9;

  Unknowns(const Vocabulary& vocabulary, UnknownRule rule) : vocabulary_(vocabulary), rule_(rule) {}
  // Messages name this place of the text.
  void set_place(const std::string* file, std::int64_t line) {
    file_ = file;
    line_ = line;
  }
  // Returns the id of <unk> for `text`. Throws Error that names file, line and text under
  // UnknownRule::kError or when the vocabulary has no <unk>.
  TokenId replace(std::string_view text);
  // Does the same for a word that is spelled like the vocabulary's <eos>, which stands for line
  // ends.
  TokenId replace_reserved(std::string_view text);

  std::int64_t count() const { return count_; }        // of both functions
  std::int64_t reserved() const { return reserved_; }  // of replace_reserved
  // Returns the first kMostTexts different texts, as messages show them.
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  const Vocabulary& vocabulary_;
  UnknownRule rule_;
  const std::string* file_ = nullptr;
  std::int64_t line_ = 0;
  std::int64_t count_ = 0, reserved_ = 0;
  std::vector<std::string> texts_;
};

// Holds the line feeds before and after a line that become tokens of the same document.
struct FeedTokens {
  bool before = false, after = false;
};

// Several threads may use an encoder at the same time. It keeps a reference to the vocabulary.
class LineEncoder {
 public:
  virtual ~LineEncoder() = default;
  // Appends the ids of a line, or of a piece of one (see LineCut), without its line end.
  virtual void encode(std::string_view line, std::vector<TokenId>& ids, Unknowns& unknowns,
                      FeedTokens feeds = {}) const = 0;
  // Appends the ids of a line end that does not become <eos>; for words such a line end is a blank.
  virtual void encode_line_end(std::vector<TokenId>& ids, Unknowns& unknowns) const {
    encode("\n", ids, unknowns);
  }
};

std::unique_ptr<const LineEncoder> make_line_encoder(const Vocabulary& vocabulary);

// An EosRule says which places become <eos>.
enum class EosRule {
  kNone,    // no place: line ends are characters (words: blanks)
  kLine,    // the end of a line
  kDouble,  // the end of a line, and one more before each line, as for One Billion Word
};
constexpr auto names_of(EosRule) { return std::array{"none", "line", "double"}; }
// Returns the rule that applies when the user names none.
inline EosRule usual_eos(const Vocabulary& vocabulary) {
  return vocabulary.eos() ? EosRule::kLine : EosRule::kNone;
}

struct EncodeOptions {
  EosRule eos = EosRule::kLine;
  DocumentRule documents{"file"};
  InvalidText invalid = InvalidText::kError;
  UnknownRule unknown = UnknownRule::kUnk;
  Content content = Content::kText;  // or kAnything: files are read as they are
};

struct EncodedBlock {
  std::vector<TokenId> ids;
  // These are offsets into ids, ascending; an offset may stand there several times. The offset
  // ids.size() stands for the next block's first token.
  std::vector<std::size_t> document_starts;
  shard::TextCounts counts;   // of the text before changes
  std::int64_t reserved = 0;  // words that looked like <eos>; they are among counts.unknown, too
  std::vector<std::string> unknown_texts;  // Unknowns::texts()
};

// A line ends at its line feed. For words the end of a file also ends its last line, so every line
// has its <eos>. For all other types a missing line feed stays missing, so that decoding gives the
// same text.
class Encoder {
 public:
  // Keeps a reference to the vocabulary. Throws UsageError when `options.eos` needs an <eos> and
  // the vocabulary has none.
  Encoder(const Vocabulary& vocabulary, EncodeOptions options);

  // Several threads may call this. Blocks must come from a TextReader with this cut.
  EncodedBlock encode(TextBlock block) const;
  LineCut cut() const {
    return line_cut(vocabulary_.type(), vocabulary_.lowercase(), vocabulary_.blanks());
  }
  Content content() const { return options_.content; }
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  void encode_lines(const TextBlock& block, std::string_view text, EncodedBlock& encoded) const;
  void end_line(std::vector<TokenId>& ids, Unknowns& unknowns) const;

  const Vocabulary& vocabulary_;
  EncodeOptions options_;
  std::unique_ptr<const LineEncoder> lines_;
};

struct EncodeTotals {
  shard::TextCounts counts;
  std::int64_t tokens = 0, documents = 0;
  std::int64_t unk = 0;       // tokens that are <unk>: counts.unknown and words <unk> of the text
  std::int64_t reserved = 0;  // words that looked like <eos>
};

// Encodes complete files with several threads. `files` are those of TextReader. Only the calling
// thread calls `sink` and `after_block` (for flushing); the sink gets the same calls for any number
// of threads, but no finish(). `block_bytes` affects only speed and memory.
EncodeTotals encode_files(const std::vector<std::string>& files, const Encoder& encoder,
                          int threads, shard::TokenSink& sink,
                          const std::function<void()>& after_block,
                          std::size_t block_bytes = TextReader::kBlockBytes);

}  // namespace ql::text
