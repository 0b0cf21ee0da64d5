// Reads token lists of other programs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/imported_tokens.h"

namespace ql::text {

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
