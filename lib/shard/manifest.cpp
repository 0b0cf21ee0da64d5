// Reads, checks, writes and summarizes manifests, and records how their data was made.

#include "shard/manifest.h"

#include <set>

#include "base/bytes.h"
#include "base/file.h"
#include "base/log.h"
#include "base/provenance.h"
#include "shard/token_stream.h"

namespace ql::shard {

constexpr std::int64_t kLargestVocabulary = std::int64_t{1} << 32;

static std::optional<TokenId> optional_id(const JsonObject& json, const std::string& key,
                                          std::int64_t size) {
  if (!json.has(key)) return std::nullopt;
  return static_cast<TokenId>(json.integer(key, 0, size - 1));
}

static std::int64_t checked_sum(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) {
    throw Error("", "a sum of the values in \"counts\" exceeds 2^63 - 1");
  }
  return sum;
}

bool VocabularyInfo::operator==(const VocabularyInfo& other) const {
  return size == other.size && hash == other.hash && type == other.type && eos == other.eos &&
         unk == other.unk;
}

std::string describe(const VocabularyInfo& vocabulary) {
  std::string text = fmt::format("{} entries", with_thousands(vocabulary.size));
  if (!vocabulary.type.empty()) text += ", " + vocabulary.type;
  if (vocabulary.eos) text += fmt::format(", eos {}", *vocabulary.eos);
  if (vocabulary.unk) text += fmt::format(", unk {}", *vocabulary.unk);
  if (!vocabulary.hash.empty()) text += ", hash " + vocabulary.hash;
  return text;
}

VocabularyInfo vocabulary_info_from_json(const JsonObject& json) {
  VocabularyInfo info;
  info.size = json.integer("size", 1, kLargestVocabulary);
  info.hash = json.text("hash");
  info.type = json.text("type");
  info.eos = optional_id(json, "eos", info.size);
  info.unk = optional_id(json, "unk", info.size);
  return info;
}

Json vocabulary_info_to_json(const VocabularyInfo& info) {
  Json json{{"size", info.size}, {"hash", info.hash}, {"type", info.type}};
  if (info.eos) json["eos"] = *info.eos;
  if (info.unk) json["unk"] = *info.unk;
  return json;
}

constexpr std::pair<const char*, std::int64_t TextCounts::*> kCounts[] = {
    {"bytes", &TextCounts::bytes},
    {"characters", &TextCounts::characters},
    {"words", &TextCounts::words},
    {"lines", &TextCounts::lines},
    {"unknown", &TextCounts::unknown}};

TextCounts text_counts_from_json(const JsonObject& json) {
  TextCounts counts;
  for (const auto& [key, count] : kCounts) counts.*count = json.integer(key, 0);
  return counts;
}

Json text_counts_to_json(const TextCounts& counts) {
  Json json;
  for (const auto& [key, count] : kCounts) json[key] = counts.*count;
  return json;
}

TextCounts operator+(const TextCounts& a, const TextCounts& b) {
  TextCounts sum;
  for (const auto& row : kCounts) sum.*row.second = checked_sum(a.*row.second, b.*row.second);
  return sum;
}

constexpr const char* kFormat = "ql-manifest";
constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kMostBytes = 4 * kMostTokens;
constexpr auto kMostVocabularyBytes = static_cast<std::int64_t>(kLargestVocabularyText);

constexpr std::string_view kKnownKeys[] = {"format", "version",         "dtype",      "vocabulary",
                                           "tokens", "documents",       "counts",     "data_hash",
                                           "shards", "document_starts", "provenance", "checksum"};

// The checksum covers the object's compact JSON text without the key "checksum". This function
// builds the text key by key: a copy of the object without that key would take as long as reading
// the manifest.
static std::string checksum_of(const Json& json) {
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

static std::string file_name(const JsonObject& json) {
  std::string file = json.text("file");
  if (file.empty() || !is_inside_path(file)) {
    throw FormatError(json.where(), fmt::format("file \"{}\" is not inside the folder", file),
                      "nothing outside a packed folder is read");
  }
  return file;
}

static Json vocabulary_to_json(const Manifest& manifest) {
  Json json = vocabulary_info_to_json(manifest.vocabulary);
  json["file"] = nullptr;
  if (manifest.vocabulary_file) {
    json["file"] = manifest.vocabulary_file->file;
    json["file_bytes"] = manifest.vocabulary_file->bytes;
    json["file_hash"] = manifest.vocabulary_file->hash;
  }
  return json;
}

static FileEntry entry_from_json(const JsonObject& json, bool is_shard) {
  FileEntry entry;
  entry.file = file_name(json);
  if (is_shard) entry.tokens = json.integer("tokens", 1, kMostTokens);
  entry.bytes = json.integer("bytes", is_shard ? 1 : 0);
  entry.bytes_compressed = json.integer("bytes_compressed", 1);
  entry.hash = json.text("hash");
  if (is_shard && json.has("seek_table_hash")) entry.seek_table_hash = json.text("seek_table_hash");
  return entry;
}

static Json entry_to_json(const FileEntry& entry, bool is_shard) {
  Json json;
  json["file"] = entry.file;
  if (is_shard) json["tokens"] = entry.tokens;
  json["bytes"] = entry.bytes;
  json["bytes_compressed"] = entry.bytes_compressed;
  json["hash"] = entry.hash;
  if (!entry.seek_table_hash.empty()) json["seek_table_hash"] = entry.seek_table_hash;
  return json;
}

static void read_shards(const JsonObject& object, Manifest& manifest) {
  const Json& list = object.at("shards");
  if (!list.is_array()) throw FormatError(object.where() + ": shards", "expected an array");
  std::set<std::string> files;
  std::int64_t tokens = 0, bytes_compressed = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("{}: shards[{}]", object.where(), i);
    const FileEntry shard = entry_from_json(JsonObject(list[i], where), true);
    if (const int bytes = manifest.vocabulary.bytes_per_id(); shard.bytes != shard.tokens * bytes) {
      throw FormatError(where, fmt::format("{} tokens of {} bytes each do not take {} bytes",
                                           shard.tokens, bytes, shard.bytes));
    }
    if (!files.insert(shard.file).second) {
      throw FormatError(where, fmt::format("file \"{}\" is listed twice", shard.file));
    }
    if (shard.tokens > kMostTokens - tokens ||
        shard.bytes_compressed > kMostBytes - bytes_compressed) {
      throw FormatError(where, fmt::format("the shards up to this one exceed {} tokens or {} bytes",
                                           kMostTokens, kMostBytes));
    }
    bytes_compressed += shard.bytes_compressed;
    tokens += shard.tokens;
    manifest.shards.push_back(shard);
  }
  if (tokens != manifest.tokens) {
    throw FormatError(object.where(),
                      fmt::format("the manifest states {} tokens, but its shards have {}",
                                  manifest.tokens, tokens));
  }
}

static void read_document_starts(const JsonObject& object, Manifest& manifest) {
  const JsonObject json = object.object("document_starts");
  const FileEntry entry = entry_from_json(json, false);
  const bool possible =
      manifest.documents <= manifest.tokens && (manifest.documents > 0) == (manifest.tokens > 0);
  // The division avoids an overflow: eight times the largest number of documents exceeds INT64_MAX.
  if (!possible || entry.bytes % 8 != 0 || entry.bytes / 8 != manifest.documents) {
    fail_as_damaged(json.where(),
                    fmt::format("document starts of {} bytes contradict {} documents in {} tokens",
                                entry.bytes, manifest.documents, manifest.tokens));
  }
  manifest.document_starts = entry;
}

static void read_vocabulary(const JsonObject& object, Manifest& manifest) {
  const JsonObject json = object.object("vocabulary");
  manifest.vocabulary = vocabulary_info_from_json(json);
  if (json.has("file") && !json.at("file").is_null()) {
    manifest.vocabulary_file =
        VocabularyFileEntry{file_name(json), json.integer("file_bytes", 0, kMostVocabularyBytes),
                            json.text("file_hash")};
  }
}

static void keep_unknown_keys(const Json& json, const std::string& where, Manifest& manifest) {
  for (const auto& [key, value] : json.items()) {
    if (std::count(std::begin(kKnownKeys), std::end(kKnownKeys), key) != 0) continue;
    if (manifest.unknown.size() == kMostUnknownKeys) {
      throw FormatError(where,
                        fmt::format("the manifest has more than {} unknown keys", kMostUnknownKeys),
                        "delete some of these keys, and the key \"checksum\"");
    }
    manifest.unknown[key] = value;
  }
}

// Returns the checksum that the file states, or "" if it states none.
static std::string check_checksum(const Json& json, const JsonObject& object) {
  if (!object.has("checksum")) {
    log_warning("{}: the manifest has no checksum: it is taken as edited by hand", object.where());
    return "";
  }
  std::string found = object.text("checksum");
  if (found != checksum_of(json)) {
    throw FormatError(object.where(), "checksum mismatch",
                      "the file is damaged: fetch or pack the folder again; if you edited the "
                      "file, delete the key \"checksum\"");
  }
  return found;
}

Json manifest_to_json(const Manifest& manifest) {
  Json shards = Json::array();
  for (const FileEntry& shard : manifest.shards) shards.push_back(entry_to_json(shard, true));
  Json json{{"format", kFormat},
            {"version", kVersion},
            {"dtype", manifest.vocabulary.dtype()},
            {"vocabulary", vocabulary_to_json(manifest)},
            {"tokens", manifest.tokens},
            {"documents", manifest.documents}};
  if (manifest.counts) json["counts"] = text_counts_to_json(*manifest.counts);
  json["data_hash"] = manifest.data_hash;
  json["shards"] = std::move(shards);
  json["document_starts"] = entry_to_json(manifest.document_starts, false);
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
                      fmt::format("dtype is {}, expected {} for a vocabulary of {} entries", dtype,
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

// A generation of a history is the provenance of one run of a program. The history of an input
// keeps at most kMostGenerations. Together with the provenance of this run, it takes at most
// kMostLineageBytes. A generation adds at most three levels of nesting, so eight stay far below the
// 64 levels that base/json.h reads.
constexpr int kMostGenerations = 8;
constexpr std::size_t kMostLineageBytes = std::size_t{256} << 10;

// A history with more levels of nesting is shortened. Readers allow 64 levels, and the stream
// header or manifest around the history has a few levels itself.
constexpr int kDeepest = 48;

// Returns the number of nested levels of objects and lists.
static int depth_of(const Json& json) {
  int below = 0;
  if (!json.is_structured()) return below;
  for (const Json& item : json) below = std::max(below, depth_of(item));
  return below + 1;
}

// Returns a copy with only the last `generations` generations of provenance.
static Json trimmed(const Json& input, int generations) {
  if (input.is_array()) {
    Json list = Json::array();
    for (const Json& item : input) list.push_back(trimmed(item, generations));
    return list;
  }
  if (!input.is_object()) return input;
  Json::object_t kept;
  for (const auto& [key, value] : input.items()) {
    const int below = key == "input" ? generations - 1 : generations;
    const bool counted = key == "input" || key == "provenance";
    if (counted && below <= 0) continue;
    // The key is known to be new. A search for it would take quadratic time in long objects.
    kept.Container::emplace_back(key, counted ? trimmed(value, below) : value);
  }
  return kept;
}

Json lineage(const Json& configuration, const Json& input) {
  Json made = provenance(configuration);
  for (int generations = kMostGenerations; generations >= 0; --generations) {
    made["input"] = trimmed(input, generations);
    if (made.dump().size() <= kMostLineageBytes && depth_of(made) <= kDeepest) return made;
  }
  made.erase("input");
  return made;
}

static FileEntry all_shards(const Manifest& manifest) {
  FileEntry sum;
  for (const FileEntry& shard : manifest.shards) {
    sum.bytes += shard.bytes;
    sum.bytes_compressed += shard.bytes_compressed;
  }
  return sum;
}

static std::string describe(const TextCounts& counts, std::int64_t tokens) {
  const double share =
      tokens > 0 ? 100.0 * static_cast<double>(counts.unknown) / static_cast<double>(tokens) : 0.0;
  return fmt::format("{} bytes, {} characters, {} words, {} lines; {} tokens unknown ({:.2f}%)",
                     with_thousands(counts.bytes), with_thousands(counts.characters),
                     with_thousands(counts.words), with_thousands(counts.lines),
                     with_thousands(counts.unknown), share);
}

static std::string describe_shards(const Manifest& manifest) {
  const FileEntry all = all_shards(manifest);
  return fmt::format(
      "{}; {} of {} ids in {}", with_thousands(static_cast<std::int64_t>(manifest.shards.size())),
      human_bytes(all.bytes), manifest.vocabulary.dtype(), human_bytes(all.bytes_compressed));
}

// Appends the command lines that made the data, the last one first.
static void append_commands(std::string& text, const Json& provenance, const char* label) {
  if (!provenance.is_object()) return;
  const auto command = provenance.find("command");
  if (command != provenance.end() && command->is_string()) {
    text += fmt::format("  {:<12}{}\n", label, printable(command->get<std::string>()));
  }
  const auto input = provenance.find("input");
  if (input == provenance.end()) return;
  if (input->is_object()) append_commands(text, *input, "from");
  if (!input->is_array()) return;
  for (const Json& item : *input) {
    if (item.is_object() && item.contains("provenance")) {
      append_commands(text, item["provenance"], "from");
    }
  }
}

std::string summary_text(const std::string& name, const Manifest& manifest) {
  std::string text = printable(name) + "\n";
  const auto line = [&](const char* label, const std::string& value) {
    text += fmt::format("  {:<12}{}\n", label, printable(value));
  };
  line("tokens", with_thousands(manifest.tokens));
  line("documents", with_thousands(manifest.documents));
  line("vocabulary", describe(manifest.vocabulary));
  if (manifest.counts) line("text", describe(*manifest.counts, manifest.tokens));
  line("shards", describe_shards(manifest));
  line("data hash", manifest.data_hash);
  append_commands(text, manifest.provenance, "made by");
  return text;
}

Json summary_object(const std::string& name, const Manifest& manifest) {
  const FileEntry all = all_shards(manifest);
  Json json{{"name", name},
            {"tokens", manifest.tokens},
            {"documents", manifest.documents},
            {"dtype", manifest.vocabulary.dtype()},
            {"vocabulary", vocabulary_info_to_json(manifest.vocabulary)},
            {"shards", manifest.shards.size()},
            {"bytes", all.bytes},
            {"bytes_compressed", all.bytes_compressed}};
  if (manifest.counts) json["counts"] = text_counts_to_json(*manifest.counts);
  json["data_hash"] = manifest.data_hash;
  json["provenance"] = manifest.provenance;
  return json;
}

Json summary_row(const std::string& name, const Manifest& manifest) {
  const Json all = summary_object(name, manifest);
  const Json& vocabulary = all["vocabulary"];
  const Json counts = all.value("counts", Json::object());
  const auto known = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  return {{"name", name},
          {"tokens", all["tokens"]},
          {"documents", all["documents"]},
          {"dtype", all["dtype"]},
          {"vocabulary_size", vocabulary["size"]},
          {"vocabulary_hash", known(manifest.vocabulary.hash)},
          {"vocabulary_type", known(manifest.vocabulary.type)},
          {"shards", all["shards"]},
          {"bytes", all["bytes"]},
          {"bytes_compressed", all["bytes_compressed"]},
          {"text_bytes", counts.value("bytes", Json())},
          {"characters", counts.value("characters", Json())},
          {"words", counts.value("words", Json())},
          {"lines", counts.value("lines", Json())},
          {"unknown", counts.value("unknown", Json())},
          {"data_hash", all["data_hash"]}};
}

void fail_as_damaged(const std::string& where, const std::string& problem) {
  throw FormatError(where, problem, "the file is damaged: fetch or pack the folder again");
}

void check_size(const std::string& where, std::int64_t size, std::int64_t stated) {
  if (size == stated) return;
  fail_as_damaged(where,
                  fmt::format("the file has {} bytes, but the manifest states {}", size, stated));
}

}  // namespace ql::shard
