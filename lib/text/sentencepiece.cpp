// Calls the SentencePiece library, and checks a model's normalization rules before the library uses
// them.

#include "text/sentencepiece.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <new>

#include "base/bytes.h"
#include "base/error.h"
#include "base/strings.h"

namespace ql::text {

namespace {

// Calls use(field number, content, flag) for each field of a message in protobuf's wire format.
// `content` is that of a string or message, and `flag` is true for a nonzero varint. Returns false
// if the format is broken.
template <typename Use>
bool for_each_field(std::string_view rest, const Use& use) {
  bool broken = false;
  const auto take = [&](std::uint64_t size) -> std::string_view {
    broken = broken || size > rest.size();
    if (broken) return {};
    const std::string_view taken = rest.substr(0, size);
    rest.remove_prefix(size);
    return taken;
  };
  const auto number = [&]() -> std::uint64_t {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const std::string_view byte = take(1);
      if (broken) return 0;
      const auto bits = static_cast<unsigned char>(byte.front());
      value |= std::uint64_t{bits & 0x7FU} << shift;
      if (bits < 0x80) return value;
    }
    broken = true;
    return 0;
  };
  while (!rest.empty()) {
    const std::uint64_t key = number();
    std::uint64_t value = 0;
    std::string_view content;
    switch (key & 7) {
      case 0:
        value = number();
        break;
      case 1:
        take(8);
        break;
      case 2:
        content = take(number());
        break;
      case 5:
        take(4);
        break;
      default:  // protobuf's types 3 and 4 are obsolete, 6 and 7 are undefined
        return false;
    }
    if (broken || key > UINT32_MAX) return false;
    use(key >> 3, content, value != 0);
  }
  return true;
}

// These are field numbers of sentencepiece_model.proto.
constexpr std::uint64_t kNormalizerSpec = 3, kDenormalizerSpec = 5;
constexpr std::uint64_t kPrecompiledCharsmap = 2, kAddDummyPrefix = 3, kRemoveExtraWhitespaces = 4,
                        kEscapeWhitespaces = 5;

// Checks the trie of a charsmap (a model's replacement rules). The trie is a double array in the
// layout of the library darts-clone, whose search does not check that it stays inside the array.
class TrieWalk {
 public:
  // `texts` is the size in bytes of the replacement strings that follow the trie in the model.
  TrieWalk(std::string_view trie, std::size_t texts)
      : trie_(trie), texts_(texts), most_below_(trie.size() / sizeof(std::uint32_t), kUnknown) {}

  // Returns true when the library's search is safe for every text: it stays inside the trie, finds
  // only replacement strings in the charsmap, and finds at most kMostReplacements at one
  // position of the text.
  bool stays_inside() {
    return !most_below_.empty() && most_below(unit(0).offset(), 0) <= kMostReplacements;
  }

 private:
  static constexpr std::size_t kBytes = 256;
  // The library has room for this many replacements that begin at one position of a text.
  static constexpr int kMostReplacements = 32;
  static constexpr int kRefused = kMostReplacements + 1, kUnknown = -1;
  // No Unicode rule replaces this many bytes. The bound also ends the walk in a trie with a cycle.
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

  // Returns the largest number of replacements that a search from `node` can find, or kRefused if
  // the library must not use the trie. For each byte, the search reads the unit (32 bits) at index
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

// Checks the charsmap: a trie of texts, and the strings that replace these texts. Returns true when
// the trie leads only to strings inside the charsmap, and each string ends with a zero byte after
// at most kLongestText bytes.
bool stays_inside(std::string_view charsmap) {
  // Unicode replaces a character by at most 33 bytes, so kLongestText is generous. Without a limit,
  // a short line could become very long.
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
  const bool good =
      for_each_field(spec, [&](std::uint64_t field, std::string_view content, bool flag) {
        if (field == kAddDummyPrefix) rules.adds_prefix = flag;
        if (field == kRemoveExtraWhitespaces) rules.removes_blanks = flag;
        if (field == kEscapeWhitespaces) marks_blanks = flag;
        if (field != kPrecompiledCharsmap || content.empty()) return;
        rules.keeps_text = false;
        if (!stays_inside(content)) {
          rules.problem =
              "its normalization rules are damaged, or replace text by more than 255 bytes";
        }
      });
  if (!good) rules.problem = "its normalization rules are damaged";
  if (rules.adds_prefix || rules.removes_blanks || !marks_blanks) rules.keeps_text = false;
}

bool rewrites_decoded(std::string_view spec) {
  bool rewrites = false;
  const bool good = for_each_field(spec, [&](std::uint64_t field, std::string_view content, bool) {
    rewrites = rewrites || (field == kPrecompiledCharsmap && !content.empty());
  });
  return rewrites || !good;
}

}  // namespace

SentencePieceRules sentencepiece_rules(std::string_view serialized) {
  SentencePieceRules rules;
  // Protobuf merges a message that occurs several times: later fields override earlier fields.
  std::string normalizer;
  const bool good =
      for_each_field(serialized, [&](std::uint64_t field, std::string_view content, bool) {
        if (field == kNormalizerSpec) normalizer += content;
        if (field == kDenormalizerSpec && rewrites_decoded(content)) {
          rules.problem = "it has rules for decoded text (denormalizer_spec)";
        }
      });
  read_normalizer(normalizer, rules);
  if (!good) rules.problem = "it is damaged";
  return rules;
}

std::size_t sentencepiece_part(std::string_view text, std::size_t longest) {
  if (text.size() <= longest) return text.size();
  const std::string_view head = text.substr(0, longest);
  const std::size_t blank = head.rfind(' ');
  if (blank != std::string_view::npos && blank > 0) return blank;
  return head.size() - incomplete_suffix(head);
}

// Loads the model. Returns the error, or "". The library throws if it cannot sort the pieces.
static std::string load(sentencepiece::SentencePieceProcessor& processor,
                        std::string_view serialized) {
  try {
    const auto status = processor.LoadFromSerializedProto(serialized);
    return status.ok() ? "" : status.ToString();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  }
}

constexpr const char* kModelRemedy =
    "give another copy or another model, or make a vocabulary with qltok vocab";

SentencePieceModel::SentencePieceModel(std::string_view serialized, const std::string& where)
    : processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  const SentencePieceRules rules = sentencepiece_rules(serialized);
  if (!rules.problem.empty()) {
    throw FormatError(where,
                      fmt::format("this SentencePiece model cannot be used: {}", rules.problem),
                      kModelRemedy);
  }
  keeps_text_ = rules.keeps_text;
  if (rules.adds_prefix) leading_blanks_ = LeadingBlanks::kOne;
  if (rules.removes_blanks) leading_blanks_ = LeadingBlanks::kAll;
  if (const std::string problem = load(*processor_, serialized); !problem.empty()) {
    throw FormatError(where,
                      fmt::format("the SentencePiece library refuses this model ({})", problem),
                      kModelRemedy);
  }
  if (processor_->unk_id() < 0) {
    throw FormatError(where, "the SentencePiece model has no piece for unknown text", kModelRemedy);
  }
  const int feed = processor_->PieceToId("\n");
  if (processor_->IdToPiece(feed) == "\n" && !processor_->IsControl(feed)) {
    line_feed_ = static_cast<std::uint32_t>(feed);
  }
}

SentencePieceModel::~SentencePieceModel() = default;

std::uint32_t SentencePieceModel::size() const {
  return static_cast<std::uint32_t>(processor_->GetPieceSize());
}

const std::string& SentencePieceModel::piece(std::uint32_t id) const {
  return processor_->IdToPiece(static_cast<int>(id));
}

bool SentencePieceModel::is_byte(std::uint32_t id) const {
  return processor_->IsByte(static_cast<int>(id));
}

bool SentencePieceModel::is_control(std::uint32_t id) const {
  return processor_->IsControl(static_cast<int>(id));
}

std::uint32_t SentencePieceModel::unk() const {
  return static_cast<std::uint32_t>(processor_->unk_id());
}

std::optional<std::uint32_t> SentencePieceModel::eos() const {
  const int id = processor_->eos_id();
  if (id < 0) return std::nullopt;
  return static_cast<std::uint32_t>(id);
}

void SentencePieceModel::encode(std::string_view text, std::vector<std::uint32_t>& ids) const {
  std::vector<int> pieces;
  const auto status = processor_->Encode(text, &pieces);
  if (!status.ok()) throw Error("SentencePiece", status.ToString());
  ids.insert(ids.end(), pieces.begin(), pieces.end());
}

}  // namespace ql::text
