// Trains SentencePiece models.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ql::text {

struct SentencePieceTraining {
  std::int64_t max_size = 0;
  bool byte_pieces = true;  // if false, characters outside the vocabulary become <unk>
  // The most frequent characters get pieces of their own until they make up this share of the text
  // (above 0, at most 1). Without a value the share is kUsualCoverage, or less if max_size has no
  // room for that share.
  std::optional<double> coverage{};
};
constexpr double kUsualCoverage = 0.9995;

struct TrainedSentencePiece {
  std::string model;            // serialized
  std::int64_t characters = 0;  // distinct characters of the text
  std::int64_t covered = 0;     // characters with pieces of their own
  bool lowered = false;         // true if max_size is too small for kUsualCoverage
};

// Trains a unigram model of at most `max_size` pieces on `lines`. <eos> is piece 0, <unk> piece 1.
// The model keeps text unchanged: no normalization, no added or removed spaces. The same arguments
// give the same model. Throws ConfigError when the size does not fit the text, and Error when there
// is no text.
TrainedSentencePiece train_sentencepiece(const std::vector<std::string_view>& lines,
                                         const SentencePieceTraining& training);

}  // namespace ql::text
