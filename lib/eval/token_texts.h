// Reads what token ids stand for, without the library of SentencePiece, which lib/CMakeLists.txt
// keeps out of programs of LibTorch.
#pragma once

#include <string>
#include <vector>

namespace ql::eval {

// The texts of ids 0, 1, ..., as ql-vocabulary(5) has them, but pieces without their escapes: a
// byte that is no UTF-8 is written <0xC3>. Empty where they are not known.
using TokenTexts = std::vector<std::string>;

// Takes the text of a vocabulary's file, or "". Throws FormatError where its tokens are no texts.
TokenTexts read_token_texts(const std::string& vocabulary_text);
// Does the same for the bytes that each token adds to a text.
TokenTexts read_token_bytes(const std::string& vocabulary_text);

}  // namespace ql::eval
