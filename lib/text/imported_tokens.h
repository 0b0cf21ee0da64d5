// Reads tokens as files of other programs write them, among them the Hugging Face libraries'
// tokenizer.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/json.h"
#include "text/vocabulary.h"

namespace ql::text {

// Tokens are placed at their ids and turned into the bytes that they stand for.

// Places tokens at the ids that a file gives. An id without a token is a gap and gets a
// placeholder.
class TokensById {
 public:
  // `expected` is the number of tokens in the file. It bounds the ids, so that a damaged id does
  // not take the memory for billions of tokens.
  TokensById(std::size_t expected, std::string where);

  // Accepts the same token again. Throws FormatError for an id out of bounds and for an id that
  // another token has.
  void add(std::uint64_t id, const std::string& token);
  // Returns true when the id has a token.
  bool has(std::uint64_t id) const { return id < tokens_.size() && tokens_[id]; }
  // Returns all tokens up to the highest id; a gap has its placeholder.
  std::vector<std::string> names() const;

 private:
  std::string where_;
  std::size_t end_;  // of the ids that are possible
  std::vector<std::optional<std::string>> tokens_;
};

// Returns the name of a gap, "<missing:7>", or a longer one where a token has this name.
std::string placeholder(std::uint64_t id, const std::unordered_set<std::string>& taken);
// Returns true for each of the names that a gap with this id may get.
bool is_placeholder(std::string_view name, std::uint64_t id);

// Returns the bytes of a token in GPT-2's alphabet, which has one code point for each byte. Returns
// nothing when the token has another code point.
std::optional<std::string> byte_level_bytes(std::string_view token);

// Returns the byte of a token such as <0x0A>, with digits in any case.
std::optional<unsigned char> byte_fallback(std::string_view token);

// Spelling names the ways in which programs write the bytes of tokens in a list, recognized by the
// tokens.
enum class Spelling {
  kPlain,          // the token is its bytes
  kByteLevel,      // in GPT-2's alphabet: all tokens are, and some begin with its blank
  kSentencePiece,  // a blank is U+2581, which some token has, and a byte is <0x41>
};
Spelling evident_spelling(const std::vector<std::string>& tokens);
std::string spelled_bytes(const std::string& token, Spelling spelling);

// Writes the bytes of tokens as a vocabulary of pieces has them, with as few escapes as a line
// needs. Different tokens with the same bytes get additional escapes, so that their spellings
// differ.
class Speller {
 public:
  // `where` is the file's name in messages.
  explicit Speller(std::string where) : where_(std::move(where)) {}
  // Throws FormatError when all spellings of these bytes are used up: a single byte has two.
  std::string spell(const std::string& bytes);

 private:
  std::string where_;
  std::unordered_set<std::string> taken_;
};

// These read tokenizer.json of the Hugging Face libraries.

// Returns true for an object that has a model, as such a file does.
bool is_tokenizer_json(const Json& json);

// Returns the tokens of such a file as a vocabulary of type piece. Sets `names`, which must be
// empty, to the tokens as the file writes them, and `unk` to the token that the file declares as
// unknown. Throws FormatError at `where`, also for a file with an unsupported decoder.
VocabularyContent read_tokenizer_json(const Json& json, const std::string& where,
                                      std::vector<std::string>& names, std::optional<TokenId>& unk);

// These read lists of tokens that other programs write, and recognize them by their content: the
// tokens have ids, scores or quotes. A plain list, with a token a line and at most a count, is not
// one of these.

struct TokenList {
  std::string kind;                    // for messages, "a tiktoken list"
  std::vector<std::string> names;      // by id; a gap has a placeholder
  TokenType type = TokenType::kPiece;  // unless the user asks for another
  bool pieces_only = false;            // no other type is possible
  std::optional<Spelling> spelling;    // without a value the tokens show it
  std::string note;                    // a message for people, or ""
};

// Returns nothing for a plain list. `type` is the one that the user asks for, if any. Throws
// FormatError at `where` for files that name no tokens, or not as a list, and says what to give
// instead.
std::optional<TokenList> read_token_list(std::string_view text, std::optional<TokenType> type,
                                         const std::string& where);

// Does the same for JSON that is not a tokenizer.json: an object from tokens to ids or from ids to
// tokens, or an array of tokens.
TokenList read_json_tokens(const Json& json, const std::string& where);

// Throws FormatError for tokens with a mark that joins them to the next or previous one: they would
// decode with the mark and without blanks.
void refuse_joined(const std::vector<std::string>& tokens, const std::string& where);

// Returns true for a list that fairseq wrote, recognized by its name and content. fairseq puts
// kFairseqTokens before the list. A line that ends with kFairseqOverwrite takes the name of an
// earlier token.
bool is_fairseq_list(std::string_view text, const std::string& where);
constexpr std::string_view kFairseqOverwrite = "#fairseq:overwrite";
inline const std::vector<std::string> kFairseqTokens = {"<s>", "<pad>", "</s>", "<unk>"};

}  // namespace ql::text
