// Lists of tokens that other programs write, as their content shows: with ids, scores or quotes
// beside the tokens. A plain list has a token a line and at most a count, and is none of these.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/imported_tokens_internal.h"
#include "text/vocabulary.h"

namespace ql::text {

struct TokenList {
  std::string kind;                                // for messages, "a tiktoken list"
  std::vector<std::optional<std::string>> tokens;  // by id; a gap has none
  TokenType type = TokenType::kPiece;              // without another wish
  bool pieces_only = false;                        // no other type is possible
  std::optional<Spelling> spelling;                // none: as the tokens show it
  std::string note;                                // for people, or ""
};

// Nothing for a plain list. `type` is what the user asks for, if anything. Throws FormatError at
// `where` for files that name no tokens, or not as a list, and says what to give instead.
std::optional<TokenList> read_token_list(std::string_view text, std::optional<TokenType> type,
                                         const std::string& where);

// The same for JSON that is not a tokenizer.json: an object of tokens with ids, or the reverse, or
// an array of tokens.
TokenList read_json_tokens(const Json& json, const std::string& where);

// Throws FormatError for tokens that a mark joins to the next or the one before: they would decode
// with the mark and without blanks.
void refuse_joined(const std::vector<std::string>& tokens, const std::string& where);

// True for the list that fairseq writes, by its name and content. Its program puts kFairseqTokens
// before the list. A line that ends with kFairseqOverwrite takes the name of an earlier token.
bool is_fairseq_list(std::string_view text, const std::string& where);
constexpr std::string_view kFairseqOverwrite = "#fairseq:overwrite";
inline const std::vector<std::string> kFairseqTokens = {"<s>", "<pad>", "</s>", "<unk>"};

}  // namespace ql::text
