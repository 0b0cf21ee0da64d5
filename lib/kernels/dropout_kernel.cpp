// Fills dropout masks from Philox bits, by AVX2 instructions if the processor has them.

#include "kernels/dropout_kernel.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "machine/threads.h"

#if QL_VECTOR_X86
#include <immintrin.h>
#endif

namespace ql::kernels {

namespace {

constexpr std::uint32_t kCalls = kDropoutCalls;

// Threads share a mask in chunks of this many elements. Each chunk has complete groups of the
// generator (kDropoutGroup), so two threads never draw the same group.
constexpr std::int64_t kChunk = 64 * kDropoutGroup;

void fill_group_body(std::uint8_t* kept, std::uint32_t first_call, const DropoutStream& stream,
                     std::uint32_t dropped) {
  std::uint32_t words[4][kCalls];
  for (std::uint32_t k = 0; k < kCalls; ++k) {
    words[0][k] = first_call + k;
    words[1][k] = stream.place;
    words[2][k] = static_cast<std::uint32_t>(stream.step);
    words[3][k] = static_cast<std::uint32_t>(stream.step >> 32);
  }
  PhiloxKey key(stream.seed);
  for (int round = 0; round < kPhiloxRounds; ++round, key.advance()) {
    for (std::uint32_t k = 0; k < kCalls; ++k) {
      philox_round(words[0][k], words[1][k], words[2][k], words[3][k], key);
    }
  }
  for (const auto& word : words) {
    for (std::uint32_t k = 0; k < kCalls; ++k) {
      kept[k] = (word[k] & 0xFFFF) >= dropped ? 1 : 0;
      kept[k + kCalls] = (word[k] >> 16) >= dropped ? 1 : 0;
    }
    kept += std::ptrdiff_t{2} * kCalls;
  }
}

#if QL_VECTOR_X86

// Holds the counters of four Philox calls. Each 32-bit word is in the low half of 64 bits, where
// the multiplication reads it. The high halves do not matter.
struct Quad {
  __m256i word[4];
};

QL_TARGET_AVX2 inline void advance(Quad& quad, __m256i key_low, __m256i key_high) {
  const __m256i product_a =
      _mm256_mul_epu32(quad.word[0], _mm256_set1_epi64x(std::int64_t{kPhiloxFactorA}));
  const __m256i product_c =
      _mm256_mul_epu32(quad.word[2], _mm256_set1_epi64x(std::int64_t{kPhiloxFactorC}));
  quad.word[0] = _mm256_srli_epi64(product_c, 32) ^ quad.word[1] ^ key_low;
  quad.word[1] = product_c;
  quad.word[2] = _mm256_srli_epi64(product_a, 32) ^ quad.word[3] ^ key_high;
  quad.word[3] = product_a;
}

// Sets words[i] to word i of the calls first_call + 0, 2, ..., 14, in this order.
QL_TARGET_AVX2 inline void every_other_call(std::uint32_t first_call, const DropoutStream& stream,
                                            __m256i words[4]) {
  const __m256i first = _mm256_set1_epi64x(std::int64_t{first_call});
  Quad even, odd;
  even.word[0] = _mm256_add_epi64(first, _mm256_setr_epi64x(0, 4, 8, 12));
  odd.word[0] = _mm256_add_epi64(first, _mm256_setr_epi64x(2, 6, 10, 14));
  even.word[1] = odd.word[1] = _mm256_set1_epi64x(std::int64_t{stream.place});
  even.word[2] = odd.word[2] = _mm256_set1_epi64x(static_cast<std::int64_t>(stream.step));
  even.word[3] = odd.word[3] = _mm256_set1_epi64x(static_cast<std::int64_t>(stream.step >> 32));
  PhiloxKey key(stream.seed);
  for (int round = 0; round < kPhiloxRounds; ++round, key.advance()) {
    const __m256i low = _mm256_set1_epi64x(std::int64_t{key.low});
    const __m256i high = _mm256_set1_epi64x(std::int64_t{key.high});
    advance(even, low, high);
    advance(odd, low, high);
  }
  for (int i = 0; i < 4; ++i) {
    words[i] = _mm256_blend_epi32(even.word[i], _mm256_slli_epi64(odd.word[i], 32), 0xAA);
  }
}

QL_TARGET_AVX2 void fill_group_body_avx2(std::uint8_t* kept, std::uint32_t first_call,
                                         const DropoutStream& stream, std::uint32_t dropped) {
  __m256i even[4], odd[4];
  every_other_call(first_call, stream, even);
  every_other_call(first_call + 1, stream, odd);
  const __m256i least = _mm256_set1_epi16(static_cast<std::int16_t>(dropped));
  const __m256i one = _mm256_set1_epi8(1);
  for (int i = 0; i < 4; ++i) {
    const __m256i low = _mm256_blend_epi16(even[i], _mm256_slli_epi32(odd[i], 16), 0xAA);
    const __m256i high = _mm256_blend_epi16(_mm256_srli_epi32(even[i], 16), odd[i], 0xAA);
    // AVX2 has no unsigned comparison: a value is at least `least` if it is the larger of the two.
    const __m256i low_kept = _mm256_cmpeq_epi16(_mm256_max_epu16(low, least), low);
    const __m256i high_kept = _mm256_cmpeq_epi16(_mm256_max_epu16(high, least), high);
    // The pack instruction works on each half of a register separately, and leaves the quarters in
    // the order 0, 2, 1, 3.
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(low_kept, high_kept), 0xD8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(kept + std::ptrdiff_t{32} * i),
                        _mm256_and_si256(bytes, one));
  }
}

// Processors with AVX-512 run the AVX2 version.
QL_VECTOR_VERSIONS(fill_group, fill_group_body, fill_group_body_avx2, fill_group_body_avx2)

#else
QL_VECTOR_VERSIONS(fill_group, fill_group_body, fill_group_body, fill_group_body)
#endif

}  // namespace

void fill_kept(std::uint8_t* kept, std::int64_t first, std::int64_t count,
               const DropoutStream& stream, std::uint32_t dropped, machine::VectorVersion version) {
  for (const std::int64_t end = first + count; first < end;) {
    const std::int64_t group = first / kDropoutGroup, within = first % kDropoutGroup;
    const auto first_call = static_cast<std::uint32_t>(group * kDropoutCalls);
    const std::int64_t part = std::min(kDropoutGroup - within, end - first);
    if (part == kDropoutGroup) {
      fill_group_in(version, kept, first_call, stream, dropped);
    } else {
      std::uint8_t whole[kDropoutGroup];
      fill_group_in(version, &whole[0], first_call, stream, dropped);
      std::copy(whole + within, whole + within + part, kept);
    }
    kept += part;
    first += part;
  }
}

at::Tensor draw_kept(const DropoutDraw& draw, at::IntArrayRef shape, const at::Device& device) {
  at::Tensor mask = at::empty(shape, at::TensorOptions(at::kByte).device(device));
  if (!device.is_cpu()) return mask.bernoulli_(1 / draw.factor());
  auto* kept = mask.data_ptr<std::uint8_t>();
  const std::int64_t count = mask.numel(), start = draw.first;
  const std::int64_t first_chunk = start / kChunk;
  const std::int64_t chunks = (start + count + kChunk - 1) / kChunk - first_chunk;
  // Drawing a random value of 16 bits takes as long as reading this many bytes.
  constexpr double kBytesOfElement = 8;
  const double time = machine::microseconds_of(0, kBytesOfElement * static_cast<double>(count));
  machine::for_parts(chunks, time, [&](std::int64_t from, std::int64_t to) {
    const std::int64_t begin = std::max<std::int64_t>(0, (first_chunk + from) * kChunk - start);
    const std::int64_t end = std::min(count, (first_chunk + to) * kChunk - start);
    fill_kept(kept + begin, start + begin, end - begin, draw.stream, draw.dropped);
  });
  return mask;
}

}  // namespace ql::kernels
