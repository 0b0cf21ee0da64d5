#include "eval/token_texts.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"

namespace ql::eval {

TokenTexts read_token_texts(const std::string& vocabulary_text) {
  TokenTexts texts;
  if (vocabulary_text.empty()) return texts;
  const std::string where = "the vocabulary";
  const Json json = parse_json(vocabulary_text, where);
  const Json& tokens = JsonObject(json, where).at("tokens");
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
  }
  return texts;
}

}  // namespace ql::eval
