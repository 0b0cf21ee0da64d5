#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/number.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "text/imported_tokens_internal.h"
#include "text/sentencepiece_model.h"

namespace ql::text {
namespace {

// GPT-2's blank, the letter for byte 0x20.
constexpr std::string_view kByteLevelBlank = "\xC4\xA0";

// Gaps hold tokens that were reserved or taken out, hundreds at most. The bound leaves room for
// small files, too.
constexpr std::size_t kMostGaps = std::size_t{1} << 16;

// GPT-2's code points for bytes: a visible character of Latin-1 stands for itself, and the other
// bytes are counted from U+0100 on.
std::unordered_map<char32_t, char> byte_level_alphabet() {
  std::unordered_map<char32_t, char> alphabet;
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 0x100; ++byte) {
    const bool visible = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    alphabet[visible ? byte : next++] = static_cast<char>(byte);
  }
  return alphabet;
}

// Special tokens such as <|endoftext|> and [MASK] follow no spelling.
bool is_bracketed(const std::string& token) {
  return (token.front() == '<' && token.back() == '>') ||
         (token.front() == '[' && token.back() == ']');
}

}  // namespace

TokensById::TokensById(std::size_t expected, std::string where)
    : where_(std::move(where)), end_(2 * expected + kMostGaps) {}

void TokensById::add(std::uint64_t id, const std::string& token) {
  if (id >= end_) {
    throw FormatError(where_,
                      fmt::format("the id of '{}' is {}, expected less than {} for this number of "
                                  "tokens",
                                  escaped(token, Among::kQuotes), id,
                                  with_thousands(static_cast<std::int64_t>(end_))),
                      "is the file damaged?");
  }
  if (id >= tokens_.size()) tokens_.resize(id + 1);
  if (tokens_[id] && *tokens_[id] != token) {
    throw FormatError(
        where_, fmt::format("the id {} is of two tokens: '{}' and '{}'", id,
                            escaped(*tokens_[id], Among::kQuotes), escaped(token, Among::kQuotes)));
  }
  tokens_[id] = token;
}

std::string placeholder(std::uint64_t id, const std::unordered_set<std::string>& taken) {
  std::string name = fmt::format("<missing:{}>", id);
  while (taken.count(name) != 0) name = fmt::format("<{}>", name);
  return name;
}

std::optional<std::string> byte_level_bytes(std::string_view token) {
  static const auto alphabet = byte_level_alphabet();
  std::string bytes;
  for (std::size_t i = 0, length = 0; i < token.size(); i += length) {
    const CodePoint point = code_point_at(token, i);
    length = point.length;
    const auto byte = alphabet.find(point.value);
    if (byte == alphabet.end()) return std::nullopt;
    bytes += byte->second;
  }
  return bytes;
}

std::optional<char> byte_fallback(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token.back() != '>') return std::nullopt;
  int value = 0;
  for (const char digit : token.substr(3, 2)) {
    const char lower = digit >= 'A' && digit <= 'F' ? static_cast<char>(digit - 'A' + 'a') : digit;
    const std::size_t number = std::string_view("0123456789abcdef").find(lower);
    if (number == std::string_view::npos) return std::nullopt;
    value = value * 16 + static_cast<int>(number);
  }
  return static_cast<char>(value);
}

std::string replaced(std::string_view text, std::string_view pattern, std::string_view by) {
  std::string result;
  std::size_t begin = 0;
  for (std::size_t at; (at = text.find(pattern, begin)) != std::string_view::npos;
       begin = at + pattern.size()) {
    result.append(text.substr(begin, at - begin)).append(by);
  }
  return result.append(text.substr(begin));
}

Spelling evident_spelling(const std::vector<std::string>& tokens) {
  const auto any = [&](const auto& holds) {
    return std::any_of(tokens.begin(), tokens.end(), holds);
  };
  if (any([](const std::string& token) { return token.find(kPieceBlank) != std::string::npos; })) {
    return Spelling::kSentencePiece;
  }
  const bool has_blank = any([](const std::string& token) {
    return token.compare(0, kByteLevelBlank.size(), kByteLevelBlank) == 0;
  });
  const bool other = has_blank && any([](const std::string& token) {
                       return !byte_level_bytes(token) && !is_bracketed(token);
                     });
  return has_blank && !other ? Spelling::kByteLevel : Spelling::kPlain;
}

std::string spelled_bytes(const std::string& token, Spelling spelling) {
  if (spelling == Spelling::kByteLevel) return byte_level_bytes(token).value_or(token);
  if (spelling == Spelling::kPlain) return token;
  if (const auto byte = byte_fallback(token)) return {*byte};
  return replaced(token, kPieceBlank, " ");
}

std::string Speller::spell(const std::string& bytes) {
  std::string text;
  for (std::size_t escapes = 0; escapes <= bytes.size(); ++escapes) {
    text.clear();
    for (std::size_t i = 0; i < escapes; ++i) {
      text += fmt::format("\\x{:02X}", static_cast<unsigned char>(bytes[i]));
    }
    text += escaped(std::string_view(bytes).substr(escapes), Among::kLines);
    if (taken_.insert(text).second) return text;
  }
  throw FormatError(where_,
                    fmt::format("more than {} tokens are the text '{}': a vocabulary has no more "
                                "names for them",
                                bytes.size() + 1, escaped(bytes, Among::kQuotes)),
                    "take one of them out, or give it another text");
}

}  // namespace ql::text
