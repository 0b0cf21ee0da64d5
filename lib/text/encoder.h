// Turns text into token ids: validates the text, and encodes lines, blocks and files.
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

// Invalid UTF-8 is refused or replaced before text is split into tokens. If the tokens are bytes,
// invalid UTF-8 stays.

enum class InvalidText {
  kError,    // throws FormatError with file, line and byte offset
  kReplace,  // writes one U+FFFD for each invalid sequence
};
constexpr auto names_of(InvalidText) { return std::array{"error", "replace"}; }

// Returns where a line may be cut without changing its tokens, for a vocabulary with these
// properties.
LineCut line_cut(TokenType type, bool lowercase, Blanks blanks);

// Replaces or refuses invalid UTF-8 in block.text. For TokenType::kByte it does nothing, because
// byte tokens represent any text.
void validate_text(TextBlock& block, TokenType type, InvalidText invalid);

// Removes the byte order mark at the beginning of a file, for words only: with the other types
// decoding must return the same bytes.
void remove_mark(TextBlock& block, TokenType type);

// The types of vocabulary differ in how they encode one line.

// Text outside the vocabulary becomes <unk> or is an error.
enum class UnknownRule { kUnk, kError };
constexpr auto names_of(UnknownRule) { return std::array{"unk", "error"}; }

// Refuses strings outside the vocabulary, or replaces them by <unk> and keeps the first few for
// messages.
class Unknowns {
 public:
  static constexpr std::size_t kMostTexts = 9;

  Unknowns(const Vocabulary& vocabulary, UnknownRule rule) : vocabulary_(vocabulary), rule_(rule) {}
  // Sets the file and line that messages name.
  void set_place(const std::string* file, std::int64_t line) {
    file_ = file;
    line_ = line;
  }
  // Returns the id of <unk> for `text`. Throws Error under UnknownRule::kError, and when the
  // vocabulary has no <unk>. The error names file, line and text.
  TokenId replace(std::string_view text);
  // Calls replace() for a word that is spelled like the vocabulary's <eos>, because only line ends
  // may become <eos>. Counts the word in reserved().
  TokenId replace_reserved(std::string_view text);

  std::int64_t count() const { return count_; }        // all strings that were replaced
  std::int64_t reserved() const { return reserved_; }  // those that replace_reserved() replaced
  // Returns the first kMostTexts distinct strings that were replaced, as messages show them.
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  const Vocabulary& vocabulary_;
  UnknownRule rule_;
  const std::string* file_ = nullptr;
  std::int64_t line_ = 0;
  std::int64_t count_ = 0, reserved_ = 0;
  std::vector<std::string> texts_;
};

// Says whether the line feeds before and after a line become tokens of the line's document.
struct FeedTokens {
  bool before = false, after = false;
};

// Encodes lines. Keeps a reference to the vocabulary. Several threads may use an encoder at once.
class LineEncoder {
 public:
  virtual ~LineEncoder() = default;
  // Appends the ids of a line, or of a part of a line (see LineCut), without the line end.
  virtual void encode(std::string_view line, std::vector<TokenId>& ids, Unknowns& unknowns,
                      FeedTokens feeds = {}) const = 0;
  // Appends the ids of a line end that does not become <eos>. For words it appends nothing: the
  // line end is whitespace.
  virtual void encode_line_end(std::vector<TokenId>& ids, Unknowns& unknowns) const {
    encode("\n", ids, unknowns);
  }
};

std::unique_ptr<const LineEncoder> make_line_encoder(const Vocabulary& vocabulary);

// EosRule names the places of a text that become <eos>.
enum class EosRule {
  kNone,    // none: for type word a line end is whitespace, for other types a character
  kLine,    // the end of each line
  kDouble,  // the beginning and the end of each line, as for One Billion Word
};
constexpr auto names_of(EosRule) { return std::array{"none", "line", "double"}; }
// Returns the rule that applies when the user does not choose one.
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
  // These are ascending offsets into ids, and an offset may occur several times. The offset
  // ids.size() stands for the first token after this block.
  std::vector<std::size_t> document_starts;
  // These are counts of the original text. For types other than byte, an invalid sequence is one
  // character.
  shard::TextCounts counts;
  std::int64_t reserved = 0;               // words spelled like <eos>; counts.unknown includes them
  std::vector<std::string> unknown_texts;  // Unknowns::texts()
};

// Encodes blocks of text. A line ends at its line feed. For words the end of a file also ends its
// last line, so the last line gets its <eos>, too. For all other types a missing line feed stays
// missing, so that decoding gives the same text.
class Encoder {
 public:
  // Keeps a reference to the vocabulary. Throws UsageError when `options.eos` needs an <eos> that
  // the vocabulary lacks, and Error for type piece.
  Encoder(const Vocabulary& vocabulary, EncodeOptions options);

  // Encodes a block from a TextReader that uses cut(). Several threads may call this function at
  // once.
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
  std::int64_t unk = 0;       // <unk> tokens: counts.unknown plus words of the text spelled <unk>
  std::int64_t reserved = 0;  // words spelled like <eos>
};

// Encodes complete files with several threads. `files` are as in TextReader. Only the calling
// thread calls `sink` and, after each block, `after_block` (for flushing). The sink gets the same
// calls for any number of threads; its finish() is not called. `block_bytes` affects only speed and
// memory.
EncodeTotals encode_files(const std::vector<std::string>& files, const Encoder& encoder,
                          int threads, shard::TokenSink& sink,
                          const std::function<void()>& after_block,
                          std::size_t block_bytes = TextReader::kBlockBytes);

}  // namespace ql::text
