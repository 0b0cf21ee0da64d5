// Builds a vocabulary from text, or from the counts of parts of a text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/encoder.h"
#include "text/vocabulary.h"

namespace ql::text {

// Decides whether a special token exists.
enum class Presence {
  kAuto,  // <eos> exists for word and sentencepiece, <unk> for word and char
  kAlways,
  kNever,
};
constexpr auto names_of(Presence) { return std::array{"auto", "always", "never"}; }

struct VocabularyRules {
  TokenType type = TokenType::kWord;
  bool lowercase = false;
  Blanks blanks = Blanks::kAscii;  // word: the whitespace that separates words
  std::int64_t min_count = 1;      // word, char: rarer tokens are left out
  // For word, char and sentencepiece: the largest number of entries, specials included. 0 means no
  // limit, but sentencepiece needs a limit.
  std::int64_t max_size = 0;
  Presence eos = Presence::kAuto;
  // A sentencepiece vocabulary always has <unk>, because the library requires it. With kAlways,
  // characters without a piece become <unk>. With kAuto and kNever, they are encoded byte by byte,
  // and the vocabulary has 256 byte pieces.
  Presence unk = Presence::kAuto;
  std::optional<double> coverage{};  // sentencepiece: see SentencePieceTraining
  InvalidText invalid = InvalidText::kError;
  Content content = Content::kText;  // or kAnything: files are read as they are
};

struct BuiltVocabulary {
  Vocabulary vocabulary;
  std::int64_t lines = 0;
  std::int64_t tokens = 0;  // tokens of the text, without <eos>
  std::int64_t types =
      0;  // distinct tokens of the text; 0 for sentencepiece, where they are not counted
  std::int64_t unknown = 0;   // tokens of the text that the vocabulary leaves out
  std::int64_t reserved = 0;  // words of the text spelled like <eos>; `unknown` includes them
  // These are for sentencepiece only, see TrainedSentencePiece.
  std::int64_t characters = 0, covered = 0;
  bool coverage_lowered = false;
};

// Builds a vocabulary from text. Its ids are in this order: <eos> and <unk> where they exist, then
// the tokens by falling count. Tokens with equal counts are in byte order. Byte tokens keep the
// order of their values, and pieces the order of the model. Throws UsageError for rules that
// contradict each other, and Error for a text without tokens (unless the type is byte).
// `files` are as in TextReader. The vocabulary is the same for any number of threads. Each thread
// keeps its own counts in memory. sentencepiece ignores `threads` and keeps the complete text in
// memory.
BuiltVocabulary build_vocabulary(const std::vector<std::string>& files,
                                 const VocabularyRules& rules, int threads = 1);

// Makes the vocabulary that build_vocabulary() makes from the text of all parts. Each file is
// the vocabulary of a part, made by the same rules but without min_count and max_size. For words a
// file may also be a list with a word and its count on each line. In a list the count of <eos> is
// the number of lines. With a list, the line style is kPlain (no space at line ends). Throws Error
// for a part made by other rules, and UsageError for sentencepiece.
BuiltVocabulary add_counts(const std::vector<std::string>& files, const VocabularyRules& rules);

}  // namespace ql::text
