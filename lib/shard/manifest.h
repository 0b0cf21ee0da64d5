// Reads and writes manifest.json: the content of a packed folder, its origin and its summary.
// ql-manifest(5) describes every key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace ql::shard {

// Two facts accompany token ids from qltok to qleval: the vocabulary of the ids, and counts of the
// text that the ids encode.

using TokenId = std::uint32_t;

// The vocabulary's file has this name in packed data and checkpoints. The name is a part of both
// formats.
constexpr const char* kVocabularyFile = "vocabulary.json";

// Identifies the vocabulary of token ids. Tools compare vocabularies before they combine data.
struct VocabularyInfo {
  std::int64_t size = 0;  // ids are 0 .. size-1
  // `hash` is content_hash() (base/bytes.h) of the vocabulary's content. `type` is word, char,
  // byte, sentencepiece or piece. If only the vocabulary's size is known, `hash` and `type` are "".
  std::string hash;
  std::string type;
  std::optional<TokenId> eos, unk;
  // bytes_per_id() returns the number of bytes per id in streams and shards: 2 for at most 65,536
  // entries, otherwise 4. dtype() returns the name of the integer type of this size.
  int bytes_per_id() const { return size <= 65536 ? 2 : 4; }
  const char* dtype() const { return bytes_per_id() == 2 ? "u16" : "u32"; }
  bool operator==(const VocabularyInfo& other) const;
  bool operator!=(const VocabularyInfo& other) const { return !(*this == other); }
};
// Returns "33,278 entries, word, eos 0, unk 1, hash 0123...", and leaves out unknown facts.
std::string describe(const VocabularyInfo& vocabulary);
VocabularyInfo vocabulary_info_from_json(const JsonObject& json);
Json vocabulary_info_to_json(const VocabularyInfo& info);

// Holds counts of the text that the tokens encode. They are the denominators of word- and
// byte-level perplexity. Counts are absent if unknown (imported ids, a range of a stream).
struct TextCounts {
  std::int64_t bytes = 0;       // of the input, line ends included
  std::int64_t characters = 0;  // Unicode code points, line ends included
  std::int64_t words = 0;       // whitespace-separated
  std::int64_t lines = 0;
  std::int64_t unknown = 0;  // tokens that were outside the vocabulary and became <unk>
};
TextCounts text_counts_from_json(const JsonObject& json);
Json text_counts_to_json(const TextCounts& counts);
// Throws Error when a sum exceeds 64 bits. The error names no file; the caller adds the name.
TextCounts operator+(const TextCounts& a, const TextCounts& b);

// These are the structs of manifest.json. ql-manifest(5) describes every key.

// No folder may hold more tokens than this, so that sums of bytes fit into 64 bits.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 60;
constexpr std::int64_t kLargestManifest = std::int64_t{256} << 20;  // in bytes
// A manifest may have at most this many unknown keys. The limit exists because a key is found by a
// linear search.
constexpr std::size_t kMostUnknownKeys = 1000;

// Describes a shard, or the file of the document starts.
struct FileEntry {
  std::string file;
  std::int64_t bytes = 0;             // size of the decompressed content
  std::int64_t bytes_compressed = 0;  // size of the file
  std::string hash;                   // of the file
  std::int64_t tokens = 0;            // in a shard, at least 1; 0 for document starts
  // The hash of a shard's seek table, which has a checksum of every frame. So a shard of other data
  // is noticed when it is opened. "" for document starts, and in manifests without this key.
  std::string seek_table_hash = {};
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
  std::string data_hash;  // covers all ids and document starts
  std::vector<FileEntry> shards;
  FileEntry document_starts;
  Json provenance = Json::object();
  Json unknown = Json::object();  // keys that this version does not know; merging keeps them
  std::string checksum;           // "" if the file has none
};

// Returns the manifest with a new checksum.
Json manifest_to_json(const Manifest& manifest);

// Throws FormatError for an unknown version, a wrong checksum, file names that lead out of the
// folder, and numbers of tokens, documents or bytes that contradict each other. Logs a warning if
// the checksum is missing. `where` names the manifest.
Manifest manifest_from_json(const Json& json, const std::string& where);

// lineage() makes the provenance of data that was made from other data.

// Returns the provenance() of this run (base/provenance.h) with `input` added under the key
// "input". `input` is the provenance of the data that was read, or a list of objects that each have
// a "provenance". When this history grows long or deep, its oldest parts are left out, so that data
// may be joined and packed again without limit.
Json lineage(const Json& configuration, const Json& input);

// These functions summarize a packed folder, in human-readable form or for scripts.

// Returns a human-readable text: the name, then indented lines.
std::string summary_text(const std::string& name, const Manifest& manifest);

// Returns the name and the manifest's facts, without the entries of single files, the unknown keys
// and the checksum.
Json summary_object(const std::string& name, const Manifest& manifest);

// Returns the values of summary_object(), without the provenance, as a row of base/rows.h; unknown
// values are null.
Json summary_row(const std::string& name, const Manifest& manifest);

// Throws FormatError about a damaged file of a packed folder.
[[noreturn]] void fail_as_damaged(const std::string& where, const std::string& problem);
// Calls fail_as_damaged() unless a file has the size that the manifest states.
void check_size(const std::string& where, std::int64_t size, std::int64_t stated);

}  // namespace ql::shard
