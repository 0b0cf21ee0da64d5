#include "shard/info.h"

#include <fmt/format.h>

#include <vector>

#include "base/number.h"
#include "base/printable.h"

namespace ql::shard {

namespace {

struct Sizes {
  std::int64_t bytes = 0, bytes_compressed = 0;
};

Sizes total_sizes(const Manifest& manifest) {
  Sizes sizes;
  for (const ShardEntry& shard : manifest.shards) {
    sizes.bytes += shard.bytes;
    sizes.bytes_compressed += shard.bytes_compressed;
  }
  return sizes;
}

const char* dtype(const Manifest& manifest) { return manifest.bytes_per_id() == 2 ? "u16" : "u32"; }

std::string describe(const VocabularyInfo& vocabulary) {
  std::string text = fmt::format("{} entries", with_thousands(vocabulary.size));
  if (!vocabulary.type.empty()) text += ", " + vocabulary.type;
  if (vocabulary.eos) text += fmt::format(", eos {}", *vocabulary.eos);
  if (vocabulary.unk) text += fmt::format(", unk {}", *vocabulary.unk);
  if (!vocabulary.hash.empty()) text += ", hash " + vocabulary.hash;
  return text;
}

std::string describe(const TextCounts& counts, std::int64_t tokens) {
  const double share =
      tokens > 0 ? 100.0 * static_cast<double>(counts.unknown) / static_cast<double>(tokens) : 0.0;
  return fmt::format("{} bytes, {} characters, {} words, {} lines; {} tokens unknown ({:.2f}%)",
                     with_thousands(counts.bytes), with_thousands(counts.characters),
                     with_thousands(counts.words), with_thousands(counts.lines),
                     with_thousands(counts.unknown), share);
}

std::string describe_shards(const Manifest& manifest) {
  const Sizes sizes = total_sizes(manifest);
  return fmt::format(
      "{}; {} of {} ids in {}", with_thousands(static_cast<std::int64_t>(manifest.shards.size())),
      human_bytes(sizes.bytes), dtype(manifest), human_bytes(sizes.bytes_compressed));
}

// The command lines that made the data, the last first.
void append_commands(std::string& text, const Json& provenance, const char* label) {
  if (!provenance.is_object()) return;
  const auto command = provenance.find("command");
  if (command != provenance.end() && command->is_string())
    text += fmt::format("  {:<12}{}\n", label, printable(command->get<std::string>()));
  const auto input = provenance.find("input");
  if (input == provenance.end()) return;
  if (input->is_object()) append_commands(text, *input, "from");
  if (!input->is_array()) return;
  for (const Json& item : *input) {
    if (item.is_object() && item.contains("provenance"))
      append_commands(text, item["provenance"], "from");
  }
}

}  // namespace

std::string info_text(const std::string& name, const Manifest& manifest) {
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

Json info_row(const std::string& name, const Manifest& manifest) {
  const auto known = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  const Sizes sizes = total_sizes(manifest);
  Json row{{"name", name},
           {"tokens", manifest.tokens},
           {"documents", manifest.documents},
           {"dtype", dtype(manifest)},
           {"vocabulary_size", manifest.vocabulary.size},
           {"vocabulary_hash", known(manifest.vocabulary.hash)},
           {"vocabulary_type", known(manifest.vocabulary.type)},
           {"shards", manifest.shards.size()},
           {"bytes", sizes.bytes},
           {"bytes_compressed", sizes.bytes_compressed}};
  const Json counts = manifest.counts ? text_counts_to_json(*manifest.counts) : Json::object();
  for (const char* key : {"bytes", "characters", "words", "lines", "unknown"}) {
    row[std::string(key) == "bytes" ? "text_bytes" : key] = counts.value(key, Json());
  }
  row["data_hash"] = manifest.data_hash;
  return row;
}

Json info_object(const std::string& name, const Manifest& manifest) {
  const Sizes sizes = total_sizes(manifest);
  Json json{{"name", name},
            {"tokens", manifest.tokens},
            {"documents", manifest.documents},
            {"dtype", dtype(manifest)},
            {"vocabulary", vocabulary_info_to_json(manifest.vocabulary)},
            {"shards", manifest.shards.size()},
            {"bytes", sizes.bytes},
            {"bytes_compressed", sizes.bytes_compressed}};
  if (manifest.counts) json["counts"] = text_counts_to_json(*manifest.counts);
  json["data_hash"] = manifest.data_hash;
  json["provenance"] = manifest.provenance;
  return json;
}

}  // namespace ql::shard
