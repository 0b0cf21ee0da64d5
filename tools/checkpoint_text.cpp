// Reads the vocabulary of a checkpoint, and compares it with that of the model.

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
