// Defines the vocabulary: the strings that the token ids 0 .. size-1 stand for. Reads and writes
// its file. A program that has a Vocabulary needs SentencePiece, and so cannot use libqlnn
// (share/doc/install.md).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/strings.h"
#include "shard/manifest.h"
#include "text/added_blanks.h"
#include "text/sentencepiece.h"
#include "text/token_table.h"

namespace ql::text {

using shard::TokenId;

enum class TokenType { kWord, kChar, kByte, kSentencePiece, kPiece };
constexpr auto names_of(TokenType) {
  return std::array{"word", "char", "byte", "sentencepiece", "piece"};
}

// LineStyle names the ways in which decoding writes the words of a line.
enum class LineStyle {
  kPlain,   // "the cat\n": a space between words
  kPadded,  // " the cat \n", and " \n" for a line without words: as in WikiText
};
constexpr auto names_of(LineStyle) { return std::array{"plain", "padded"}; }

// Holds the content of a vocabulary before it is checked. Tokens are written as in the file:
//   word           the word
//   char           the code point in UTF-8
//   byte           "<0x00>" .. "<0xFF>", all 256
//   sentencepiece  the pieces of `model`, in its order
//   piece          any bytes, with the escapes of base/strings.h; these tokens can be decoded,
//                  but the rules that turn text into them are unknown
// `tokens` also contains the special tokens (<eos>, <unk>). Text with the same spelling never
// becomes a special token, except the word <unk>.
struct VocabularyContent {
  TokenType type = TokenType::kWord;
  bool lowercase = false;
  LineStyle line_style = LineStyle::kPlain;  // word only
  Blanks blanks = Blanks::kAscii;            // word only: the whitespace that separates words
  std::optional<TokenId> eos, unk;
  std::vector<std::string> tokens;
  std::vector<std::int64_t> counts;  // by id: occurrences in the original text
  std::string model;                 // sentencepiece only: the serialized model
  // Names the spaces that decoding removes at the beginning of documents. kOne and kFirstToken are
  // for type piece only, and kAll is not allowed.
  LeadingBlanks leading_blanks = LeadingBlanks::kNone;
};

// Holds what decoding needs of a vocabulary.
struct DecodedTokens {
  bool words = false;  // of type word
  // By id, with the spaces that encoding added. <eos> has "\n", control pieces of a SentencePiece
  // model have "", and <unk> has U+FFFD, except among words.
  std::vector<std::string> texts;
  std::optional<TokenId> eos;
  AddedBlanks blanks;  // not for words
};

class Vocabulary {
 public:
  // Checks the content. Throws FormatError at `where`.
  Vocabulary(VocabularyContent content, const std::string& where);

  std::uint32_t size() const { return tokens_.size(); }
  TokenType type() const { return content_.type; }
  bool lowercase() const { return content_.lowercase; }
  LineStyle line_style() const { return content_.line_style; }
  // Returns kAscii for types other than word: the words of their text are only counted, and ASCII
  // whitespace separates these words.
  Blanks blanks() const { return content_.blanks; }
  std::optional<TokenId> eos() const { return content_.eos; }
  std::optional<TokenId> unk() const { return content_.unk; }
  bool is_special(TokenId id) const { return id == content_.eos || id == content_.unk; }
  std::string_view token(TokenId id) const { return tokens_.token(id); }
  std::uint32_t find(std::string_view token) const { return tokens_.find(token); }
  const TokenTable& tokens() const { return tokens_; }
  const std::vector<std::int64_t>& counts() const { return content_.counts; }
  const SentencePieceModel& model() const { return *model_; }
  // Returns the spaces that encoding adds, which decoding removes.
  AddedBlanks added_blanks() const {
    if (model_) return model_->added_blanks();
    return {content_.leading_blanks, /*after_feed=*/false,
            /*after_eos=*/type() != TokenType::kPiece};
  }
  DecodedTokens decoded_tokens() const;

  // Vocabularies with the same hash give token ids the same meaning. The hash covers type,
  // lowercase, blanks, specials, tokens, model and leading blanks, but not the counts, the line
  // style or the provenance. ql-vocabulary(5) defines the hash.
  const std::string& hash() const { return hash_; }
  shard::VocabularyInfo info() const { return {size(), hash_, ql::to_text(type()), eos(), unk()}; }

  // Returns the text of the vocabulary's file.
  std::string to_text(const Json& provenance) const;

 private:
  VocabularyContent content_;  // without the tokens, which tokens_ holds
  TokenTable tokens_;
  std::shared_ptr<const SentencePieceModel> model_;
  std::string hash_;
};

// Reads the text of a vocabulary's file, or of a file to import. Throws Error for a text larger
// than a token stream can carry. `path` may be a folder that has a vocabulary.json, such as a
// checkpoint or packed data. With `standard_input`, "-" is standard input and not a file.
std::string read_vocabulary_file(const std::string& path, bool standard_input = false);

// Parses the text that to_text() returned. `where` names the file in messages. If `provenance` is
// not null, it receives the file's provenance.
Vocabulary parse_vocabulary(std::string_view text, const std::string& where,
                            Json* provenance = nullptr);

}  // namespace ql::text
