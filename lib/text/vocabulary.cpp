// Checks the content of a vocabulary, computes its hash, and reads and writes its file.

#include "text/vocabulary.h"

#include "base/bytes.h"
#include "base/data_input.h"
#include "shard/token_stream.h"

namespace ql::text {

static std::string place_of(const std::string& where, std::size_t id) {
  return fmt::format("{}: tokens[{}]", where, id);
}

// Throws FormatError unless the token has the form of its type. For type sentencepiece,
// check_pieces() checks the tokens instead.
static void check_token(TokenType type, std::string_view token, const std::string& where,
                        std::size_t id) {
  const auto expect = [&](bool good, const char* what) {
    if (good) return;
    std::string found = in_quotes(token);
    // A token of type piece already contains escapes. in_quotes() doubles their backslashes, so
    // they are made single again.
    if (type == TokenType::kPiece) found = replaced(found, "\\\\", "\\");
    throw FormatError(place_of(where, id), fmt::format("expected {}, found {}", what, found));
  };
  if (type == TokenType::kWord) {
    expect(
        count_word_starts(token, false) == 1 && !is_blank(token.front()) && !is_blank(token.back()),
        "a word without blanks");
  }
  if (type == TokenType::kChar) {
    expect(!token.empty() && code_point_at(token, 0).length == token.size(), "one code point");
  }
  if (type == TokenType::kByte) {
    expect(parse_byte_token(token).has_value(), "a byte such as <0x0A>");
  }
  if (type == TokenType::kPiece) {
    expect(!token.empty() && unescaped(token),
           "text in which a backslash begins \\n, \\t, \\r, \\\\ or \\xNN with upper-case digits");
  }
}

static void check_special(const std::optional<TokenId>& id, std::size_t size, const char* name,
                          const std::string& where) {
  if (id && *id >= size) {
    throw FormatError(
        where, fmt::format("specials: {} is {}, but the last id is {}", name, *id, size - 1));
  }
}

static void check_pieces(const TokenTable& tokens, const SentencePieceModel& model,
                         const VocabularyContent& content, const std::string& where) {
  if (model.size() != tokens.size()) {
    throw FormatError(
        where, fmt::format("\"tokens\" has {} entries, but the SentencePiece model has {} pieces",
                           tokens.size(), model.size()));
  }
  for (std::uint32_t id = 0; id < tokens.size(); ++id) {
    if (tokens.token(id) != model.piece(id)) {
      throw FormatError(place_of(where, id),
                        fmt::format("expected {} as in the SentencePiece model, found {}",
                                    in_quotes(model.piece(id)), in_quotes(tokens.token(id))));
    }
    if (model.is_byte(id)) check_token(TokenType::kByte, tokens.token(id), where, id);
  }
  if (content.unk != model.unk()) {
    throw FormatError(where, fmt::format("specials: unk must be {}, as in \"model\"", model.unk()));
  }
  if (content.eos && !model.is_control(*content.eos)) {
    throw FormatError(where, "specials: eos must be a control piece of \"model\", such as </s>");
  }
}

static std::string hash_of(const VocabularyContent& content, const TokenTable& tokens) {
  ContentHasher hasher;
  const auto add = [&hasher](std::string_view text) { hasher.update(text.data(), text.size()); };
  const auto special = [](const std::optional<TokenId>& id) {
    return id ? std::to_string(*id) : std::string("none");
  };
  add(fmt::format("ql-vocabulary 1\ntype {}\nlowercase {}\n{}eos {}\nunk {}\ntokens {}\n",
                  to_text(content.type), content.lowercase ? "true" : "false",
                  content.blanks == Blanks::kUnicode ? "blanks unicode\n" : "",
                  special(content.eos), special(content.unk), tokens.size()));
  for (std::uint32_t id = 0; id < tokens.size(); ++id) {
    add(std::to_string(tokens.token(id).size()) + ' ');
    add(tokens.token(id));
    add("\n");
  }
  if (content.type == TokenType::kSentencePiece) {
    add(fmt::format("model {}\n", content.model.size()));
    add(content.model);
  }
  if (content.leading_blanks != LeadingBlanks::kNone) {
    add(fmt::format("leading_blanks {}\n", to_text(content.leading_blanks)));
  }
  return hasher.digest();
}

Vocabulary::Vocabulary(VocabularyContent content, const std::string& where)
    : content_(std::move(content)) {
  const std::size_t size = content_.tokens.size();
  if (size == 0) throw FormatError(where, "a vocabulary needs at least one token, found none");
  if (content_.counts.size() != size) {
    throw FormatError(where, fmt::format("\"tokens\" has {} entries, but \"counts\" has {}", size,
                                         content_.counts.size()));
  }
  check_special(content_.eos, size, "eos", where);
  check_special(content_.unk, size, "unk", where);
  if (content_.eos && content_.eos == content_.unk) {
    throw FormatError(where, fmt::format("specials: eos and unk are both {}", *content_.eos),
                      "choose two different tokens");
  }
  if ((content_.type == TokenType::kByte || content_.type == TokenType::kPiece) &&
      content_.lowercase) {
    throw FormatError(
        where,
        fmt::format("a vocabulary of type {} cannot be lower-cased", ql::to_text(content_.type)),
        "make it without --lowercase");
  }
  const LeadingBlanks blanks = content_.leading_blanks;
  if (blanks != LeadingBlanks::kNone &&
      (content_.type != TokenType::kPiece || blanks == LeadingBlanks::kAll)) {
    throw FormatError(where, fmt::format("leading_blanks '{}' does not go with type {}",
                                         ql::to_text(blanks), ql::to_text(content_.type)));
  }
  std::size_t bytes = 0;
  for (const std::string& token : content_.tokens) bytes += token.size();
  tokens_.reserve(size, bytes);
  for (std::uint32_t id = 0; id < size; ++id) {
    const std::string& token = content_.tokens[id];
    if (content_.counts[id] < 0) {
      throw FormatError(fmt::format("{}: counts[{}]", where, id),
                        fmt::format("expected at least 0, found {}", content_.counts[id]));
    }
    if (tokens_.insert(token) != id) {
      throw FormatError(place_of(where, id), fmt::format("{} is already at tokens[{}]",
                                                         in_quotes(token), tokens_.find(token)));
    }
    if (is_special(id)) continue;
    check_token(content_.type, token, where, id);
    if (content_.blanks == Blanks::kUnicode && has_unicode_blank(token)) {
      throw FormatError(
          place_of(where, id),
          fmt::format("expected a word without Unicode blanks, found {}", in_quotes(token)),
          "make the vocabulary with --blanks ascii");
    }
  }
  content_.tokens = {};
  const std::size_t specials = (content_.eos ? 1 : 0) + (content_.unk ? 1 : 0);
  // The tokens are distinct single bytes, so 256 of them cover every byte.
  if (content_.type == TokenType::kByte && size != 256 + specials) {
    throw FormatError(where, fmt::format("expected {} tokens (bytes: 256, specials: {}), found {}",
                                         256 + specials, specials, size));
  }
  if (content_.type == TokenType::kSentencePiece) {
    model_ = std::make_shared<const SentencePieceModel>(content_.model, where + ": model");
    check_pieces(tokens_, *model_, content_, where);
  }
  hash_ = hash_of(content_, tokens_);
}

// The vocabulary's file is described in ql-vocabulary(5).

constexpr const char* kFormat = "ql-vocabulary";
constexpr std::int64_t kVersion = 1;
constexpr const char* kRemedy = "make a vocabulary with qltok vocab";

static std::optional<TokenId> special(const JsonObject& specials, const std::string& key) {
  if (!specials.has(key)) return std::nullopt;
  return static_cast<TokenId>(specials.integer(key, 0, UINT32_MAX));
}

static std::string model_of(const JsonObject& object) {
  std::optional<std::string> model = base64_decode(object.text("model"));
  if (!model) throw FormatError(object.where(), "model: the text is not base64");
  return *std::move(model);
}

std::string read_vocabulary_file(const std::string& path, bool standard_input) {
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) {
    const std::filesystem::path file = std::filesystem::path(path) / shard::kVocabularyFile;
    if (!std::filesystem::exists(file, unknown)) {
      if (unknown) throw SystemError(file.string(), "open", unknown.value());
      throw Error(path, fmt::format("this folder has no {}", shard::kVocabularyFile),
                  "give the path of the vocabulary file");
    }
    return read_vocabulary_file(file.string());
  }
  return read_content(path == "-" && !standard_input ? "./-" : path, Content::kVocabulary,
                      static_cast<std::int64_t>(shard::kLargestVocabularyText));
}

Vocabulary parse_vocabulary(std::string_view text, const std::string& where, Json* provenance) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos || text[begin] != '{') {
    throw FormatError(where, "not a vocabulary file: expected a JSON object", kRemedy);
  }
  const Json json = parse_json(text, where);
  const JsonObject object(json, where);
  object.check_format(kFormat, kVersion);
  VocabularyContent content;
  const auto read = key_reader(object);
  read("type", content.type, {}, kRequired);
  read("lowercase", content.lowercase, {}, kRequired);
  if (content.type == TokenType::kWord) {
    read("line_style", content.line_style, {}, kRequired);
    read("blanks", content.blanks);
  }
  if (content.type == TokenType::kPiece) read("leading_blanks", content.leading_blanks, {}, 0);
  const JsonObject specials = object.object("specials");
  specials.refuse_unknown({"eos", "unk"});
  content.eos = special(specials, "eos");
  content.unk = special(specials, "unk");
  content.tokens = object.texts("tokens");
  content.counts = object.integers("counts");
  if (content.type == TokenType::kSentencePiece) content.model = model_of(object);
  Vocabulary vocabulary(std::move(content), where);
  if (object.text("hash") != vocabulary.hash()) {
    throw FormatError(where,
                      fmt::format("the hash is {}, but the content's hash is {}",
                                  object.text("hash"), vocabulary.hash()),
                      "the file was changed or damaged: make it again with qltok vocab");
  }
  if (provenance != nullptr && json.contains("provenance")) *provenance = json["provenance"];
  return vocabulary;
}

static std::string decoded(const Vocabulary& vocabulary, TokenId id) {
  const std::string_view token = vocabulary.token(id);
  if (id == vocabulary.eos()) return "\n";
  if (id == vocabulary.unk() && vocabulary.type() != TokenType::kWord) {
    return std::string(kReplacementUtf8);
  }
  switch (vocabulary.type()) {
    case TokenType::kSentencePiece:
      if (vocabulary.model().is_control(id)) return "";
      if (!vocabulary.model().is_byte(id)) return replaced(token, kPieceBlank, " ");
      [[fallthrough]];
    case TokenType::kByte:
      return std::string(1, static_cast<char>(*parse_byte_token(token)));
    case TokenType::kPiece:
      return unescaped(token).value();
    default:
      return std::string(token);
  }
}

DecodedTokens Vocabulary::decoded_tokens() const {
  DecodedTokens tokens{type() == TokenType::kWord, {}, eos(), added_blanks()};
  tokens.texts.reserve(size());
  for (TokenId id = 0; id < size(); ++id) tokens.texts.push_back(decoded(*this, id));
  return tokens;
}

std::string Vocabulary::to_text(const Json& provenance) const {
  Json json;
  json["format"] = kFormat;
  json["version"] = kVersion;
  json["type"] = ql::to_text(type());
  json["lowercase"] = lowercase();
  if (type() == TokenType::kWord) json["line_style"] = ql::to_text(line_style());
  if (content_.leading_blanks != LeadingBlanks::kNone) {
    json["leading_blanks"] = ql::to_text(content_.leading_blanks);
  }
  if (blanks() == Blanks::kUnicode) json["blanks"] = ql::to_text(blanks());
  json["hash"] = hash();
  json["specials"] = Json::object();
  if (eos()) json["specials"]["eos"] = *eos();
  if (unk()) json["specials"]["unk"] = *unk();
  json["provenance"] = provenance;
  Json tokens = Json::array();
  for (TokenId id = 0; id < size(); ++id) tokens.push_back(std::string(token(id)));
  json["tokens"] = std::move(tokens);
  json["counts"] = counts();
  if (type() == TokenType::kSentencePiece) json["model"] = base64_encode(content_.model);
  std::string text = dump_json(json);
  if (text.size() > shard::kLargestVocabularyText) {
    throw Error("the vocabulary",
                fmt::format("with {} entries it takes {} bytes, but the programs read at most {}",
                            with_thousands(size()), with_thousands(text.size()),
                            with_thousands(shard::kLargestVocabularyText)),
                "give --max-size or --min-count; for --counts count fewer or smaller parts; for "
                "--import give a shorter list");
  }
  return text;
}

}  // namespace ql::text
