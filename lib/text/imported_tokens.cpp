// Finds the bytes that imported tokens stand for, and the names of gaps.

#include "text/imported_tokens.h"

#include <unordered_map>

namespace ql::text {

namespace {

// GPT-2's alphabet writes a space, byte 0x20, as U+0120.
constexpr std::string_view kByteLevelBlank = "\xC4\xA0";

// An id must be less than kMostGaps plus twice the number of tokens. In a large file only a few
// hundred ids have no token, so twice the number suffices. A small file may have large ids, for
// which kMostGaps is added.
constexpr std::size_t kMostGaps = std::size_t{1} << 16;

// Maps GPT-2's code points to bytes: a visible character of Latin-1 stands for its own byte, and
// U+0100 and the following code points stand for the other bytes.
std::unordered_map<char32_t, char> byte_level_alphabet() {
  std::unordered_map<char32_t, char> alphabet;
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 0x100; ++byte) {
    const bool visible = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    alphabet[visible ? byte : next++] = static_cast<char>(byte);
  }
  return alphabet;
}

// Returns true for a special token such as <|endoftext|> or [MASK]. Its characters stand for
// themselves, even if the list writes other tokens in GPT-2's alphabet.
bool is_bracketed(const std::string& token) {
  return (token.front() == '<' && token.back() == '>') ||
         (token.front() == '[' && token.back() == ']');
}

}  // namespace

TokensById::TokensById(std::size_t expected, std::string where)
    : where_(std::move(where)), end_(2 * expected + kMostGaps) {}

void TokensById::add(std::uint64_t id, const std::string& token) {
  if (id >= end_) {
    throw FormatError(
        where_,
        fmt::format(
            "the id of {} is {}, expected less than {} ({} plus twice the number of tokens)",
            in_quotes(token), id, with_thousands(static_cast<std::int64_t>(end_)),
            with_thousands(static_cast<std::int64_t>(kMostGaps))),
        "is the file damaged, or something else than a list of tokens?");
  }
  if (id >= tokens_.size()) tokens_.resize(id + 1);
  if (tokens_[id] && *tokens_[id] != token) {
    throw FormatError(where_,
                      fmt::format("the id {} belongs to two tokens: {} and {}", id,
                                  in_quotes(*tokens_[id]), in_quotes(token)),
                      "remove one of them, or correct its id");
  }
  tokens_[id] = token;
}

std::vector<std::string> TokensById::names() const {
  std::unordered_set<std::string> taken;
  for (const auto& token : tokens_) taken.insert(token.value_or(""));
  std::vector<std::string> names;
  for (const auto& token : tokens_) {
    names.push_back(token ? *token : placeholder(names.size(), taken));
  }
  return names;
}

std::string placeholder(std::uint64_t id, const std::unordered_set<std::string>& taken) {
  std::string name = fmt::format("<missing:{}>", id);
  while (taken.count(name) != 0) name = fmt::format("<{}>", name);
  return name;
}

bool is_placeholder(std::string_view name, std::uint64_t id) {
  const std::string shortest = fmt::format("<missing:{}>", id);
  while (name.size() > shortest.size() && name.front() == '<' && name.back() == '>') {
    name = name.substr(1, name.size() - 2);
  }
  return name == shortest;
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

std::optional<unsigned char> byte_fallback(std::string_view token) {
  if (token.size() != 6) return std::nullopt;
  std::string upper(token);
  for (const std::size_t digit : {std::size_t{3}, std::size_t{4}}) {
    if (upper[digit] >= 'a') upper[digit] = static_cast<char>(upper[digit] - 'a' + 'A');
  }
  return parse_byte_token(upper);
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
  if (const auto byte = byte_fallback(token)) return {static_cast<char>(*byte)};
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
                    fmt::format("more than {0} tokens are {1}, which has {0} spellings with \\xNN",
                                bytes.size() + 1, in_quotes(bytes)),
                    "leave at most that many tokens with this text");
}

}  // namespace ql::text
