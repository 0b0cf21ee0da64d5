// Reads lists of tokens that other programs write, and recognizes them by their content: the tokens
// have ids, scores or quotes. A plain list, with a token a line and at most a count, is not one of
// these.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/imported_tokens.h"
#include "text/vocabulary.h"

namespace ql::text {

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
