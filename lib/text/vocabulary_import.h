// Imports vocabularies that other programs made.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/vocabulary.h"
#include "text/vocabulary_builder.h"

namespace ql::text {

struct VocabularyImport {
  // A list becomes kWord or kPiece; without a value it becomes kWord. Other files declare their
  // type themselves, and a value must agree with it.
  std::optional<TokenType> type;
  bool lowercase = false;  // words only
  // For words only: the blanks at which the other program ended words. Without a value this is
  // kUnicode when no word has a Unicode blank inside, as after Python's str.split(), and kAscii
  // otherwise.
  std::optional<Blanks> blanks{};
  // These are the names of the tokens that serve as <eos> and <unk>. Without a name, kAuto takes
  // the token that the file declares, or else one with a usual name, and kNever takes none.
  Presence eos = Presence::kAuto, unk = Presence::kAuto;
  std::string eos_token, unk_token;
  // This is the id of the first token of a plain list. Without a value it is 0, or 4 for a list of
  // fairseq.
  std::optional<std::uint32_t> id_offset;
};

// Makes a vocabulary from a file's content. A SentencePiece model gives type sentencepiece, and
// encodes as the library does. A tokenizer.json of the Hugging Face libraries, a tiktoken list and
// the lists with ids of imported_tokens.h give type piece: tokens by their bytes. Anything else is
// a list with a token a line. For type word the token is the first word of the line, with its count
// if that follows; for type piece it is the line, with the escapes of base/strings.h. An id without
// a token gets a placeholder. `where`, the file's name, helps to recognize a list of fairseq. Adds
// lines for people to `notes`. Throws FormatError at `where`, and UsageError for rules that do not
// fit the file.
Vocabulary import_vocabulary(const std::string& content, const VocabularyImport& rules,
                             const std::string& where, std::vector<std::string>* notes = nullptr);

}  // namespace ql::text
