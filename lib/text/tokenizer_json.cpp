#include <algorithm>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "text/tokenizer_json_internal.h"
#include "text/words.h"

namespace ql::text {
namespace {

// The ways in which such files write the bytes of a token.
enum class Spelling {
  kPlain,          // as they are
  kByteLevel,      // one code point for each byte, as GPT-2 does
  kSentencePiece,  // U+2581 for a blank, and tokens <0x41> for bytes
};

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

// The bytes with as few escapes as a line needs. A byte of its own may thus be written as \xNN and
// be told from the same text.
std::string spelled(std::string_view bytes) {
  constexpr std::string_view kNamed = "\t\n\r\\";
  std::string text;
  for (std::size_t i = 0, length = 0; i < bytes.size(); i += length) {
    const CodePoint point = code_point_at(bytes, i);
    length = point.length;
    const std::string_view character = bytes.substr(i, length);
    const bool plain = point.valid && kNamed.find(bytes[i]) == std::string_view::npos;
    text += plain ? std::string(character) : escaped(character);
  }
  return text;
}

std::string spelled_byte_level(std::string_view token, const std::string& place) {
  static const auto alphabet = byte_level_alphabet();
  std::string bytes;
  for (std::size_t i = 0, length = 0; i < token.size(); i += length) {
    const CodePoint point = code_point_at(token, i);
    length = point.length;
    const auto byte = alphabet.find(point.value);
    if (byte == alphabet.end()) {
      throw FormatError(
          place, fmt::format("'{}' is no byte in the alphabet of GPT-2", token.substr(i, length)));
    }
    bytes += byte->second;
  }
  return spelled(bytes);
}

std::string spelled_sentencepiece(std::string_view token) {
  if (const auto byte = parse_byte_token(token)) return fmt::format("\\x{:02X}", *byte);
  std::string text(token);
  for (std::size_t at = 0; (at = text.find(kPieceBlank, at)) != std::string::npos; ++at) {
    text.replace(at, kPieceBlank.size(), " ");
  }
  return spelled(text);
}

// Collects the types of a decoder and of those in it.
void add_types(const Json& part, std::set<std::string>& types) {
  if (part.is_object()) {
    const auto type = part.find("type");
    if (type != part.end() && type->is_string()) types.insert(type->get<std::string>());
    if (part.contains("decoders")) add_types(part["decoders"], types);
  }
  if (part.is_array()) {
    for (const Json& each : part) add_types(each, types);
  }
}

Spelling spelling_of(const JsonObject& file) {
  std::set<std::string> types;
  if (file.has("decoder")) add_types(file.at("decoder"), types);
  if (types.empty()) return Spelling::kPlain;
  const std::set<std::string> known = {"ByteLevel", "Metaspace", "ByteFallback", "Replace",
                                       "Fuse",      "Strip",     "Sequence"};
  for (const std::string& type : types) {
    if (known.count(type) != 0) continue;
    throw FormatError(file.where() + ": decoder",
                      fmt::format("'{}' is not known, expected ByteLevel, Metaspace, ByteFallback "
                                  "or none",
                                  type),
                      "write the tokens into a list, one a line, and import it with --type piece");
  }
  return types.count("ByteLevel") != 0 ? Spelling::kByteLevel : Spelling::kSentencePiece;
}

// Places tokens at their ids.
class TokensById {
 public:
  explicit TokensById(std::string where) : where_(std::move(where)) {}

  // A token of the vocabulary may stand among the added ones again.
  void add(std::int64_t id, const std::string& token, bool added) {
    // More than every vocabulary has; memory is taken by the ids.
    constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;
    if (id < 0 || id >= kMostTokens) {
      throw FormatError(
          where_, fmt::format("the id {} of '{}', expected below {}", id, token, kMostTokens));
    }
    const auto index = static_cast<std::size_t>(id);
    if (index >= tokens_.size()) {
      tokens_.resize(index + 1);
      added_.resize(index + 1);
    }
    if (!tokens_[index].empty() && tokens_[index] != token) {
      throw FormatError(where_, fmt::format("the id {} is of two tokens: '{}' and '{}'", id,
                                            tokens_[index], token));
    }
    tokens_[index] = token;
    added_[index] = added;
  }
  const std::vector<std::string>& tokens() const { return tokens_; }
  // True for a token that is text as it stands.
  bool added(std::size_t id) const { return added_[id]; }

 private:
  std::string where_;
  std::vector<std::string> tokens_;
  std::vector<bool> added_;
};

std::string text_of(const Json& value, const std::string& where) {
  if (!value.is_string()) throw FormatError(where, "a text expected, found " + value.dump());
  return value.get<std::string>();
}

void add_model(const JsonObject& model, TokensById& tokens) {
  const Json& vocabulary = model.at("vocab");
  const std::string where = model.where() + ": vocab";
  if (vocabulary.is_object()) {
    for (const auto& [token, id] : vocabulary.items()) {
      if (!id.is_number_integer()) {
        throw FormatError(fmt::format("{}: {}", where, token),
                          "a whole number expected, found " + id.dump());
      }
      tokens.add(id.get<std::int64_t>(), token, false);
    }
    return;
  }
  if (!vocabulary.is_array()) throw FormatError(where, "an object or an array expected");
  for (std::size_t id = 0; id < vocabulary.size(); ++id) {
    // A token and its score.
    const Json& entry = vocabulary[id];
    const bool pair = entry.is_array() && !entry.empty();
    tokens.add(static_cast<std::int64_t>(id),
               text_of(pair ? entry[0] : entry, fmt::format("{}[{}]", where, id)), false);
  }
}

void add_more(const JsonObject& file, TokensById& tokens) {
  if (!file.has("added_tokens")) return;
  for (const Json& each : file.at("added_tokens")) {
    const JsonObject token(each, file.where() + ": added_tokens");
    tokens.add(token.integer("id"), token.text("content"), true);
  }
}

std::optional<TokenId> unknown_of(const JsonObject& model, const std::vector<std::string>& tokens) {
  const auto given = [&](const char* key) { return model.has(key) && !model.at(key).is_null(); };
  if (given("unk_id")) {
    return static_cast<TokenId>(
        model.integer("unk_id", 0, static_cast<std::int64_t>(tokens.size()) - 1));
  }
  if (!given("unk_token")) return std::nullopt;
  const auto found = std::find(tokens.begin(), tokens.end(), model.text("unk_token"));
  if (found == tokens.end()) return std::nullopt;
  return static_cast<TokenId>(found - tokens.begin());
}

}  // namespace

bool is_tokenizer_json(std::string_view text) {
  const auto begin = std::find_if_not(text.begin(), text.end(), is_blank);
  // A list of tokens may begin with a brace, too.
  if (begin == text.end() || *begin != '{') return false;
  const auto next = std::find_if_not(begin + 1, text.end(), is_blank);
  return next != text.end() && *next == '"';
}

VocabularyContent read_tokenizer_json(std::string_view text, const std::string& where,
                                      std::vector<std::string>& names,
                                      std::optional<TokenId>& unk) {
  const Json json = parse_json(text, where);
  const JsonObject file(json, where);
  const JsonObject model = file.object("model");
  const Spelling spelling = spelling_of(file);
  TokensById tokens(where);
  add_model(model, tokens);
  add_more(file, tokens);
  names = tokens.tokens();
  unk = unknown_of(model, names);
  VocabularyContent content;
  content.type = TokenType::kPiece;
  content.counts.resize(names.size());
  for (std::size_t id = 0; id < names.size(); ++id) {
    const std::string place = fmt::format("{}: the token with the id {}", where, id);
    if (names[id].empty()) throw FormatError(place, "is missing");
    if (tokens.added(id) || spelling == Spelling::kPlain) {
      content.tokens.push_back(spelled(names[id]));
    } else if (spelling == Spelling::kByteLevel) {
      content.tokens.push_back(spelled_byte_level(names[id], place));
    } else {
      content.tokens.push_back(spelled_sentencepiece(names[id]));
    }
  }
  return content;
}

}  // namespace ql::text
