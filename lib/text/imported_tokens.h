// Reads token lists and tokenizer files of other programs, such as tokenizer.json of the Hugging
// Face libraries.
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
  // `expected` is the number of tokens in the file. It limits the ids, so that no memory for
  // billions of tokens is allocated when an id is damaged.
  TokensById(std::size_t expected, std::string where);

  // Accepts the same id and token again. Throws FormatError for an id out of bounds and for an id
  // that already has another token.
  void add(std::uint64_t id, const std::string& token);
  // Returns true when the id has a token.
  bool has(std::uint64_t id) const { return id < tokens_.size() && tokens_[id]; }
  // Returns all tokens up to the highest id; a gap has its placeholder.
  std::vector<std::string> names() const;

 private:
  std::string where_;
  std::size_t end_;  // all ids must be less than this
  std::vector<std::optional<std::string>> tokens_;
};

// Returns the placeholder of a gap, such as "<missing:7>". The name gets another pair of angle
// brackets each time that `taken` contains it.
std::string placeholder(std::uint64_t id, const std::unordered_set<std::string>& taken);
// Returns true when placeholder() may return this name for this id.
bool is_placeholder(std::string_view name, std::uint64_t id);

// Returns the bytes that a token spells in GPT-2's alphabet, which has one code point for each
// byte. Returns nothing when the token has a code point outside this alphabet.
std::optional<std::string> byte_level_bytes(std::string_view token);

// Returns the byte of a token such as <0x0A> or <0x0a>, or nothing for other tokens.
std::optional<unsigned char> byte_fallback(std::string_view token);

// Spelling names the ways in which programs write the bytes of tokens in a list. evident_spelling()
// recognizes the way by the tokens.
enum class Spelling {
  kPlain,  // the bytes themselves
  // GPT-2's alphabet (see byte_level_bytes()). It is recognized when all tokens except <...> and
  // [...] use this alphabet, and some token begins with U+0120, which stands for a space.
  kByteLevel,
  kSentencePiece,  // a space is U+2581, a byte is <0x41>; recognized when a token has U+2581
};
Spelling evident_spelling(const std::vector<std::string>& tokens);
std::string spelled_bytes(const std::string& token, Spelling spelling);

// Writes the bytes of tokens with the escapes of escaped() (base/strings.h), such as \t for a tab.
// If several tokens have the same bytes, the later ones get additional escapes, so that their
// spellings differ.
class Speller {
 public:
  // `where` is the file's name in messages.
  explicit Speller(std::string where) : where_(std::move(where)) {}
  // Returns the bytes with the first k of them as \xNN, for the smallest k that gives a new
  // spelling. Throws FormatError when every k, from 0 to the number of bytes, has been used.
  std::string spell(const std::string& bytes);

 private:
  std::string where_;
  std::unordered_set<std::string> taken_;
};

// The next two functions read tokenizer.json of the Hugging Face libraries.

// Returns true for an object that contains an object "model", as tokenizer.json does.
bool is_tokenizer_json(const Json& json);

// Returns the tokens of a tokenizer.json as a vocabulary of type piece. Sets `names` to the tokens
// as the file writes them, and `unk` to the id of the token that the file declares as unknown, if
// any. Throws FormatError at `where`, also for a file with an unsupported decoder.
VocabularyContent read_tokenizer_json(const Json& json, const std::string& where,
                                      std::vector<std::string>& names, std::optional<TokenId>& unk);

// The next functions read token lists of other programs.

struct TokenList {
  std::string kind;                    // for messages, such as "a tiktoken list"
  std::vector<std::string> names;      // by id; a gap has a placeholder
  TokenType type = TokenType::kPiece;  // unless the user asks for another type
  bool pieces_only = false;            // only kPiece is possible
  std::optional<Spelling> spelling;    // without a value evident_spelling() decides
  std::string note;                    // a message for the user, or ""
};

// Reads a list whose tokens have ids or scores. Returns nothing for a plain list, which has one
// token per line and at most a count after it. `type` is the type that the user asks for, if any.
// If `counted`, numbers after the tokens are counts.
// Throws FormatError at `where` for a damaged list. Throws it also for other kinds of files, such
// as merge lists, vectors and tables, and then states what to give instead.
std::optional<TokenList> read_token_list(std::string_view text, std::optional<TokenType> type,
                                         bool counted, const std::string& where);

// Reads JSON that is not a tokenizer.json: an array of tokens, or an object that maps tokens to ids
// (or ids to tokens). Throws FormatError at `where` for other JSON.
TokenList read_json_tokens(const Json& json, const std::string& where);

// Throws FormatError for tokens that are parts of words, marked by ## or </w>: decoded text would
// contain the marks, and wrong spaces. If `counted` is true, the error message also says how to
// remove the counts from the list.
void refuse_joined(const std::vector<std::string>& tokens, bool counted, const std::string& where);

// Describes a list of fairseq, which gives the first ids to kFairseqTokens and the next ids to the
// list. The token of a line that ends with kFairseqOverwrite replaces an earlier token of the same
// name, except one of kFairseqTokens.
enum class FairseqList {
  kNo,
  kYes,
  // A line without kFairseqOverwrite has one of kFairseqTokens: old versions of fairseq gave it an
  // id from 4 on, and newer ones refuse the list. Perhaps another program made it.
  kWithSpecials,
};
// Recognizes a list of fairseq by the form of its lines and by the name of the file (dict.txt or
// dict.*.txt) or a line with kFairseqOverwrite.
FairseqList fairseq_list(std::string_view text, const std::string& where);
constexpr std::string_view kFairseqOverwrite = "#fairseq:overwrite";
inline const std::vector<std::string> kFairseqTokens = {"<s>", "<pad>", "</s>", "<unk>"};

}  // namespace ql::text
