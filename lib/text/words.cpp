// Finds blanks with vector instructions, and lower-cases text with ICU.

#include "text/words.h"

#include <unicode/bytestream.h>
#include <unicode/casemap.h>

#include <bitset>
#include <cstring>

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
