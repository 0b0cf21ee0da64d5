#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

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

std::string byte_level_bytes(std::string_view token, const std::string& place) {
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
  return bytes;
}

std::string sentencepiece_bytes(std::string_view token) {
  if (const auto byte = parse_byte_token(token)) return {static_cast<char>(*byte)};
  std::string text(token);
  for (std::size_t at = 0; (at = text.find(kPieceBlank, at)) != std::string::npos; ++at) {
    text.replace(at, kPieceBlank.size(), " ");
  }
  return text;
}

// Writes bytes with as few escapes as a line needs. Tokens of the same bytes are told apart by more
// of them: a byte beside a character, or an added token beside one of the vocabulary.
class Speller {
 public:
  std::string spell(const std::string& bytes) {
    std::string text;
    for (std::size_t escapes = 0; escapes <= bytes.size(); ++escapes) {
      text.clear();
      for (std::size_t i = 0; i < escapes; ++i) {
        text += fmt::format("\\x{:02X}", static_cast<unsigned char>(bytes[i]));
      }
      text += escaped(std::string_view(bytes).substr(escapes), Among::kLines);
      if (taken_.insert(text).second) break;
    }
    return text;
  }

 private:
  std::unordered_set<std::string> taken_;
};

constexpr const char* kListCure =
    "write the tokens into a list, one a line, and import it with --type piece";

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

// Without a decoder, tokens would be words with blanks between them. Those of prefixes and suffixes
// are put together by rules, too.
Spelling spelling_of(const JsonObject& file, const JsonObject& model) {
  std::set<std::string> types;
  if (file.has("decoder")) add_types(file.at("decoder"), types);
  const std::set<std::string> known = {"ByteLevel", "Metaspace", "ByteFallback", "Replace",
                                       "Fuse",      "Strip",     "Sequence"};
  const bool all_known = std::all_of(
      types.begin(), types.end(), [&](const std::string& type) { return known.count(type) != 0; });
  if (types.empty() || !all_known) {
    throw FormatError(
        file.where() + ": decoder",
        fmt::format("expected ByteLevel, Metaspace or ByteFallback, found {}",
                    types.empty() ? "none" : fmt::format("{}", fmt::join(types, ", "))),
        kListCure);
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.has(key)) continue;
    const Json& affix = model.at(key);
    if (affix.is_null() || (affix.is_string() && affix.get<std::string>().empty())) continue;
    throw FormatError(model.where(), fmt::format("{} is {}, expected none", key, affix.dump()),
                      kListCure);
  }
  return types.count("ByteLevel") != 0 ? Spelling::kByteLevel : Spelling::kSentencePiece;
}

struct Token {
  std::string text;
  bool added = false;  // text as it stands, whatever the spelling is
};

// Places tokens at their ids, which are as many as the tokens at most.
class TokensById {
 public:
  TokensById(std::size_t most, std::string where) : where_(std::move(where)), tokens_(most) {}

  // A token of the vocabulary may stand among the added ones again.
  void add(const Json& id, const std::string& text, bool added) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= tokens_.size()) {
      throw FormatError(where_, fmt::format("the id of '{}' is {}, but there are only {} tokens",
                                            text, id.dump(), tokens_.size()));
    }
    if (text.empty()) {
      throw FormatError(where_, fmt::format("the token with the id {} has no text", id.dump()));
    }
    std::optional<Token>& token = tokens_[id.get<std::size_t>()];
    if (token && token->text != text) {
      throw FormatError(where_, fmt::format("the id {} is of two tokens: '{}' and '{}'", id.dump(),
                                            token->text, text));
    }
    token = Token{text, added};
  }

  // Returns all of them in order. Throws FormatError where an id is missing.
  std::vector<Token> tokens() const {
    std::vector<Token> all;
    std::size_t size = tokens_.size();
    while (size > 0 && !tokens_[size - 1]) --size;
    for (std::size_t id = 0; id < size; ++id) {
      if (!tokens_[id]) {
        throw FormatError(where_, fmt::format("no token has the id {}", id),
                          "ids must count from 0 without a gap");
      }
      all.push_back(*tokens_[id]);
    }
    return all;
  }

 private:
  std::string where_;
  std::vector<std::optional<Token>> tokens_;
};

std::string text_of(const Json& value, const std::string& where) {
  if (!value.is_string()) throw FormatError(where, "a text expected, found " + value.dump());
  return value.get<std::string>();
}

void add_vocabulary(const Json& vocabulary, const std::string& where, TokensById& tokens) {
  if (vocabulary.is_object()) {
    for (const auto& [token, id] : vocabulary.items()) tokens.add(id, token, false);
    return;
  }
  for (std::size_t id = 0; id < vocabulary.size(); ++id) {
    // A token and its score.
    const Json& entry = vocabulary[id];
    const bool pair = entry.is_array() && !entry.empty();
    tokens.add(id, text_of(pair ? entry[0] : entry, fmt::format("{}[{}]", where, id)), false);
  }
}

// Returns an empty array where the file has none.
Json array_of(const JsonObject& file, const char* key) {
  if (!file.has(key)) return Json::array();
  if (!file.at(key).is_array()) {
    throw FormatError(file.where(), fmt::format("{}: an array expected", key));
  }
  return file.at(key);
}

std::vector<Token> read_tokens(const JsonObject& file, const JsonObject& model) {
  const Json& vocabulary = model.at("vocab");
  const std::string where = model.where() + ": vocab";
  if (!vocabulary.is_object() && !vocabulary.is_array()) {
    throw FormatError(where, "an object or an array expected");
  }
  const Json more = array_of(file, "added_tokens");
  TokensById tokens(vocabulary.size() + more.size(), file.where());
  add_vocabulary(vocabulary, where, tokens);
  for (const Json& each : more) {
    const JsonObject token(each, file.where() + ": added_tokens");
    tokens.add(token.at("id"), token.text("content"), true);
  }
  return tokens.tokens();
}

std::optional<TokenId> unknown_of(const JsonObject& model, const std::vector<std::string>& names) {
  const auto given = [&](const char* key) { return model.has(key) && !model.at(key).is_null(); };
  if (given("unk_id")) {
    return static_cast<TokenId>(
        model.integer("unk_id", 0, static_cast<std::int64_t>(names.size()) - 1));
  }
  if (!given("unk_token")) return std::nullopt;
  const auto found = std::find(names.begin(), names.end(), model.text("unk_token"));
  if (found == names.end()) return std::nullopt;
  return static_cast<TokenId>(found - names.begin());
}

}  // namespace

bool is_tokenizer_json(std::string_view text) {
  const auto begin = std::find_if_not(text.begin(), text.end(), is_blank);
  if (begin == text.end() || *begin != '{') return false;
  // A list may begin with a brace, too.
  const auto next = std::find_if_not(begin + 1, text.end(), is_blank);
  return next != text.end() && *next == '"';
}

VocabularyContent read_tokenizer_json(std::string_view text, const std::string& where,
                                      std::vector<std::string>& names,
                                      std::optional<TokenId>& unk) {
  const Json json = parse_json(text, where);
  const JsonObject file(json, where);
  if (!file.has("model")) {
    throw FormatError(where, "a JSON object without 'model', so it is no tokenizer.json",
                      "give the tokenizer.json, or a list with --type piece; a vocabulary of qltok "
                      "needs no import");
  }
  const JsonObject model = file.object("model");
  const Spelling spelling = spelling_of(file, model);
  VocabularyContent content;
  content.type = TokenType::kPiece;
  Speller speller;
  for (const Token& token : read_tokens(file, model)) {
    const std::string place = fmt::format("{}: the token with the id {}", where, names.size());
    std::string bytes = token.text;
    if (!token.added) {
      bytes = spelling == Spelling::kByteLevel ? byte_level_bytes(token.text, place)
                                               : sentencepiece_bytes(token.text);
    }
    content.tokens.push_back(speller.spell(bytes));
    names.push_back(token.text);
  }
  content.counts.resize(names.size());
  unk = unknown_of(model, names);
  return content;
}

}  // namespace ql::text
