// Imports vocabularies that other programs made.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"
#include "text/vocabulary_builder.h"

namespace ql::text {

struct VocabularyImport {
  // If a list can become kWord or kPiece, as most can, the value chooses. Without a value, the form
  // and the tokens of the list decide. If a file has only one possible type, a value must name this
  // type.
  std::optional<TokenType> type;
  bool lowercase = false;  // words only
  // For words only: the whitespace at which the other program splits text. Without a value this is
  // kUnicode when no word contains Unicode whitespace, as after Python's str.split(), and kAscii
  // otherwise.
  std::optional<Blanks> blanks{};
  // These members choose the tokens that serve as <eos> and <unk>. If the name in eos_token or
  // unk_token is empty, kAuto and kAlways take the token that the file declares, or else a token
  // with a usual name; if neither exists, kAlways is an error. kNever takes no token.
  Presence eos = Presence::kAuto, unk = Presence::kAuto;
  std::string eos_token, unk_token;
  bool counted = false;  // every line of a plain list of words must have a count
  // This is the id of the first token of a plain list. Without a value it is 0, or 4 for a fairseq
  // list.
  std::optional<std::uint32_t> id_offset;
};

// Returns true for the JSON files that import_vocabulary() reads, and for those of qltok. In these
// files, a string follows the brace or bracket. A plain list may also begin with a brace.
bool begins_json(std::string_view text);

// Makes a vocabulary from a file's content. A SentencePiece model gives type sentencepiece, with
// which the SentencePiece library encodes lines. A tokenizer.json of the Hugging Face libraries, a
// tiktoken list and a SentencePiece list give type piece. The other lists of token_lists.h give
// type piece or word. Any other file is a plain list with one token per line. For type word the
// token is the first word of the line, and a number after it is its count; for type piece the token
// is the complete line, with the escapes of base/strings.h. An id without a token gets a
// placeholder. `where`, the file's name, helps to recognize a fairseq list. Adds human-readable
// notes to `notes`. Throws FormatError at `where`, and UsageError for rules that do not fit the
// file.
Vocabulary import_vocabulary(const std::string& content, const VocabularyImport& rules,
                             const std::string& where, std::vector<std::string>* notes = nullptr);

}  // namespace ql::text
