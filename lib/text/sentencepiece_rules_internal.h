// Reads the rules by which a SentencePiece model changes text before it is split, and pieces when
// they become text.
#pragma once

#include <string>
#include <string_view>

namespace ql::text {

// Rules in the normalizer_spec of a serialized model, without those of its pieces. The defaults are
// the library's.
struct SentencePieceRules {
  bool keeps_text = true;   // text becomes pieces and comes back byte by byte
  bool adds_prefix = true;  // a blank is put before the text, so that its first word is like others
  bool removes_blanks = true;  // at both ends, and all but one between words
  std::string problem;         // why the model cannot be used, "" when it can
};

// The library follows the rules of a precompiled_charsmap wherever they point, outside its memory,
// too. So they are checked here. Rules for decoded text (denormalizer_spec) are a problem as well,
// because nothing here would follow them.
SentencePieceRules sentencepiece_rules(std::string_view serialized);

}  // namespace ql::text
