// Blocks of text to token ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "shard/token_info.h"
#include "text/document_rule.h"
#include "text/line_encoder.h"
#include "text/prepare.h"
#include "text/text_reader.h"
#include "text/vocabulary.h"

namespace ql::text {

// The rule says what becomes <eos>.
enum class EosRule {
  kNone,    // nothing: line ends are characters (words: blanks)
  kLine,    // the end of a line
  kDouble,  // the end of a line, and one more before each line, as for One Billion Word
};
constexpr auto names_of(EosRule) { return std::array{"none", "line", "double"}; }
// The rule where nobody asks for another one.
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
  // Offsets into ids, ascending; one equal to ids.size() begins with the next block's first token.
  std::vector<std::size_t> document_starts;
  shard::TextCounts counts;   // of the text as it was read
  std::int64_t reserved = 0;  // words that looked like <eos>; they are among counts.unknown, too
  std::vector<std::string> unknown_texts;  // Unknowns::texts()
};

// A line ends at its line feed. Words: the end of a file ends its last line, too, so that every
// line has its <eos>. All other types: a missing line feed stays missing, so that text survives.
class Encoder {
 public:
  // Keeps a reference to the vocabulary. Throws UsageError when `options.eos` needs an <eos> that
  // the vocabulary has not got.
  Encoder(const Vocabulary& vocabulary, EncodeOptions options);

  // Safe from several threads. Blocks come from a TextReader with this cut.
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

}  // namespace ql::text
