// Finds blanks with vector instructions, lower-cases text with ICU, and implements the hash table
// of tokens.

#include "text/words.h"

#include <unicode/bytestream.h>
#include <unicode/casemap.h>

#include <algorithm>
#include <bitset>
#include <cstring>
#include <stdexcept>

#include "base/error.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace ql::text {

// At most this many words end in 64 bytes.
constexpr std::size_t kMostWordsInBits = kBlankBits / 2 + 1;

static std::size_t lowest_bit(std::uint64_t bits) {
  return static_cast<std::size_t>(__builtin_ctzll(bits));
}

// Returns a mask in which the `length` bits from bit `begin` on are 1. Bits beyond bit 63 are
// dropped.
static std::uint64_t bits_of(std::size_t begin, std::size_t length) {
  return ((std::uint64_t{1} << length) - 1) << begin;
}

// Returns 64 bits: bit i is 1 when bytes[i] may begin a Unicode blank (whitespace of
// Blanks::kUnicode that Blanks::kAscii lacks). Many other characters begin with the same bytes.
#if defined(__SSE2__)
static std::uint64_t unicode_head_bits(const char* bytes) {
  const auto among = [](__m128i part, unsigned char first, char more) {
    const __m128i from_first = _mm_sub_epi8(part, _mm_set1_epi8(static_cast<char>(first)));
    return _mm_cmpeq_epi8(_mm_min_epu8(from_first, _mm_set1_epi8(more)), from_first);
  };
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < kBlankBits; i += sizeof(__m128i)) {
    const __m128i part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + i));
    const __m128i found = _mm_or_si128(_mm_or_si128(among(part, 0x1C, 3), among(part, 0xE1, 2)),
                                       among(part, 0xC2, 0));
    bits |= static_cast<std::uint64_t>(static_cast<std::uint32_t>(_mm_movemask_epi8(found))) << i;
  }
  return bits;
}
#else
static std::uint64_t unicode_head_bits(const char* bytes) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < kBlankBits; ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    const bool head =
        byte == 0xC2 || (byte >= 0xE1 && byte <= 0xE3) || (byte >= 0x1C && byte <= 0x1F);
    bits |= static_cast<std::uint64_t>(head) << i;
  }
  return bits;
}
#endif

constexpr std::size_t kLongestBlank = 3;

// Returns 64 bytes of the text from `position` on. If the text has fewer bytes left, they are
// copied to `last`, and blanks follow them.
static const char* bytes_at(std::string_view text, std::size_t position,
                            std::array<char, kBlankBits>& last) {
  const std::size_t left = text.size() - position;
  if (left >= kBlankBits) return text.data() + position;
  last.fill(' ');
  std::memcpy(last.data(), text.data() + position, left);
  return last.data();
}

// Returns a bit for each of the 64 bytes from text[position] on. The bit is 1 if the byte belongs
// to whitespace of Blanks::kUnicode that Blanks::kAscii lacks. The function is not inlined, because
// inlining would make splitting at ASCII blanks slower.
[[gnu::noinline]] static std::uint64_t unicode_blank_bits(std::string_view text,
                                                          std::size_t position) {
  std::uint64_t bits = 0;
  // A blank that begins before the 64 bytes may end in them.
  for (std::size_t before = 1; before < kLongestBlank && before <= position; ++before) {
    const std::size_t length = unicode_blank_at(text, position - before);
    if (length > before) bits |= bits_of(0, length - before);
  }
  std::array<char, kBlankBits> last;
  for (std::uint64_t heads = unicode_head_bits(bytes_at(text, position, last)); heads != 0;
       heads &= heads - 1) {
    const std::size_t place = lowest_bit(heads);
    bits |= bits_of(place, unicode_blank_at(text, position + place));
  }
  return bits;
}

// Returns a bit for each of the 64 bytes from text[position] on: 1 for blanks and for bytes after
// the text.
static std::uint64_t blank_bits_at(std::string_view text, std::size_t position, Blanks blanks) {
  std::array<char, kBlankBits> last;
  const std::uint64_t bits = blank_bits(bytes_at(text, position, last));
  return blanks == Blanks::kAscii ? bits : bits | unicode_blank_bits(text, position);
}

std::size_t unicode_blank_at(std::string_view text, std::size_t position) {
  const auto byte = [&](std::size_t i) {
    return position + i < text.size() ? static_cast<unsigned char>(text[position + i]) : 0U;
  };
  switch (byte(0)) {
    case 0x1C:
    case 0x1D:
    case 0x1E:
    case 0x1F:
      return 1;
    case 0xC2:
      return byte(1) == 0x85 || byte(1) == 0xA0 ? 2 : 0;
    case 0xE1:
      return byte(1) == 0x9A && byte(2) == 0x80 ? 3 : 0;
    case 0xE2:
      if (byte(1) == 0x81) return byte(2) == 0x9F ? 3 : 0;
      if (byte(1) != 0x80) return 0;
      return (byte(2) >= 0x80 && byte(2) <= 0x8A) || byte(2) == 0xA8 || byte(2) == 0xA9 ||
                     byte(2) == 0xAF
                 ? 3
                 : 0;
    case 0xE3:
      return byte(1) == 0x80 && byte(2) == 0x80 ? 3 : 0;
    default:
      return 0;
  }
}

bool ends_with_blank(std::string_view text, Blanks blanks) {
  if (blanks == Blanks::kAscii) return !text.empty() && is_blank(text.back());
  for (std::size_t length = 1; length <= std::min(kLongestBlank, text.size()); ++length) {
    if (blank_at(text, text.size() - length, blanks) == length) return true;
  }
  return false;
}

bool has_unicode_blank(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (unicode_blank_at(text, i) > 0) return true;
  }
  return false;
}

std::uint64_t blank_bits_one_by_one(const char* bytes) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < kBlankBits; ++i) {
    bits |= static_cast<std::uint64_t>(is_blank(bytes[i])) << i;
  }
  return bits;
}

#if defined(__SSE2__)
// Every 64-bit x86 processor has SSE2. AVX2 would be twice as fast, but finding blanks takes little
// time compared with looking up the words.
std::uint64_t blank_bits(const char* bytes) {
  const __m128i blank = _mm_set1_epi8(' '), tab = _mm_set1_epi8('\t'), last = _mm_set1_epi8(4);
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < kBlankBits; i += sizeof(__m128i)) {
    const __m128i part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + i));
    const __m128i from_tab = _mm_sub_epi8(part, tab);
    const __m128i found = _mm_or_si128(_mm_cmpeq_epi8(part, blank),
                                       _mm_cmpeq_epi8(_mm_min_epu8(from_tab, last), from_tab));
    bits |= static_cast<std::uint64_t>(static_cast<std::uint32_t>(_mm_movemask_epi8(found))) << i;
  }
  return bits;
}
#else
std::uint64_t blank_bits(const char* bytes) { return blank_bits_one_by_one(bytes); }
#endif

std::size_t WordSplitter::next(Word* words) {
  std::size_t count = 0;
  while (position_ < text_.size() && count + kMostWordsInBits <= kMostWords) {
    const std::uint64_t word_bits = ~blank_bits_at(text_, position_, blanks_);
    // A bit is 1 where a word begins or ends, alternately.
    std::uint64_t edges = word_bits ^ (word_bits << 1 | (inside_word_ ? 1 : 0));
    const auto take_edge = [&] {
      const std::size_t edge = position_ + lowest_bit(edges);
      edges &= edges - 1;
      return edge;
    };
    while (edges != 0) {
      if (!inside_word_) {
        begin_ = take_edge();
        inside_word_ = true;
        if (edges == 0) break;
      }
      words[count++] = {text_.data() + begin_, take_edge() - begin_};
      inside_word_ = false;
    }
    position_ += kBlankBits;
  }
  if (inside_word_ && position_ >= text_.size() && count < kMostWords) {
    // No blank follows the last word, so the text's end ends it.
    words[count++] = {text_.data() + begin_, text_.size() - begin_};
    inside_word_ = false;
  }
  return count;
}

std::int64_t count_word_starts(std::string_view text, bool inside_word, Blanks blanks) {
  std::size_t starts = 0;
  std::uint64_t before = inside_word ? 1 : 0;
  for (std::size_t position = 0; position < text.size(); position += kBlankBits) {
    const std::uint64_t word_bits = ~blank_bits_at(text, position, blanks);
    starts += std::bitset<kBlankBits>(word_bits & ~(word_bits << 1 | before)).count();
    before = word_bits >> (kBlankBits - 1);
  }
  return static_cast<std::int64_t>(starts);
}

constexpr int kFirstSlotBits = 10;
constexpr std::uint32_t kMostTokens = std::uint32_t{1} << 31;
constexpr std::size_t kBatch = 128;  // tokens that are looked up together

constexpr std::size_t kHeadBytes = 8, kTailBytes = 3;
constexpr std::size_t kShort = kHeadBytes + kTailBytes;  // bytes of the longest token in a slot
constexpr std::uint32_t kLong = UINT32_MAX;              // not the tail of any short token

template <typename Bits>
static Bits load(const char* data) {
  Bits bits;
  std::memcpy(&bits, data, sizeof bits);
  return bits;
}

// Makes masks for a load() at byte `first` of a token: masks[size] clears the bytes after a token
// of `size` bytes.
template <typename Bits>
static std::array<Bits, kShort + 1> masks_from(std::size_t first) {
  std::array<Bits, kShort + 1> masks{};
  for (std::size_t size = first; size <= kShort; ++size) {
    std::memset(&masks[size], 0xFF, std::min(size - first, sizeof(Bits)));
  }
  return masks;
}
const auto kHeadOf = masks_from<std::uint64_t>(0);
const auto kTailOf = masks_from<std::uint32_t>(kHeadBytes);

// The Key::tail of a short token ends with a byte that holds the token's size. kSizeOf[size] is
// this byte after three zero bytes.
const auto kSizeOf = [] {
  std::array<std::uint32_t, kShort + 1> sizes{};
  for (std::size_t size = 0; size <= kShort; ++size) {
    const auto byte = static_cast<unsigned char>(size);
    std::memcpy(reinterpret_cast<char*>(&sizes[size]) + kTailBytes, &byte, 1);
  }
  return sizes;
}();

static bool is_too_full(std::size_t tokens, std::size_t slots) { return 8 * tokens > 5 * slots; }

static std::uint64_t mix(std::uint64_t bits) {
  bits *= 0x9E3779B97F4A7C15u;
  return bits ^ (bits >> 32);
}

// Hashes a token of more than kShort bytes, usually one word. A hash function for long data would
// cost more than the rest of the lookup.
static std::uint64_t hash_of_long(std::string_view token) {
  std::uint64_t hash = token.size();
  const char* data = token.data();
  for (std::size_t left = token.size(); left > kHeadBytes; left -= kHeadBytes, data += kHeadBytes) {
    hash = mix(hash ^ load<std::uint64_t>(data));
  }
  return mix(hash ^ load<std::uint64_t>(token.data() + token.size() - kHeadBytes));
}

TokenTable::TokenTable()
    : begins_(1), slots_(std::size_t{1} << kFirstSlotBits), shift_(64 - kFirstSlotBits) {}

void TokenTable::reserve(std::size_t tokens, std::size_t bytes) {
  if (size() > 0) throw std::logic_error("room is made before the first token");
  bytes_.reserve(bytes);
  begins_.reserve(tokens + 1);
  std::size_t slots = slots_.size();
  for (; is_too_full(tokens, slots); slots *= 2) --shift_;
  slots_.assign(slots, Slot());
}

// Bytes after the token may be read, up to readable_end, so that no branch depends on the size of a
// short token.
inline TokenTable::Key TokenTable::key_of(std::string_view token, const char* readable_end) {
  constexpr std::ptrdiff_t kRead = kHeadBytes + sizeof(std::uint32_t);
  const char* data = token.data();
  const std::size_t size = token.size();
  if (size > kShort || readable_end - data < kRead) return key_of(token);
  return {load<std::uint64_t>(data) & kHeadOf[size],
          (load<std::uint32_t>(data + kHeadBytes) & kTailOf[size]) | kSizeOf[size]};
}

TokenTable::Key TokenTable::key_of(std::string_view token) {
  if (token.size() > kShort) return {hash_of_long(token), kLong};
  std::array<char, kHeadBytes + sizeof(std::uint32_t)> bytes{};
  if (!token.empty()) std::memcpy(bytes.data(), token.data(), token.size());
  return key_of({bytes.data(), token.size()}, bytes.data() + bytes.size());
}

inline std::size_t TokenTable::first_slot(const Key& key) const {
  return mix(mix(key.head + key.tail * 0xD6E8FEB86659FD93u)) >> shift_;
}

bool TokenTable::is_same(std::uint32_t id, std::string_view token) const {
  const std::string_view known = this->token(id);
  if (token.size() > 2 * kHeadBytes || known.size() != token.size()) return known == token;
  // The size is 12 to 16 here, so two loads of 8 bytes cover the token. The loads overlap below 16.
  const std::size_t last = token.size() - kHeadBytes;
  return load<std::uint64_t>(known.data()) == load<std::uint64_t>(token.data()) &&
         load<std::uint64_t>(known.data() + last) == load<std::uint64_t>(token.data() + last);
}

inline std::size_t TokenTable::slot_of(std::string_view token, const Key& key) const {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t index = first_slot(key);; index = (index + 1) & mask) {
    const Slot& slot = slots_[index];
    // A free slot has the key of the empty token. So the search for that token may end at a free
    // slot, whose id is kNone.
    if (slot.head == key.head && slot.tail == key.tail &&
        (key.tail != kLong || is_same(slot.id, token))) {
      return index;
    }
    if (slot.id == kNone) return index;
  }
}

std::uint32_t TokenTable::find(std::string_view token) const {
  return slots_[slot_of(token, key_of(token))].id;
}

std::uint32_t TokenTable::insert(std::string_view token) { return insert(token, key_of(token)); }

std::uint32_t TokenTable::insert(std::string_view token, const Key& key) {
  std::size_t index = slot_of(token, key);
  if (slots_[index].id != kNone) return slots_[index].id;
  if (size() >= kMostTokens) {
    throw Error("", "there are more than 2^31 distinct tokens, too many to count");
  }
  if (is_too_full(std::size_t{size()} + 1, slots_.size())) {
    grow();
    index = slot_of(token, key);
  }
  const std::uint32_t id = size();
  slots_[index] = {key.head, key.tail, id};
  bytes_.append(token);
  begins_.push_back(bytes_.size());
  return id;
}

template <typename Use>
void TokenTable::for_each_key(std::string_view text, const Word* words, std::size_t count,
                              const Use& use) const {
  std::array<Key, kBatch> keys;
  const char* readable_end = text.data() + text.size();
  for (std::size_t done = 0; done < count; done += kBatch) {
    const std::size_t part = std::min(count - done, kBatch);
    for (std::size_t i = 0; i < part; ++i) {
      keys[i] = key_of(words[done + i].view(), readable_end);
      __builtin_prefetch(&slots_[first_slot(keys[i])]);
    }
    for (std::size_t i = 0; i < part; ++i) use(done + i, keys[i]);
  }
}

void TokenTable::find(std::string_view text, const Word* words, std::size_t count,
                      std::uint32_t* ids) const {
  for_each_key(text, words, count, [&](std::size_t i, const Key& key) {
    ids[i] = slots_[slot_of(words[i].view(), key)].id;
  });
}

void TokenTable::insert(std::string_view text, const Word* words, std::size_t count,
                        std::uint32_t* ids) {
  for_each_key(text, words, count,
               [&](std::size_t i, const Key& key) { ids[i] = insert(words[i].view(), key); });
}

void TokenTable::grow() {
  slots_.assign(slots_.size() * 2, Slot());
  --shift_;
  const std::size_t mask = slots_.size() - 1;
  // Tokens are inserted in the order of their ids. Frequent tokens mostly have small ids, so they
  // get the slots that a search looks at first.
  for (std::uint32_t id = 0; id < size(); ++id) {
    const Key key = key_of(token(id));
    std::size_t index = first_slot(key);
    while (slots_[index].id != kNone) index = (index + 1) & mask;
    slots_[index] = {key.head, key.tail, id};
  }
}

std::string lowercase(std::string_view text) {
  constexpr std::size_t kLongestText = std::size_t{1} << 30;
  if (text.size() > kLongestText) throw std::logic_error("lowercase: text above 1 GiB");
  const auto size = static_cast<std::int32_t>(text.size());
  std::string lower;
  icu::StringByteSink<std::string> sink(&lower, size);
  UErrorCode error = U_ZERO_ERROR;
  icu::CaseMap::utf8ToLower("", 0, {text.data(), size}, sink, nullptr, error);
  if (U_FAILURE(error)) throw Error("the ICU library cannot lower-case text", u_errorName(error));
  return lower;
}

}  // namespace ql::text
