// Loops that the compiler turns into vector code, in three versions, one of which is chosen when
// the program runs: for any processor, for one with AVX2 and FMA, and for one with AVX-512.
//
// Write the loop as a QL_VECTOR_BODY template; QL_VECTOR_KERNEL makes NAME(arguments) from
// NAME_body, and NAME_in(version, arguments) for tests. A body has no lambdas and calls only other
// bodies, because anything else would not be inlined. It sums in several lanes, because the
// compiler keeps the order of floating-point additions. Bodies that hold vectors of their own
// (kernels/vector_type.h) take the bytes of a vector register as their first template argument;
// QL_REGISTER_KERNEL makes the kernel of such a body.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "machine/vector_version.h"

#define QL_VECTOR_BODY static inline __attribute__((always_inline))

// Stands before a loop of at most 16 rounds over vectors that are to stay in registers.
#if defined(__clang__)
#define QL_UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define QL_UNROLL _Pragma("GCC unroll 16")
#endif

#if QL_VECTOR_X86
#define QL_TARGET_AVX2 __attribute__((target("avx2,fma")))
#if defined(__clang__)
#define QL_TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma")))
#else
// GCC would prefer half of AVX-512's registers for loops that it turns into vectors itself.
#define QL_TARGET_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma,prefer-vector-width=512")))
#endif
#else
#define QL_TARGET_AVX2
#define QL_TARGET_AVX512
#endif

#define QL_VECTOR_VERSIONS(NAME, PORTABLE, AVX2, AVX512)                             \
  template <typename... Args>                                                        \
  QL_TARGET_AVX2 auto NAME##_avx2(Args... args) {                                    \
    return AVX2(args...);                                                            \
  }                                                                                  \
  template <typename... Args>                                                        \
  QL_TARGET_AVX512 auto NAME##_avx512(Args... args) {                                \
    return AVX512(args...);                                                          \
  }                                                                                  \
  template <typename... Args>                                                        \
  auto NAME##_in(::ql::machine::VectorVersion version, Args... args) {               \
    return version == ::ql::machine::VectorVersion::kAvx512 ? NAME##_avx512(args...) \
           : version == ::ql::machine::VectorVersion::kAvx2 ? NAME##_avx2(args...)   \
                                                            : PORTABLE(args...);     \
  }                                                                                  \
  template <typename... Args>                                                        \
  auto NAME(Args... args) {                                                          \
    return NAME##_in(::ql::machine::vector_version(), args...);                      \
  }
#define QL_VECTOR_KERNEL(NAME) QL_VECTOR_VERSIONS(NAME, NAME##_body, NAME##_body, NAME##_body)
#define QL_REGISTER_KERNEL(NAME) \
  QL_VECTOR_VERSIONS(NAME, NAME##_body<16>, NAME##_body<32>, NAME##_body<64>)

namespace ql::kernels {

// Lanes of a sum. They fill two AVX registers of float, or one of AVX-512.
constexpr std::int64_t kLanes = 16;

// x = e^x for x <= 0, within two units of the last place; below -87 it stays at e^-87, about 1e-38.
// Number and Integer are float and std::uint32_t, or vectors of float and std::int32_t. With power
// = round(x / ln 2) and rest = x - power ln 2, e^x = 2^power e^rest.
template <typename Integer, typename Number>
QL_VECTOR_BODY void exponentiate_in_place(Number& x) {
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  // Adding kRound rounds to a whole number, which then stands in the lowest bits.
  constexpr float kRound = 12582912.0F;
  constexpr std::int32_t kRoundBits = 0x4B400000;
  const Number least = Number{} - 87.0F;
  x = x < least ? least : x;
  const Number rounded = x * kLog2E + kRound;
  const Number power = rounded - kRound;
  const Number rest = (x - power * kLn2High) - power * kLn2Low;
  // The polynomial of e^r on |r| <= ln(2) / 2 (Cephes).
  Number sum = rest * 1.9875691500e-4F + 1.3981999507e-3F;
  sum = sum * rest + 8.3334519073e-3F;
  sum = sum * rest + 4.1665795894e-2F;
  sum = sum * rest + 1.6666665459e-1F;
  sum = sum * rest + 5.0000001201e-1F;
  sum = sum * (rest * rest) + rest + 1.0F;
  Integer bits;
  std::memcpy(&bits, &rounded, sizeof(bits));
  bits = (bits - kRoundBits + 127) << 23;
  Number scale;
  std::memcpy(&scale, &bits, sizeof(scale));
  x = sum * scale;
}

QL_VECTOR_BODY float exponential(float x) {
  exponentiate_in_place<std::uint32_t>(x);  // the shift of a NaN's bits overflows
  return x;
}
QL_VECTOR_BODY double exponential(double x) { return std::exp(x); }

}  // namespace ql::kernels
