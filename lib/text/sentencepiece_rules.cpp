#include "text/sentencepiece_rules_internal.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

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

// Walks through the trie of a charsmap: a double array as the library darts-clone makes it, whose
// search in a text never looks whether it stays inside.
class TrieWalk {
 public:
  // `texts` bytes of replacements stand behind the trie.
  TrieWalk(std::string_view trie, std::size_t texts)
      : trie_(trie), texts_(texts), most_below_(trie.size() / sizeof(std::uint32_t), kUnknown) {}

  // True when no text leads the library's search outside of the trie, to a replacement outside of
  // the texts, or to more replacements than the library has room for.
  bool stays_inside() {
    return !most_below_.empty() && most_below(unit(0).offset(), 0) <= kMostReplacements;
  }

 private:
  static constexpr std::size_t kBytes = 256;
  // The library's: replacements for prefixes of one text.
  static constexpr int kMostReplacements = 32;
  static constexpr int kRefused = kMostReplacements + 1, kUnknown = -1;
  // Unicode has no replacement for as many bytes. A circle ends here, too.
  static constexpr int kLongestKey = 255;

  struct Unit {
    std::uint32_t bits;
    std::uint32_t label() const { return bits & 0x800000FFU; }
    std::size_t value() const { return bits & 0x7FFFFFFFU; }
    bool has_value() const { return (bits >> 8 & 1U) != 0; }
    std::size_t offset() const {
      return static_cast<std::size_t>(bits >> 10) << ((bits & 0x200U) >> 6);
    }
  };
  Unit unit(std::size_t index) const {
    return {load_little_endian<std::uint32_t>(trie_.data() + index * sizeof(std::uint32_t))};
  }

  // The most replacements on a path that goes on at `node`, whose unit for a byte stands at
  // node ^ byte.
  int most_below(std::size_t node, int depth) {
    if (depth > kLongestKey || (node | (kBytes - 1)) >= most_below_.size()) return kRefused;
    if (most_below_[node] != kUnknown) return most_below_[node];
    int most = 0;
    for (std::size_t byte = 0; byte < kBytes && most < kRefused; ++byte) {
      const std::size_t index = node ^ byte;
      const Unit found = unit(index);
      if (found.label() != byte) continue;
      const std::size_t next = index ^ found.offset();
      const int below = most_below(next, depth + 1);
      if (below == kRefused || (found.has_value() && unit(next).value() >= texts_)) return kRefused;
      most = std::max(most, below + (found.has_value() ? 1 : 0));
    }
    return most_below_[node] = most;
  }

  std::string_view trie_;
  std::size_t texts_;
  std::vector<int> most_below_;  // by node
};

// True when the rules lead nowhere but to texts of the charsmap, each of which ends with a zero
// byte.
bool stays_inside(std::string_view charsmap) {
  // Unicode's longest replacement has 33 bytes. Much longer ones would make a short line endless.
  constexpr std::size_t kSizeBytes = sizeof(std::uint32_t), kLongestText = 255;
  if (charsmap.size() <= kSizeBytes) return false;
  const std::size_t size = load_little_endian<std::uint32_t>(charsmap.data());
  charsmap.remove_prefix(kSizeBytes);
  if (size >= charsmap.size() || charsmap.back() != '\0') return false;
  for (std::size_t begin = size, end = 0; begin < charsmap.size(); begin = end + 1) {
    end = charsmap.find('\0', begin);
    if (end - begin > kLongestText) return false;
  }
  return TrieWalk(charsmap.substr(0, size), charsmap.size() - size).stays_inside();
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
