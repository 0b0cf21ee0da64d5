#include "eval/token_texts.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/utf8.h"

namespace ql::eval {

namespace {

std::string shown_piece(const std::string& piece) {
  const std::string bytes = unescaped(piece).value_or(piece);
  std::string text;
  for (std::size_t i = 0, length = 0; i < bytes.size(); i += length) {
    const CodePoint point = code_point_at(bytes, i);
    length = point.length;
    if (point.valid) text += bytes.substr(i, length);
    for (std::size_t k = i; !point.valid && k < i + length; ++k) {
      text += fmt::format("<0x{:02X}>", static_cast<unsigned char>(bytes[k]));
    }
  }
  return text;
}

}  // namespace

TokenTexts read_token_texts(const std::string& vocabulary_text) {
  TokenTexts texts;
  if (vocabulary_text.empty()) return texts;
  const std::string where = "the vocabulary";
  const Json json = parse_json(vocabulary_text, where);
  const JsonObject vocabulary(json, where);
  const Json& tokens = vocabulary.at("tokens");
  const bool pieces = vocabulary.text("type") == "piece";
  if (!tokens.is_array()) {
    throw FormatError(where, fmt::format("tokens: an array expected, found {}", tokens.type_name()),
                      "make the data again from a vocabulary of qltok vocab");
  }
  texts.reserve(tokens.size());
  for (const Json& token : tokens) {
    if (!token.is_string()) {
      throw FormatError(fmt::format("{}: tokens[{}]", where, texts.size()),
                        fmt::format("a text expected, found {}", token.type_name()),
                        "make the data again from a vocabulary of qltok vocab");
    }
    texts.push_back(token.get<std::string>());
    if (pieces) texts.back() = shown_piece(texts.back());
  }
  return texts;
}

}  // namespace ql::eval
