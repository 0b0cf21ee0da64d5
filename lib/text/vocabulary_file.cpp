// The vocabulary's file, see ql-vocabulary(5).
#include <fmt/format.h>

#include <filesystem>

#include "base/data_input.h"
#include "base/error.h"
#include "base/keys.h"
#include "shard/token_stream_format.h"
#include "text/base64_internal.h"
#include "text/vocabulary.h"

namespace ql::text {
namespace {

constexpr const char* kFormat = "ql-vocabulary";
constexpr std::int64_t kVersion = 1;
constexpr const char* kCure = "make one with qltok vocab";

std::optional<TokenId> special(const JsonObject& specials, const std::string& key) {
  if (!specials.has(key)) return std::nullopt;
  return static_cast<TokenId>(specials.integer(key, 0, UINT32_MAX));
}

std::string model_of(const JsonObject& object) {
  std::optional<std::string> model = base64_decode(object.text("model"));
  if (!model) throw FormatError(object.where(), "model: not base64");
  return *std::move(model);
}

}  // namespace

std::string read_vocabulary_file(const std::string& path) {
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) {
    const std::filesystem::path file = std::filesystem::path(path) / shard::kVocabularyFile;
    if (!std::filesystem::exists(file, unknown)) {
      throw Error(path, fmt::format("{} is missing", shard::kVocabularyFile),
                  "name the vocabulary's file");
    }
    return read_vocabulary_file(file.string());
  }
  return read_content(path == "-" ? "./-" : path, Content::kVocabulary,
                      static_cast<std::int64_t>(shard::kLargestVocabularyText));
}

Vocabulary parse_vocabulary(std::string_view text, const std::string& where, Json* provenance) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos || text[begin] != '{') {
    throw FormatError(where, "not a vocabulary file, which is a JSON object", kCure);
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
                      fmt::format("the hash is {}, but the content has {}", object.text("hash"),
                                  vocabulary.hash()),
                      "the file was changed or damaged: make it again with qltok vocab");
  }
  if (provenance != nullptr && json.contains("provenance")) *provenance = json["provenance"];
  return vocabulary;
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
  return dump_json(json);
}

}  // namespace ql::text
