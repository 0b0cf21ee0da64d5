// Loops that the compiler turns into vector code, in two versions: for any processor, and for one
// with AVX2 and FMA, chosen when the program runs.
//
// Write the loop as a QL_VECTOR_BODY template; QL_VECTOR_KERNEL makes NAME(arguments) from
// NAME_body. In bodies: no lambdas and no calls but of other bodies (they would not be inlined),
// and sums in several lanes, because the compiler keeps the order of floating-point additions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#define QL_VECTOR_BODY static inline __attribute__((always_inline))

#if defined(__x86_64__) && defined(__GNUC__)
#define QL_VECTOR_KERNEL(NAME)                                         \
  template <typename... Args>                                          \
  __attribute__((target("avx2,fma"))) auto NAME##_avx2(Args... args) { \
    return NAME##_body(args...);                                       \
  }                                                                    \
  template <typename... Args>                                          \
  auto NAME(Args... args) {                                            \
    return has_avx2() ? NAME##_avx2(args...) : NAME##_body(args...);   \
  }
#else
#define QL_VECTOR_KERNEL(NAME)   \
  template <typename... Args>    \
  auto NAME(Args... args) {      \
    return NAME##_body(args...); \
  }
#endif

namespace ql::nn {

inline bool has_avx2() {
#if defined(__x86_64__) && defined(__GNUC__)
  static const bool kHas = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return kHas;
#else
  return false;
#endif
}

// Lanes of a sum: two AVX registers of float.
constexpr std::int64_t kLanes = 16;

// e^x for x <= 0, within two units of the last place; below -87 it stays at e^-87, about 1e-38.
QL_VECTOR_BODY float exponential(float x) {
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  // Adding and subtracting it rounds to a whole number.
  constexpr float kRound = 12582912.0F;
  x = x < -87.0F ? -87.0F : x;
  const float power = (x * kLog2E + kRound) - kRound;
  const float rest = (x - power * kLn2High) - power * kLn2Low;
  // The polynomial of e^r on |r| <= ln(2) / 2 (Cephes).
  float sum = 1.9875691500e-4F;
  sum = sum * rest + 1.3981999507e-3F;
  sum = sum * rest + 8.3334519073e-3F;
  sum = sum * rest + 4.1665795894e-2F;
  sum = sum * rest + 1.6666665459e-1F;
  sum = sum * rest + 5.0000001201e-1F;
  sum = sum * (rest * rest) + rest + 1.0F;
  const std::int32_t bits = (static_cast<std::int32_t>(power) + 127) << 23;
  float scale;
  std::memcpy(&scale, &bits, sizeof(scale));
  return sum * scale;
}
QL_VECTOR_BODY double exponential(double x) { return std::exp(x); }

}  // namespace ql::nn
