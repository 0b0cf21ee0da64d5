#include "shard/manifest.h"

#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "shard/token_stream_format.h"

namespace ql::shard {

namespace {

constexpr const char* kFormat = "ql-manifest";
constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kMostBytes = 4 * kMostTokens;
constexpr auto kMostVocabularyBytes = static_cast<std::int64_t>(kLargestVocabularyText);

const std::set<std::string>& known_keys() {
  static const std::set<std::string> keys{"format", "version",         "dtype",      "vocabulary",
                                          "tokens", "documents",       "counts",     "data_hash",
                                          "shards", "document_starts", "provenance", "checksum"};
  return keys;
}

// The checksum covers the object's compact text without the key "checksum". The text is put
// together here, because a copy of the object would take as long as reading the manifest.
std::string checksum_of(const Json& json) {
  std::string text = "{";
  for (const auto& [key, value] : json.items()) {
    if (key == "checksum") continue;
    if (text.size() > 1) text += ',';
    text += Json(key).dump();
    text += ':';
    text += value.dump();
  }
  return content_hash(text + "}");
}

std::string file_name(const JsonObject& json) {
  std::string file = json.text("file");
  if (file.empty() || !is_inside_path(file)) {
    throw FormatError(json.where(), fmt::format("file \"{}\" is not inside the folder", file),
                      "nothing outside a packed folder is read");
  }
  return file;
}

Json vocabulary_to_json(const Manifest& manifest) {
  Json json = vocabulary_info_to_json(manifest.vocabulary);
  json["file"] = nullptr;
  if (manifest.vocabulary_file) {
    json["file"] = manifest.vocabulary_file->file;
    json["file_bytes"] = manifest.vocabulary_file->bytes;
    json["file_hash"] = manifest.vocabulary_file->hash;
  }
  return json;
}

ShardEntry shard_from_json(const JsonObject& json, int bytes_per_id) {
  ShardEntry shard;
  shard.file = file_name(json);
  shard.tokens = json.integer("tokens", 1, kMostTokens);
  shard.bytes = json.integer("bytes", 1);
  shard.bytes_compressed = json.integer("bytes_compressed", 1);
  shard.hash = json.text("hash");
  if (shard.bytes != shard.tokens * bytes_per_id) {
    throw FormatError(json.where(), fmt::format("{} tokens of {} bytes in {} bytes", shard.tokens,
                                                bytes_per_id, shard.bytes));
  }
  return shard;
}

void read_shards(const JsonObject& object, Manifest& manifest) {
  const Json& list = object.at("shards");
  if (!list.is_array()) throw FormatError(object.where() + ": shards", "expected a list");
  std::set<std::string> files;
  std::int64_t tokens = 0, bytes_compressed = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("{}: shards[{}]", object.where(), i);
    const ShardEntry shard =
        shard_from_json(JsonObject(list[i], where), manifest.vocabulary.bytes_per_id());
    if (!files.insert(shard.file).second) {
      throw FormatError(where, fmt::format("file \"{}\" is listed twice", shard.file));
    }
    if (shard.tokens > kMostTokens - tokens ||
        shard.bytes_compressed > kMostBytes - bytes_compressed) {
      throw FormatError(where, "more tokens than there can be");
    }
    bytes_compressed += shard.bytes_compressed;
    tokens += shard.tokens;
    manifest.shards.push_back(shard);
  }
  if (tokens != manifest.tokens) {
    throw FormatError(object.where(),
                      fmt::format("{} tokens, but its shards have {}", manifest.tokens, tokens));
  }
}

void read_document_starts(const JsonObject& object, Manifest& manifest) {
  const JsonObject json = object.object("document_starts");
  DocumentStartsEntry& entry = manifest.document_starts;
  entry.file = file_name(json);
  entry.bytes = json.integer("bytes", 0);
  entry.bytes_compressed = json.integer("bytes_compressed", 1);
  entry.hash = json.text("hash");
  const bool possible =
      manifest.documents <= manifest.tokens && (manifest.documents > 0) == (manifest.tokens > 0);
  // Divided, because eight times the most documents is more than 64 bits hold.
  if (!possible || entry.bytes % 8 != 0 || entry.bytes / 8 != manifest.documents) {
    throw FormatError(json.where(), fmt::format("{} bytes for {} documents of {} tokens",
                                                entry.bytes, manifest.documents, manifest.tokens));
  }
}

void read_vocabulary(const JsonObject& object, Manifest& manifest) {
  const JsonObject json = object.object("vocabulary");
  manifest.vocabulary = vocabulary_info_from_json(json);
  if (json.has("file") && !json.at("file").is_null()) {
    manifest.vocabulary_file =
        VocabularyFileEntry{file_name(json), json.integer("file_bytes", 0, kMostVocabularyBytes),
                            json.text("file_hash")};
  }
}

void keep_unknown_keys(const Json& json, const std::string& where, Manifest& manifest) {
  for (const auto& [key, value] : json.items()) {
    if (known_keys().count(key) != 0) continue;
    if (manifest.unknown.size() == kMostUnknownKeys) {
      throw FormatError(where, fmt::format("more than {} unknown keys", kMostUnknownKeys));
    }
    manifest.unknown[key] = value;
  }
}

// The checksum as found, "" without one.
std::string check_checksum(const Json& json, const JsonObject& object) {
  if (!object.has("checksum")) {
    log_warning("{}: no checksum: taken as edited by hand", object.where());
    return "";
  }
  std::string found = object.text("checksum");
  if (found != checksum_of(json)) {
    throw FormatError(object.where(), "checksum mismatch",
                      "the file is damaged: fetch or pack it again; if you edited it, delete the "
                      "key \"checksum\"");
  }
  return found;
}

}  // namespace

Json manifest_to_json(const Manifest& manifest) {
  Json shards = Json::array();
  for (const ShardEntry& shard : manifest.shards) {
    shards.push_back(Json{{"file", shard.file},
                          {"tokens", shard.tokens},
                          {"bytes", shard.bytes},
                          {"bytes_compressed", shard.bytes_compressed},
                          {"hash", shard.hash}});
  }
  Json json{{"format", kFormat},
            {"version", kVersion},
            {"dtype", manifest.vocabulary.dtype()},
            {"vocabulary", vocabulary_to_json(manifest)},
            {"tokens", manifest.tokens},
            {"documents", manifest.documents}};
  if (manifest.counts) json["counts"] = text_counts_to_json(*manifest.counts);
  json["data_hash"] = manifest.data_hash;
  json["shards"] = std::move(shards);
  json["document_starts"] = Json{{"file", manifest.document_starts.file},
                                 {"bytes", manifest.document_starts.bytes},
                                 {"bytes_compressed", manifest.document_starts.bytes_compressed},
                                 {"hash", manifest.document_starts.hash}};
  for (const auto& [key, value] : manifest.unknown.items()) json[key] = value;
  json["provenance"] = manifest.provenance;
  json["checksum"] = checksum_of(json);
  return json;
}

Manifest manifest_from_json(const Json& json, const std::string& where) {
  const JsonObject object(json, where);
  object.check_format(kFormat, kVersion);
  Manifest manifest;
  manifest.checksum = check_checksum(json, object);
  read_vocabulary(object, manifest);
  const std::string dtype = object.text("dtype");
  if (dtype != manifest.vocabulary.dtype()) {
    throw FormatError(where,
                      fmt::format("dtype {}, expected {} for a vocabulary of {} entries", dtype,
                                  manifest.vocabulary.dtype(), manifest.vocabulary.size));
  }
  manifest.tokens = object.integer("tokens", 0, kMostTokens);
  manifest.documents = object.integer("documents", 0, kMostTokens);
  if (object.has("counts")) manifest.counts = text_counts_from_json(object.object("counts"));
  manifest.data_hash = object.text("data_hash");
  read_shards(object, manifest);
  read_document_starts(object, manifest);
  manifest.provenance = object.at("provenance");
  keep_unknown_keys(json, where, manifest);
  return manifest;
}

}  // namespace ql::shard
