// manifest.json: what is in a packed folder. ql-manifest(5) describes every key.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "shard/token_info.h"

namespace ql::shard {

// No folder may hold more, so that sums of bytes fit into 64 bits.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 60;
constexpr std::int64_t kLargestManifest = std::int64_t{256} << 20;  // in bytes
// Far more than anybody adds; keys are looked for one after the other.
constexpr std::size_t kMostUnknownKeys = 1000;

struct ShardEntry {
  std::string file;
  std::int64_t tokens = 0;
  std::int64_t bytes = 0;             // of the ids
  std::int64_t bytes_compressed = 0;  // of the file
  std::string hash;                   // of the file
};

struct DocumentStartsEntry {
  std::string file;
  std::int64_t bytes = 0;             // 8 for each document
  std::int64_t bytes_compressed = 0;  // of the file
  std::string hash;                   // of the file
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
  std::vector<ShardEntry> shards;
  DocumentStartsEntry document_starts;
  Json provenance = Json::object();
  Json unknown = Json::object();  // keys of other versions' making, kept when rewritten
  std::string checksum;           // "" when deleted by hand
};

// The result has a fresh checksum.
Json manifest_to_json(const Manifest& manifest);

// Throws FormatError for an unknown version, sums that do not agree, a wrong checksum, and file
// names that leave the folder. A missing checksum is a warning. `where` names the manifest.
Manifest manifest_from_json(const Json& json, const std::string& where);

// A packed folder on the disk.
struct PackedFolder {
  std::filesystem::path folder, manifest;
  std::string name;  // the folder as the user named it: for messages
};

// True when the folder is a checkpoint and has no packed data.
bool is_checkpoint(const std::filesystem::path& path);

// Accepts the folder or its manifest. Throws Error when there is none.
PackedFolder find_packed_folder(const std::filesystem::path& path);
std::string read_manifest_text(const PackedFolder& place);
Manifest read_manifest(const PackedFolder& place);
// The vocabulary file's text, checked against the manifest; "" without one.
std::string read_vocabulary_text(const PackedFolder& place, const Manifest& manifest);

// Returns the path of a file that the manifest names. Throws FormatError when the name leaves the
// folder (".." or an absolute path), and for a symbolic link to nothing. Other links are followed
// wherever they lead: caches of downloads consist of them, and the manifest's hashes guard the
// content.
std::filesystem::path path_inside(const PackedFolder& place, const std::string& file);

}  // namespace ql::shard
