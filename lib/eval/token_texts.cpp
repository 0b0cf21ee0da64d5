#include "eval/token_texts.h"

#include <fmt/format.h>

#include <optional>

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

// Returns the byte that a token like <0x0A> stands for.
std::optional<char> byte_of(const std::string& token) {
  static const std::string kDigits = "0123456789ABCDEF";
  if (token.size() != 6 || token.rfind("<0x", 0) != 0 || token[5] != '>') return std::nullopt;
  const std::size_t high = kDigits.find(token[3]), low = kDigits.find(token[4]);
  if (high == std::string::npos || low == std::string::npos) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

// ql-vocabulary(5) says how tokens of each type are written.
std::string bytes_of(const std::string& token, const std::string& type) {
  if (type == "piece") return unescaped(token).value_or(token);
  if (type != "byte" && type != "sentencepiece") return token;
  if (const std::optional<char> byte = byte_of(token)) return {*byte};
  const std::string mark = "\xE2\x96\x81";  // U+2581
  std::string bytes = token;
  for (std::size_t at = 0; (at = bytes.find(mark, at)) != std::string::npos; ++at) {
    bytes.replace(at, mark.size(), " ");
  }
  return bytes;
}

template <typename TextOf>
TokenTexts read_tokens(const std::string& vocabulary_text, const TextOf& text_of) {
  TokenTexts texts;
  if (vocabulary_text.empty()) return texts;
  const std::string where = "the vocabulary";
  const Json json = parse_json(vocabulary_text, where);
  const JsonObject vocabulary(json, where);
  const Json& tokens = vocabulary.at("tokens");
  const std::string type = vocabulary.text("type");
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
    texts.push_back(text_of(token.get<std::string>(), type));
  }
  return texts;
}

}  // namespace

TokenTexts read_token_texts(const std::string& vocabulary_text) {
  return read_tokens(vocabulary_text, [](const std::string& token, const std::string& type) {
    return type == "piece" ? shown_piece(token) : token;
  });
}

TokenTexts read_token_bytes(const std::string& vocabulary_text) {
  return read_tokens(vocabulary_text, bytes_of);
}

}  // namespace ql::eval
