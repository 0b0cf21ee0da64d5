// Reads the vocabulary of a checkpoint, compares it with that of the model, and passes it on.

#include "checkpoint_text.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"
#include "net/model_file.h"
#include "shard/same_vocabulary.h"

using namespace ql;

std::filesystem::path vocabulary_file(const std::string& checkpoint) {
  return net::checkpoint_folder(checkpoint) / shard::kVocabularyFile;
}

text::Vocabulary checkpoint_vocabulary(const std::string& checkpoint, std::string& text,
                                       const std::string& remedy) {
  const net::ModelFile model = net::read_model_file(checkpoint);
  const std::filesystem::path file = vocabulary_file(checkpoint);
  net::require_weights(file.parent_path(), checkpoint);
  if (!std::filesystem::exists(file)) {
    throw Error(checkpoint, fmt::format("{} is missing", shard::kVocabularyFile),
                fmt::format("copy the vocabulary into this folder, or {}", remedy));
  }
  text = text::read_vocabulary_file(file.string());
  text::Vocabulary vocabulary = text::parse_vocabulary(text, file.string());
  shard::require_same_vocabulary(
      {file.string(), vocabulary.info()},
      {checkpoint, recorded_or_size(model.vocabulary, model.network.vocab_size)},
      "replace it by the vocabulary of the training data");
  return vocabulary;
}

Json vocabulary_record(const text::Vocabulary* vocabulary, const std::string& text,
                       const std::string& missing) {
  const text::AddedBlanks blanks =
      vocabulary != nullptr ? vocabulary->added_blanks() : text::AddedBlanks{};
  const bool has_model =
      vocabulary != nullptr && vocabulary->type() == text::TokenType::kSentencePiece;
  const text::DecodedTokens tokens =
      has_model ? vocabulary->decoded_tokens() : text::DecodedTokens{};
  Json texts = Json::array();
  for (text::TokenId id = 0; has_model && id < vocabulary->size(); ++id) {
    // Control pieces have no text, and not all pieces that are spelled like bytes are bytes.
    const bool is_byte = vocabulary->model().is_byte(id);
    const bool seems_byte = parse_byte_token(vocabulary->token(id)).has_value();
    const bool differs = vocabulary->model().is_control(id) || (seems_byte && !is_byte);
    if (differs && !vocabulary->is_special(id)) texts.push_back({id, tokens.texts[id]});
  }
  return {{"vocabulary",
           vocabulary != nullptr ? shard::vocabulary_info_to_json(vocabulary->info()) : Json()},
          {"text", text},
          {"added_blanks",
           {{"leading", to_text(blanks.leading)},
            {"after_feed", blanks.after_feed},
            {"after_eos", blanks.after_eos}}},
          {"line_style",
           to_text(vocabulary != nullptr ? vocabulary->line_style() : text::LineStyle::kPlain)},
          {"texts", std::move(texts)},
          {"missing", missing}};
}
