// Vocabularies that other programs made.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/vocabulary.h"
#include "text/vocabulary_builder.h"

namespace ql::text {

struct VocabularyImport {
  // Of a list, kWord or kPiece; of other files, what they hold. Nothing: words of a list.
  std::optional<TokenType> type;
  bool lowercase = false;  // words only
  // Which token is <eos> or <unk>: that of this name, or (kAuto) the one with a usual name where
  // the file does not say it; kNever: none.
  Presence eos = Presence::kAuto, unk = Presence::kAuto;
  std::string eos_token, unk_token;
};

// Makes a vocabulary of a file's content. A SentencePiece model gives type sentencepiece, and
// encodes as the library does. A tokenizer.json of the Hugging Face libraries gives type piece:
// tokens by their bytes. Anything else is a list with a token a line. For type word that is the
// first word of the line, with its count when that follows; for type piece it is the line, with the
// escapes of base/printable.h. Throws FormatError at `where`, and UsageError for rules that do not
// go with the file.
Vocabulary import_vocabulary(const std::string& content, const VocabularyImport& rules,
                             const std::string& where);

}  // namespace ql::text
