// These facts travel with token ids from qltok to qleval: which vocabulary made them, and how much
// text they stand for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"

namespace ql::shard {

using TokenId = std::uint32_t;

// The vocabulary's file in packed data and checkpoints. The name is in their formats.
constexpr const char* kVocabularyFile = "vocabulary.json";

// Identity of the vocabulary behind a stream. Tools compare hashes before they mix data.
struct VocabularyInfo {
  std::int64_t size = 0;  // ids are 0 .. size-1
  std::string hash;       // base/hash.h content_hash of the vocabulary's content; ""
                          // for ids without a vocabulary
  std::string type;       // word, char, byte, sentencepiece, piece; "" likewise
  std::optional<TokenId> eos, unk;
  // Bytes of an id in streams and shards: 2 for at most 65,536 entries, else 4; and their type's
  // name.
  int bytes_per_id() const { return size <= 65536 ? 2 : 4; }
  const char* dtype() const { return bytes_per_id() == 2 ? "u16" : "u32"; }
  bool operator==(const VocabularyInfo& other) const;
  bool operator!=(const VocabularyInfo& other) const { return !(*this == other); }
};
// "33,278 entries, word, eos 0, unk 1, hash 0123...", without what is not known.
std::string describe(const VocabularyInfo& vocabulary);
VocabularyInfo vocabulary_info_from_json(const JsonObject& json);
Json vocabulary_info_to_json(const VocabularyInfo& info);

// Counts of the original text behind the tokens: the denominators of word- and byte-level
// perplexity. Absent where unknown (imported ids, a range of a stream).
struct TextCounts {
  std::int64_t bytes = 0;       // of the input, line ends included
  std::int64_t characters = 0;  // Unicode code points, line ends included
  std::int64_t words = 0;       // whitespace-separated
  std::int64_t lines = 0;
  std::int64_t unknown = 0;  // tokens that were outside the vocabulary and became <unk>
};
TextCounts text_counts_from_json(const JsonObject& json);
Json text_counts_to_json(const TextCounts& counts);
// Throws Error, which names no place, when a sum is more than 64 bits hold.
TextCounts operator+(const TextCounts& a, const TextCounts& b);

}  // namespace ql::shard
