#include "shard/pack_summary.h"

#include <fmt/format.h>

#include "base/number.h"
#include "base/printable.h"

namespace ql::shard {

namespace {

ShardEntry all_shards(const Manifest& manifest) {
  ShardEntry sum;
  for (const ShardEntry& shard : manifest.shards) {
    sum.bytes += shard.bytes;
    sum.bytes_compressed += shard.bytes_compressed;
  }
  return sum;
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
  const ShardEntry all = all_shards(manifest);
  return fmt::format(
      "{}; {} of {} ids in {}", with_thousands(static_cast<std::int64_t>(manifest.shards.size())),
      human_bytes(all.bytes), manifest.vocabulary.dtype(), human_bytes(all.bytes_compressed));
}

// The command lines that made the data, the last first.
void append_commands(std::string& text, const Json& provenance, const char* label) {
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

}  // namespace

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
  const ShardEntry all = all_shards(manifest);
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

}  // namespace ql::shard
