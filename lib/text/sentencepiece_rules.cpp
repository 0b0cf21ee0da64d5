#include "text/sentencepiece_rules_internal.h"

#include <cstddef>
#include <cstdint>

#include "base/little_endian.h"

namespace ql::text {
namespace {

// The fields of a message in protobuf's wire format, one after the other.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : rest_(bytes) {}

  // False at the end and where the format is broken.
  bool next() {
    if (rest_.empty() || broken_) return false;
    const std::uint64_t key = number();
    field_ = key >> 3;
    content_ = {};
    number_ = 0;
    switch (key & 7) {
      case 0:
        number_ = number();
        break;
      case 1:
        take(8);
        break;
      case 2:
        content_ = take(number());
        break;
      case 5:
        take(4);
        break;
      default:  // groups are long out of use
        broken_ = true;
    }
    broken_ = broken_ || key > UINT32_MAX;
    return !broken_;
  }
  std::uint64_t field() const { return field_; }
  std::string_view content() const { return content_; }  // of a text or message
  bool flag() const { return number_ != 0; }
  bool broken() const { return broken_; }

 private:
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const std::string_view byte = take(1);
      if (broken_) return 0;
      const auto bits = static_cast<unsigned char>(byte.front());
      value |= std::uint64_t{bits & 0x7FU} << shift;
      if (bits < 0x80) return value;
    }
    broken_ = true;
    return 0;
  }

  std::string_view take(std::uint64_t size) {
    broken_ = broken_ || size > rest_.size();
    if (broken_) return {};
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_, content_;
  std::uint64_t field_ = 0, number_ = 0;
  bool broken_ = false;
};

// The numbers of sentencepiece_model.proto.
constexpr std::uint64_t kNormalizerSpec = 3, kDenormalizerSpec = 5;
constexpr std::uint64_t kPrecompiledCharsmap = 2, kAddDummyPrefix = 3, kRemoveExtraWhitespaces = 4,
                        kEscapeWhitespaces = 5;

// A unit of the trie in a charsmap: a double array as the library darts-clone makes it.
class TrieUnit {
 public:
  TrieUnit(std::string_view trie, std::size_t index)
      : bits_(load_little_endian<std::uint32_t>(trie.data() + index * sizeof(std::uint32_t))) {}
  bool is_value() const { return bits_ >> 31 != 0; }
  std::size_t value() const { return bits_ & 0x7FFFFFFFU; }
  bool has_value() const { return (bits_ >> 8 & 1U) != 0; }
  std::size_t offset() const {
    return static_cast<std::size_t>(bits_ >> 10) << ((bits_ & 0x200U) >> 6);
  }

 private:
  std::uint32_t bits_;
};

// True when no text leads a search in the trie outside of it, or to a replacement outside of the
// texts behind it, each of which ends with a zero byte.
bool stays_inside(std::string_view charsmap) {
  constexpr std::size_t kSizeBytes = sizeof(std::uint32_t), kBytes = 256;
  if (charsmap.size() <= kSizeBytes) return false;
  const std::size_t size = load_little_endian<std::uint32_t>(charsmap.data());
  charsmap.remove_prefix(kSizeBytes);
  if (size == 0 || size >= charsmap.size() || charsmap.back() != '\0') return false;
  const std::string_view trie = charsmap.substr(0, size);
  const std::size_t units = size / sizeof(std::uint32_t), texts = charsmap.size() - size;
  for (std::size_t i = 0; i < units; ++i) {
    const TrieUnit unit(trie, i);
    if (unit.is_value()) continue;
    // The units for the next byte stand at `next` with the byte's bits flipped.
    const std::size_t next = i ^ unit.offset();
    if ((next | (kBytes - 1)) >= units) return false;
    if (unit.has_value() && TrieUnit(trie, next).value() >= texts) return false;
  }
  return units > 0;
}

void read_normalizer(std::string_view spec, SentencePieceRules& rules) {
  bool marks_blanks = true;
  Fields fields(spec);
  while (fields.next()) {
    if (fields.field() == kAddDummyPrefix) rules.adds_prefix = fields.flag();
    if (fields.field() == kRemoveExtraWhitespaces) rules.removes_blanks = fields.flag();
    if (fields.field() == kEscapeWhitespaces) marks_blanks = fields.flag();
    if (fields.field() != kPrecompiledCharsmap || fields.content().empty()) continue;
    rules.keeps_text = false;
    if (!stays_inside(fields.content())) rules.problem = "its rules for text are damaged";
  }
  if (fields.broken()) rules.problem = "its rules for text are damaged";
  if (rules.adds_prefix || rules.removes_blanks || !marks_blanks) rules.keeps_text = false;
}

bool rewrites_decoded(std::string_view spec) {
  Fields fields(spec);
  while (fields.next()) {
    if (fields.field() == kPrecompiledCharsmap && !fields.content().empty()) return true;
  }
  return fields.broken();
}

}  // namespace

SentencePieceRules sentencepiece_rules(std::string_view serialized) {
  SentencePieceRules rules;
  // Protobuf joins a message that stands more than once: its later fields win.
  std::string normalizer;
  Fields fields(serialized);
  while (fields.next()) {
    if (fields.field() == kNormalizerSpec) normalizer += fields.content();
    if (fields.field() == kDenormalizerSpec && rewrites_decoded(fields.content())) {
      rules.problem = "it rewrites decoded text (denormalizer_spec)";
    }
  }
  read_normalizer(normalizer, rules);
  if (fields.broken()) rules.problem = "it is damaged";
  return rules;
}

}  // namespace ql::text
