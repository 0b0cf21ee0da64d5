#include "text/words.h"

#include <array>
#include <bitset>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace ql::text {
namespace {

// At most so many words end in 64 bytes.
constexpr std::size_t kMostWordsInBits = kBlankBits / 2 + 1;

// Returns blank_bits() of the bytes from text[position] on; bytes behind the text count as blanks.
std::uint64_t blank_bits_at(std::string_view text, std::size_t position) {
  const std::size_t left = text.size() - position;
  if (left >= kBlankBits) return blank_bits(text.data() + position);
  std::array<char, kBlankBits> bytes;
  bytes.fill(' ');
  std::memcpy(bytes.data(), text.data() + position, left);
  return blank_bits(bytes.data());
}

std::size_t lowest_bit(std::uint64_t bits) {
  return static_cast<std::size_t>(__builtin_ctzll(bits));
}

}  // namespace

std::uint64_t blank_bits_one_by_one(const char* bytes) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < kBlankBits; ++i) {
    bits |= static_cast<std::uint64_t>(is_blank(bytes[i])) << i;
  }
  return bits;
}

#if defined(__SSE2__)
// SSE2 belongs to every 64-bit x86 processor. With AVX2 this would be twice as fast, but it takes
// no time beside looking the words up.
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
    const std::uint64_t word_bits = ~blank_bits_at(text_, position_);
    // A bit is 1 where a word begins or ends, in turn.
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
    // The text's end ends it: there was no blank behind.
    words[count++] = {text_.data() + begin_, text_.size() - begin_};
    inside_word_ = false;
  }
  return count;
}

std::int64_t count_word_starts(std::string_view text, bool inside_word) {
  std::size_t starts = 0;
  std::uint64_t before = inside_word ? 1 : 0;
  for (std::size_t position = 0; position < text.size(); position += kBlankBits) {
    const std::uint64_t word_bits = ~blank_bits_at(text, position);
    starts += std::bitset<kBlankBits>(word_bits & ~(word_bits << 1 | before)).count();
    before = word_bits >> (kBlankBits - 1);
  }
  return static_cast<std::int64_t>(starts);
}

}  // namespace ql::text
