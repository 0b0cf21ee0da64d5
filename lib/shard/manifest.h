// Reads and writes manifest.json: the content of a packed folder, its origin and its summary.
// ql-manifest(5) describes every key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace ql::shard {

// These facts go with token ids from qltok to qleval: the vocabulary that made them, and the size
// of the text that they stand for.

using TokenId = std::uint32_t;

// This is the name of the vocabulary's file in packed data and checkpoints. It is a part of their
// formats.
constexpr const char* kVocabularyFile = "vocabulary.json";

// Identifies the vocabulary of a stream. Tools compare hashes before they mix data.
struct VocabularyInfo {
  std::int64_t size = 0;  // ids are 0 .. size-1
  std::string hash;       // base/bytes.h content_hash of the vocabulary's content; ""
                          // for ids without a vocabulary
  std::string type;       // word, char, byte, sentencepiece, piece; "" likewise
  std::optional<TokenId> eos, unk;
  // Return the bytes of an id in streams and shards (2 for at most 65,536 entries, otherwise 4),
  // and the name of this type.
  int bytes_per_id() const { return size <= 65536 ? 2 : 4; }
  const char* dtype() const { return bytes_per_id() == 2 ? "u16" : "u32"; }
  bool operator==(const VocabularyInfo& other) const;
  bool operator!=(const VocabularyInfo& other) const { return !(*this == other); }
};
// Returns "33,278 entries, word, eos 0, unk 1, hash 0123...", without facts that are unknown.
std::string describe(const VocabularyInfo& vocabulary);
VocabularyInfo vocabulary_info_from_json(const JsonObject& json);
Json vocabulary_info_to_json(const VocabularyInfo& info);

// Counts of the original text of the tokens: the denominators of word- and byte-level perplexity.
// Absent if unknown (imported ids, a range of a stream).
struct TextCounts {
  std::int64_t bytes = 0;       // of the input, line ends included
  std::int64_t characters = 0;  // Unicode code points, line ends included
  std::int64_t words = 0;       // whitespace-separated
  std::int64_t lines = 0;
  std::int64_t unknown = 0;  // tokens that were outside the vocabulary and became <unk>
};
TextCounts text_counts_from_json(const JsonObject& json);
Json text_counts_to_json(const TextCounts& counts);
// Throws Error without a place when a sum exceeds 64 bits.
TextCounts operator+(const TextCounts& a, const TextCounts& b);

// These are the structs of manifest.json. ql-manifest(5) describes every key.

// No folder may hold more tokens, so that sums of bytes fit into 64 bits.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 60;
constexpr std::int64_t kLargestManifest = std::int64_t{256} << 20;  // in bytes
// This is far more than anybody adds. The limit is needed because keys are searched for one by one.
constexpr std::size_t kMostUnknownKeys = 1000;

// Describes a shard, or the file of the document starts.
struct FileEntry {
  std::string file;
  std::int64_t bytes = 0;             // of the ids, or 8 for each document
  std::int64_t bytes_compressed = 0;  // of the file
  std::string hash;                   // of the file
  std::int64_t tokens = 0;            // of a shard, which has at least one
};

struct VocabularyFileEntry {
  std::string file;
  std::int64_t bytes = 0;
  std::string hash;
};

struct Manifest {
  VocabularyInfo vocabulary;
  std::optional<VocabularyFileEntry> vocabulary_file;
  std::int64_t tokens = 0;
  std::int64_t documents = 0;
  std::optional<TextCounts> counts;
  std::string data_hash;  // of all ids and document starts
  std::vector<FileEntry> shards;
  FileEntry document_starts;
  Json provenance = Json::object();
  Json unknown = Json::object();  // keys of other versions' making, kept when rewritten
  std::string checksum;           // "" when deleted by hand
};

// Returns the manifest with a new checksum.
Json manifest_to_json(const Manifest& manifest);

// Throws FormatError for an unknown version, sums that do not agree, a wrong checksum, and file
// names that lead out of the folder. A missing checksum is a warning. `where` names the manifest.
Manifest manifest_from_json(const Json& json, const std::string& where);

// These make the provenance of data that was made from other data.

// Returns base/provenance.h's provenance() of this run with the provenance of the data that was
// read as "input": an object, or a list of objects each with a "provenance". Old generations are
// left out when the history grows long or deep, so that data may be joined and packed again without
// limit.
Json lineage(const Json& configuration, const Json& input);

// These summarize a packed folder, for people and for scripts.

// Returns some indented lines.
std::string summary_text(const std::string& name, const Manifest& manifest);

// Returns everything in the manifest except the single files.
Json summary_object(const std::string& name, const Manifest& manifest);

// Returns the object's values except the provenance as a row of base/rows.h; unknown ones are null.
Json summary_row(const std::string& name, const Manifest& manifest);

// Messages about a damaged file of a packed folder end with this advice.

inline constexpr const char* kDamagedFileRemedy =
    "the file is damaged: fetch or pack the folder again";

}  // namespace ql::shard
