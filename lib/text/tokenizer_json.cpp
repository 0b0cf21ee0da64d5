// Reads the tokens of a tokenizer.json, and applies its decoders.

#include "text/tokenizer_json.h"

#include <functional>

#include "text/imported_tokens.h"

namespace ql::text {

namespace {

constexpr const char* kListRemedy =
    "write the tokens into a list, one per line in the order of their ids, and import it with "
    "--type piece";

// The tokens of a WordLevel model are words, so text can be encoded with them.
constexpr const char* kWordsRemedy =
    "if the tokens are the words between the blanks of a text, import them as words: jq "
    ".model.vocab FILE | qltok vocab --import - --type word";

// Applies the decoders of a tokenizer.json to single tokens: finds the text of each token, and the
// spaces that are removed where a document begins. The Hugging Face library passes a list of
// strings, at first the tokens, through all decoders, and joins the last strings. If a decoder
// looks at one token at a time, it can be applied to each token of the vocabulary in advance. After
// ByteFallback, Fuse or ByteLevel, a string may span several tokens. Then only two decoders are
// accepted: Fuse, which joins all strings, and Strip on the text that Fuse or ByteLevel has joined.
class TokenDecoder {
 public:
  explicit TokenDecoder(const JsonObject& file, const char* remedy)
      : where_(file.where() + ": decoder"), remedy_(remedy) {
    if (!file.has("decoder") || file.at("decoder").is_null()) refuse_type("none");
    add(file.at("decoder"));
  }

  // `only_added` is true for a token that is not in the model's vocabulary.
  std::string text_of(const std::string& token, bool only_added) const {
    if (leading_blanks_ == LeadingBlanks::kFirstToken && bytes_of(token).find(' ') != token.npos) {
      refuse(
          fmt::format("the token {} has a blank that Metaspace keeps at the beginning of a text, "
                      "which is not supported",
                      in_quotes(token)));
    }
    std::string text = token;
    for (const auto& step : steps_) text = step(text);
    if (!byte_level_) return bytes_of(text);
    std::string bytes = byte_level_bytes(text).value_or(text);
    // An added token is plain text, but its code points may all be in GPT-2's alphabet, as U+00E9
    // is. Plain text that is read as this alphabet mostly gives invalid UTF-8.
    return only_added && find_invalid_utf8(bytes) != std::string::npos ? text : bytes;
  }

  LeadingBlanks leading_blanks() const { return leading_blanks_; }

 private:
  // The Hugging Face library passes a list of strings from decoder to decoder. A State says what
  // each string of the list holds.
  enum class State {
    kTokens,  // a token
    kRuns,    // a token, or several adjacent bytes
    kText,    // the complete text
  };

  void add(const Json& json) {
    const JsonObject decoder(json, where_);
    const std::string type = decoder.text("type");
    if (type == "Sequence") return add_all(decoder);
    if (type == "Fuse") return enter(State::kText);
    if (type == "Strip" && state_ == State::kText) return strip_text(decoder);
    if (type != "Replace" && type != "Strip" && type != "Metaspace" && type != "ByteFallback" &&
        type != "ByteLevel") {
      refuse_type(type);
    }
    // If an earlier decoder removes the leading space, the Hugging Face library passes text without
    // the space to this decoder. Here this decoder would still get the space, because
    // leading_blanks_ takes effect after all decoders.
    const bool text_follows = leading_blanks_ != LeadingBlanks::kNone && type != "ByteFallback";
    if (state_ != State::kTokens || text_follows) {
      refuse(type + " follows decoders that join or strip text, which is not supported");
    }
    if (type == "Replace") return replace(decoder);
    if (type == "Strip") return strip_tokens(decoder);
    if (type == "Metaspace") return mark_blanks(decoder);
    byte_level_ = type == "ByteLevel";
    byte_fallback_ = !byte_level_;
    enter(byte_level_ ? State::kText : State::kRuns);
  }

  void add_all(const JsonObject& sequence) {
    const Json& parts = sequence.at("decoders");
    if (!parts.is_array()) throw FormatError(where_, "decoders: expected an array");
    for (const Json& part : parts) add(part);
  }

  void replace(const JsonObject& decoder) {
    const JsonObject pattern = decoder.object("pattern");
    if (!pattern.has("String") || pattern.text("String").empty()) {
      refuse(fmt::format("Replace has the pattern {}, expected a String that is not empty",
                         pattern.json().dump()));
    }
    steps_.push_back([from = pattern.text("String"), to = decoder.text("content")](
                         const std::string& text) { return replaced(text, from, to); });
  }

  // Removes `content` from each token, at most `start` times from the beginning and at most `stop`
  // times from the end.
  void strip_tokens(const JsonObject& decoder) {
    const std::string content = decoder.text("content");
    if (content.empty()) refuse("the content of Strip is empty");
    steps_.push_back([content, start = decoder.integer("start", 0),
                      stop = decoder.integer("stop", 0)](const std::string& token) {
      std::string_view text = token;
      for (std::int64_t i = 0; i < start && text.substr(0, content.size()) == content; ++i) {
        text.remove_prefix(content.size());
      }
      for (std::int64_t i = 0; i < stop && text.size() >= content.size() &&
                               text.substr(text.size() - content.size()) == content;
           ++i) {
        text.remove_suffix(content.size());
      }
      return std::string(text);
    });
  }

  // Accepts only a Strip that removes nothing, and a Strip that removes the one space that encoding
  // adds at the beginning of a document.
  void strip_text(const JsonObject& decoder) {
    const std::int64_t start = decoder.integer("start", 0), stop = decoder.integer("stop", 0);
    if (start == 0 && stop == 0) return;
    if (decoder.text("content") != " " || start != 1 || stop != 0) {
      refuse(
          fmt::format("Strip removes {} {} from the beginning of a text and {} from its end, "
                      "expected one blank from its beginning",
                      start, in_quotes(decoder.text("content")), stop));
    }
    if (leading_blanks_ != LeadingBlanks::kNone) {
      refuse(
          "Strip removes a blank from the beginning of a text, as an earlier decoder does, which "
          "is not supported");
    }
    leading_blanks_ = LeadingBlanks::kOne;
  }

  void mark_blanks(const JsonObject& decoder) {
    const auto is_given = [&](const char* key) {
      return decoder.has(key) && !decoder.at(key).is_null();
    };
    const bool never = (is_given("prepend_scheme") && decoder.text("prepend_scheme") == "never") ||
                       (is_given("add_prefix_space") && !decoder.boolean("add_prefix_space"));
    if (!never) {
      // The library keeps leading spaces that earlier decoders make; kFirstToken would remove them.
      if (!steps_.empty()) {
        refuse("Metaspace follows another decoder and drops blanks, which is not supported");
      }
      leading_blanks_ = LeadingBlanks::kFirstToken;
    }
    const std::string mark =
        is_given("replacement") ? decoder.text("replacement") : std::string(kPieceBlank);
    if (mark.empty()) refuse("the replacement of Metaspace is empty");
    steps_.push_back([mark](const std::string& text) { return replaced(text, mark, " "); });
  }

  void enter(State state) { state_ = state; }

  std::string bytes_of(const std::string& text) const {
    const auto byte = byte_fallback_ ? byte_fallback(text) : std::nullopt;
    return byte ? std::string(1, static_cast<char>(*byte)) : text;
  }

  [[noreturn]] void refuse(const std::string& problem) const {
    throw FormatError(where_, problem, remedy_);
  }

  [[noreturn]] void refuse_type(const std::string& type) const {
    refuse(
        fmt::format("expected ByteLevel, Metaspace, ByteFallback, Replace, Strip, Fuse or a "
                    "Sequence of these, found {}",
                    type));
  }

  std::string where_;
  const char* remedy_;
  std::vector<std::function<std::string(const std::string&)>>
      steps_;                                        // applied to each token, in this order
  bool byte_fallback_ = false, byte_level_ = false;  // applied after the steps
  State state_ = State::kTokens;
  LeadingBlanks leading_blanks_ = LeadingBlanks::kNone;
};

// Refuses models with affix markers (such as "##"): the decoders here do not remove them.
void refuse_affixes(const JsonObject& model) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.has(key)) continue;
    const Json& affix = model.at(key);
    if (affix.is_null() || (affix.is_string() && affix.get<std::string>().empty())) continue;
    throw FormatError(model.where(), fmt::format("{} is {}, expected none", key, affix.dump()),
                      kListRemedy);
  }
}

std::string string_of(const Json& value, const std::string& where) {
  if (!value.is_string()) throw FormatError(where, "expected a string, found " + value.dump());
  return value.get<std::string>();
}

void add_token(TokensById& tokens, const Json& id, const std::string& token,
               const std::string& where) {
  if (!id.is_number_unsigned()) {
    throw FormatError(where, fmt::format("the id of {} is {}, expected a whole number from 0 on",
                                         in_quotes(token), id.dump()));
  }
  if (token.empty()) {
    throw FormatError(where, fmt::format("the token with the id {} has no text", id.dump()),
                      fmt::format("give it a text, such as <missing:{}>", id.dump()));
  }
  tokens.add(id.get<std::uint64_t>(), token);
}

void add_vocabulary(const Json& vocabulary, const std::string& where, TokensById& tokens) {
  if (vocabulary.is_object()) {
    for (const auto& [token, id] : vocabulary.items()) add_token(tokens, id, token, where);
    return;
  }
  for (std::size_t id = 0; id < vocabulary.size(); ++id) {
    // An entry is a token, or an array of a token and its score.
    const Json& entry = vocabulary[id];
    const bool pair = entry.is_array() && !entry.empty();
    add_token(tokens, id, string_of(pair ? entry[0] : entry, fmt::format("{}[{}]", where, id)),
              where);
  }
}

// Returns an empty array if the file does not have the key.
Json array_of(const JsonObject& file, const char* key) {
  if (!file.has(key)) return Json::array();
  if (!file.at(key).is_array()) {
    throw FormatError(file.where(), fmt::format("{}: expected an array", key));
  }
  return file.at(key);
}

struct FileTokens {
  TokensById by_id;
  std::unordered_set<std::uint64_t> only_added;  // ids that the model's vocabulary lacks
};

FileTokens read_tokens(const JsonObject& file, const JsonObject& model) {
  const Json& vocabulary = model.at("vocab");
  const std::string where = model.where() + ": vocab";
  if (!vocabulary.is_object() && !vocabulary.is_array()) {
    throw FormatError(where, "expected an object or an array");
  }
  const Json added = array_of(file, "added_tokens");
  FileTokens tokens{TokensById(vocabulary.size() + added.size(), file.where()), {}};
  add_vocabulary(vocabulary, where, tokens.by_id);
  for (const Json& each : added) {
    const JsonObject token(each, file.where() + ": added_tokens");
    const Json& id = token.at("id");
    const bool known = id.is_number_unsigned() && tokens.by_id.has(id.get<std::uint64_t>());
    add_token(tokens.by_id, id, token.text("content"), token.where());
    if (!known) tokens.only_added.insert(id.get<std::uint64_t>());
  }
  return tokens;
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

bool is_tokenizer_json(const Json& json) {
  return json.is_object() && json.contains("model") && json["model"].is_object();
}

VocabularyContent read_tokenizer_json(const Json& json, const std::string& where,
                                      std::vector<std::string>& names,
                                      std::optional<TokenId>& unk) {
  const JsonObject file(json, where);
  const JsonObject model = file.object("model");
  const bool words = model.has("type") && model.at("type") == "WordLevel";
  const TokenDecoder decoder(file, words ? kWordsRemedy : kListRemedy);
  refuse_affixes(model);
  const FileTokens tokens = read_tokens(file, model);
  names = tokens.by_id.names();
  VocabularyContent content;
  content.type = TokenType::kPiece;
  content.leading_blanks = decoder.leading_blanks();
  Speller speller(where);
  for (std::size_t id = 0; id < names.size(); ++id) {
    const std::string bytes = tokens.by_id.has(id)
                                  ? decoder.text_of(names[id], tokens.only_added.count(id) != 0)
                                  : names[id];
    if (bytes.empty()) {
      throw FormatError(
          where,
          fmt::format("the key \"decoder\" removes all text of the token with the id {}, {}", id,
                      in_quotes(names[id])),
          kListRemedy);
    }
    content.tokens.push_back(speller.spell(bytes));
  }
  unk = unknown_of(model, names);
  return content;
}

}  // namespace ql::text
