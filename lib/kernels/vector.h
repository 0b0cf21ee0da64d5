// Has the tools for vectorized kernels: loops that are compiled in three versions, vectors of
// register size, and bfloat16 elements.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "machine/device.h"

#define QL_VECTOR_BODY static inline __attribute__((always_inline))

// Unrolls the loop that follows, of at most 16 iterations, so that the loop's vectors stay in
// registers.
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
// By itself GCC would use only half of each AVX-512 register in loops that it vectorizes.
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

// A kernel is a loop that the compiler turns into vector code in three versions: for any processor,
// for processors with AVX2 and FMA, and for processors with AVX-512. The program chooses a version
// when it runs.
//
// Write the loop as a QL_VECTOR_BODY template NAME_body. QL_VECTOR_KERNEL then makes
// NAME(arguments), and NAME_in(version, arguments) for a given version. A body has no lambdas and
// should call only other bodies and small inline functions, because the compiler need not inline
// anything else. A body sums in several lanes, because the compiler keeps the order of
// floating-point additions and would not vectorize a single sum. A body that holds vectors itself
// (Register, below) takes the size of a vector register in bytes as its first template argument;
// QL_REGISTER_KERNEL makes the kernel of such a body.

// A sum is computed in this many lanes. They fill two AVX registers of float, or one of AVX-512.
constexpr std::int64_t kLanes = 16;

template <typename Real>
QL_VECTOR_BODY Real sum_of(const Real* lanes) {
  Real sum = 0;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) sum += lanes[lane];
  return sum;
}

// Sets x = e^x for x <= 0, within two units of the last place; for x below -87 the result is e^-87,
// about 1e-38. Number and Integer are float and std::uint32_t, or vectors of float and
// std::int32_t. With power = round(x / ln 2) and rest = x - power ln 2, e^x = 2^power e^rest.
template <typename Integer, typename Number>
QL_VECTOR_BODY void exponentiate_in_place(Number& x) {
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  // Adding kRound rounds to a whole number, which is then in the lowest bits.
  constexpr float kRound = 12582912.0F;
  constexpr std::int32_t kRoundBits = 0x4B400000;
  const Number least = Number{} - 87.0F;
  x = x < least ? least : x;
  const Number rounded = x * kLog2E + kRound;
  const Number power = rounded - kRound;
  const Number rest = (x - power * kLn2High) - power * kLn2Low;
  // This is the polynomial of e^r on |r| <= ln(2) / 2 (Cephes).
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
  // For a NaN, the integers overflow, which only unsigned integers may do.
  exponentiate_in_place<std::uint32_t>(x);
  return x;
}
QL_VECTOR_BODY double exponential(double x) { return std::exp(x); }

// Kernels handle elements of bfloat16 by their bits, which are the upper half of a float's bits.

using Bfloat16Bits = std::uint16_t;

inline Bfloat16Bits* bfloat16_bits(const at::Tensor& tensor) {
  return reinterpret_cast<Bfloat16Bits*>(tensor.data_ptr<at::BFloat16>());
}

// Returns a pointer to element `at`, or null if the tensor is undefined.
template <typename Number>
const Number* data_of(const at::Tensor& tensor, std::int64_t at = 0) {
  return tensor.defined() ? tensor.data_ptr<Number>() + at : nullptr;
}

// Calls work() with a pointer to the tensor's elements. These are Real; if Real is float, they may
// be bfloat16.
template <typename Real, typename Work>
void with_numbers(const at::Tensor& tensor, const Work& work) {
  if constexpr (std::is_same_v<Real, float>) {
    if (tensor.scalar_type() == at::kBFloat16) {
      work(bfloat16_bits(tensor));
      return;
    }
  }
  work(tensor.data_ptr<Real>());
}

// Sets `to` to the nearest bfloat16 value; a tie goes to the even value.
QL_VECTOR_BODY void store_number(float number, Bfloat16Bits& to) {
  std::uint32_t bits;
  std::memcpy(&bits, &number, sizeof(bits));
  const std::uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  // Rounding could turn a NaN into an infinity, so a NaN is truncated, with a mantissa bit set.
  const std::uint32_t no_number = (bits >> 16) | 0x40;
  to = static_cast<Bfloat16Bits>((bits & 0x7FFFFFFF) > 0x7F800000 ? no_number : rounded);
}
QL_VECTOR_BODY void store_number(float number, float& to) { to = number; }
QL_VECTOR_BODY void store_number(double number, double& to) { to = number; }

QL_VECTOR_BODY float load_number(Bfloat16Bits from) {
  const std::uint32_t bits = static_cast<std::uint32_t>(from) << 16;
  float number;
  std::memcpy(&number, &bits, sizeof(number));
  return number;
}
QL_VECTOR_BODY float load_number(float from) { return from; }
QL_VECTOR_BODY double load_number(double from) { return from; }

// Copies elements, and rounds or widens them if one type is bfloat16 and the other one is float. If
// source and target are the same memory, there is nothing to do.
template <typename From, typename To>
QL_VECTOR_BODY void copy_numbers_body(const From* from, std::int64_t count, To* to) {
  if (static_cast<const void*>(from) == static_cast<const void*>(to)) return;
  for (std::int64_t i = 0; i < count; ++i) store_number(load_number(from[i]), to[i]);
}
QL_VECTOR_KERNEL(copy_numbers)

// Does the same for `count` rows, which are `stride` and `to_stride` elements apart.
template <typename From, typename To>
QL_VECTOR_BODY void copy_rows_body(const From* from, std::int64_t stride, std::int64_t count,
                                   std::int64_t width, To* to, std::int64_t to_stride) {
  for (std::int64_t r = 0; r < count; ++r) {
    for (std::int64_t n = 0; n < width; ++n) {
      store_number(load_number(from[r * stride + n]), to[r * to_stride + n]);
    }
  }
}
QL_VECTOR_KERNEL(copy_rows)

// Sets to[i] = factor * from[i].
template <typename Real>
QL_VECTOR_BODY void scale_numbers_body(const Real* from, std::int64_t count, Real factor,
                                       Real* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = factor * from[i];
}
QL_VECTOR_KERNEL(scale_numbers)

// Adds rows[0][n] + rows[1][n] + ... to sums[n], for `count` rows that are `stride` elements apart.
template <typename Number, typename Real>
QL_VECTOR_BODY void add_to_sums_body(const Number* rows, std::int64_t stride, std::int64_t count,
                                     std::int64_t width, Real* sums) {
  for (std::int64_t r = 0; r < count; ++r) {
    for (std::int64_t n = 0; n < width; ++n) sums[n] += load_number(rows[r * stride + n]);
  }
}
QL_VECTOR_KERNEL(add_to_sums)

// Register declares vectors that have the size of a register. It uses GCC's vector extension, which
// Clang supports, too. The vectors are for kernels that do not leave the use of registers to the
// compiler.

template <typename Real, int kBytes>
struct Register {
  static constexpr std::int64_t kSize = kBytes / static_cast<int>(sizeof(Real));
  using Integer = std::conditional_t<sizeof(Real) == 4, std::int32_t, std::int64_t>;
  typedef Real Vector __attribute__((vector_size(kBytes)));
  typedef Integer Integers __attribute__((vector_size(kBytes)));
};

// The functions below take vectors by reference. By value, vectors of 32 and 64 bytes have a
// defined calling convention only in code for AVX and AVX-512. The memory that the functions access
// needs only the alignment of an element. Memory is read and written by assignment, not by
// std::memcpy(), so that the compiler keeps vectors in registers.

// Vector is kBytes of consecutive elements in memory, aligned as a single element is. The memory
// may hold another type: pairs of bfloat16 are transposed as floats. Element is a structure,
// because GCC 12 ignores may_alias of another name for a number in a template.
template <typename Number, int kBytes>
struct Neighbours {
  typedef Number Vector __attribute__((vector_size(kBytes), aligned(sizeof(Number)), may_alias));
  struct __attribute__((may_alias)) Element {
    Number value;
  };
};

template <typename Vector, typename Real>
QL_VECTOR_BODY void load(const Real* from, Vector& vector) {
  vector = *reinterpret_cast<const typename Neighbours<Real, sizeof(Vector)>::Vector*>(from);
}

// Loads bfloat16 elements and converts them to float.
template <typename Vector>
QL_VECTOR_BODY void load(const Bfloat16Bits* from, Vector& vector) {
  using Narrow = typename Neighbours<Bfloat16Bits, sizeof(Vector) / 2>::Vector;
  using Wide = typename Neighbours<std::uint32_t, sizeof(Vector)>::Vector;
  const Wide bits = __builtin_convertvector(*reinterpret_cast<const Narrow*>(from), Wide) << 16;
  vector = reinterpret_cast<Vector>(bits);
}

template <typename Vector, typename Real>
QL_VECTOR_BODY void store(const Vector& vector, Real* to) {
  *reinterpret_cast<typename Neighbours<Real, sizeof(Vector)>::Vector*>(to) = vector;
}

// Loads the first `count` lanes from memory. The others become 0.
template <typename Vector, typename Number>
QL_VECTOR_BODY void load_part(const Number* from, std::int64_t count, Vector& vector) {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(Vector) / sizeof(vector[0]));
  if (count >= kSize) {
    load(from, vector);
    return;
  }
  Number lanes[kSize] = {};
  const auto* elements =
      reinterpret_cast<const typename Neighbours<Number, sizeof(Vector)>::Element*>(from);
  for (std::int64_t lane = 0; lane < count; ++lane) lanes[lane] = elements[lane].value;
  load(&lanes[0], vector);
}

// Masks of lanes have all bits of a lane, or none. For vectors of 64 bytes, GCC 12 compares
// integers lane by lane, so masks are read from memory, and lanes are chosen by operations on bits.
// The first half of `masks` is 0, so a vector that is read b elements before the middle lacks its
// first b lanes.
template <typename Integer>
struct LaneMasks {
  static constexpr std::int64_t kMost = 64 / static_cast<std::int64_t>(sizeof(Integer));
  Integer masks[2 * kMost] = {};
  constexpr LaneMasks() {
    for (std::int64_t i = kMost; i < 2 * kMost; ++i) masks[i] = Integer(-1);
  }
};
template <typename Integer>
inline constexpr LaneMasks<Integer> kLaneMasks;

// Sets the mask to the lanes from `begin` up to `end`; the bounds may lie outside of the vector.
template <typename Integers>
QL_VECTOR_BODY void mask_lanes(std::int64_t begin, std::int64_t end, Integers& mask) {
  using Integer = std::decay_t<decltype(mask[0])>;
  constexpr std::int64_t kSize = sizeof(Integers) / sizeof(Integer);
  constexpr std::int64_t kMost = LaneMasks<Integer>::kMost;
  const Integer* const masks = kLaneMasks<Integer>.masks + kMost;
  Integers from_begin, from_end;
  load(masks - std::clamp(begin, std::int64_t{0}, kSize), from_begin);
  load(masks - std::clamp(end, std::int64_t{0}, kSize), from_end);
  mask = from_begin & ~from_end;
}

// sum_of_lanes() adds one half of the lanes to the other half until lane 0 is the sum of all lanes.
// largest_lane() compares the halves in the same way.
template <typename Real, typename Vector>
QL_VECTOR_BODY Real sum_of_lanes(const Vector& vector) {
  constexpr int kSize = sizeof(Vector) / sizeof(Real);
  Real lanes[kSize];
  store(vector, &lanes[0]);
  for (int half = kSize / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

template <typename Real, typename Vector>
QL_VECTOR_BODY Real largest_lane(const Vector& vector) {
  constexpr int kSize = sizeof(Vector) / sizeof(Real);
  Real lanes[kSize];
  store(vector, &lanes[0]);
  for (int half = kSize / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) {
      lanes[lane] = lanes[lane] < lanes[lane + half] ? lanes[lane + half] : lanes[lane];
    }
  }
  return lanes[0];
}

// Replaces each lane by its exponential().
template <int kBytes>
QL_VECTOR_BODY void exponentiate(typename Register<float, kBytes>::Vector& x) {
  exponentiate_in_place<typename Register<float, kBytes>::Integers>(x);
}
template <int kBytes>
QL_VECTOR_BODY void exponentiate(typename Register<double, kBytes>::Vector& x) {
  for (std::int64_t lane = 0; lane < Register<double, kBytes>::kSize; ++lane) {
    x[lane] = exponential(x[lane]);
  }
}

// exchange() divides a and b into blocks of kStep lanes, numbered from 0. It swaps block 1 of a
// with block 0 of b, block 3 of a with block 2 of b, and so on. This function returns the index in
// concat(a, b) of the element that exchange() puts into `lane` of a, or of b if kSecond is true.
template <int kSize, int kStep, bool kSecond>
constexpr int exchanged_lane(int lane) {
  const bool from_a = (lane & kStep) == 0;
  return kSecond ? (from_a ? lane + kStep : kSize + lane) : (from_a ? lane : kSize + lane - kStep);
}

template <int kStep, typename Integers, typename Vector, std::size_t... kLanes>
QL_VECTOR_BODY void exchange(Vector& a, Vector& b, std::index_sequence<kLanes...> /*lanes*/) {
  constexpr int kSize = sizeof...(kLanes);
#if defined(__clang__)
  const Vector first =
      __builtin_shufflevector(a, b, exchanged_lane<kSize, kStep, false>(kLanes)...);
  b = __builtin_shufflevector(a, b, exchanged_lane<kSize, kStep, true>(kLanes)...);
#else
  const Vector first =
      __builtin_shuffle(a, b, Integers{exchanged_lane<kSize, kStep, false>(kLanes)...});
  b = __builtin_shuffle(a, b, Integers{exchanged_lane<kSize, kStep, true>(kLanes)...});
#endif
  a = first;
}

// Transposes a square matrix of as many vectors as a vector has lanes. The function calls itself
// with a kStep of 1, 2, 4 and so on, and each time exchanges blocks of kStep lanes between vectors
// that are kStep apart.
template <typename Real, int kBytes, int kStep = 1>
QL_VECTOR_BODY void transpose(typename Register<Real, kBytes>::Vector* vectors) {
  constexpr int kSize = Register<Real, kBytes>::kSize;
  if constexpr (kStep < kSize) {
    QL_UNROLL
    for (int i = 0; i < kSize; ++i) {
      if ((i & kStep) == 0) {
        exchange<kStep, typename Register<Real, kBytes>::Integers>(
            vectors[i], vectors[i + kStep], std::make_index_sequence<kSize>());
      }
    }
    transpose<Real, kBytes, 2 * kStep>(vectors);
  }
}

}  // namespace ql::kernels
