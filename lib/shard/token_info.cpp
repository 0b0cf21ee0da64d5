#include "shard/token_info.h"

#include "base/error.h"
#include "base/number.h"

namespace ql::shard {

namespace {

constexpr std::int64_t kLargestVocabulary = std::int64_t{1} << 32;

std::optional<TokenId> optional_id(const JsonObject& json, const std::string& key,
                                   std::int64_t size) {
  if (!json.has(key)) return std::nullopt;
  return static_cast<TokenId>(json.integer(key, 0, size - 1));
}

std::int64_t checked_sum(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) throw Error("", "text counts overflow 64 bits");
  return sum;
}

}  // namespace

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

TextCounts text_counts_from_json(const JsonObject& json) {
  TextCounts counts;
  counts.bytes = json.integer("bytes", 0);
  counts.characters = json.integer("characters", 0);
  counts.words = json.integer("words", 0);
  counts.lines = json.integer("lines", 0);
  counts.unknown = json.integer("unknown", 0);
  return counts;
}

Json text_counts_to_json(const TextCounts& counts) {
  return Json{{"bytes", counts.bytes},
              {"characters", counts.characters},
              {"words", counts.words},
              {"lines", counts.lines},
              {"unknown", counts.unknown}};
}

TextCounts operator+(const TextCounts& a, const TextCounts& b) {
  TextCounts sum;
  sum.bytes = checked_sum(a.bytes, b.bytes);
  sum.characters = checked_sum(a.characters, b.characters);
  sum.words = checked_sum(a.words, b.words);
  sum.lines = checked_sum(a.lines, b.lines);
  sum.unknown = checked_sum(a.unknown, b.unknown);
  return sum;
}

}  // namespace ql::shard
