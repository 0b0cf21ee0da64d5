// Vectors of the size of a register, by GCC's vector extension, which Clang shares. They are for
// kernels that do not leave the use of registers to the compiler (kernels/vector.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/bfloat16_number.h"
#include "kernels/vector.h"

namespace ql::kernels {

template <typename Real, int kBytes>
struct Register {
  static constexpr std::int64_t kSize = kBytes / static_cast<int>(sizeof(Real));
  using Integer = std::conditional_t<sizeof(Real) == 4, std::int32_t, std::int64_t>;
  typedef Real Vector __attribute__((vector_size(kBytes)));
  typedef Integer Integers __attribute__((vector_size(kBytes)));
};

// The functions below take vectors by reference: passed by value, vectors wider than the portable
// registers would have no agreed place. Memory need not be aligned. It is read and written by
// assignment, not by std::memcpy(), so that the compiler keeps vectors in registers.

// So many bytes of numbers in memory.
template <typename Number, int kBytes>
struct Neighbours {
  typedef Number Vector __attribute__((vector_size(kBytes), aligned(sizeof(Number))));
};

template <typename Vector, typename Real>
QL_VECTOR_BODY void load(const Real* from, Vector& vector) {
  vector = *reinterpret_cast<const typename Neighbours<Real, sizeof(Vector)>::Vector*>(from);
}

// Numbers of bfloat16 become floats (kernels/bfloat16_number.h).
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
  for (std::int64_t lane = 0; lane < count; ++lane) lanes[lane] = from[lane];
  load(&lanes[0], vector);
}

// numbers = first, first + 1, first + 2, ...
template <typename Integers>
QL_VECTOR_BODY void count_up(std::int64_t first, Integers& numbers) {
  constexpr int kSize = sizeof(Integers) / sizeof(numbers[0]);
  for (int lane = 0; lane < kSize; ++lane) {
    numbers[lane] = static_cast<std::decay_t<decltype(numbers[0])>>(lane);
  }
  numbers += static_cast<std::decay_t<decltype(numbers[0])>>(first);
}

// Adds (or compares) one half of the lanes with the other until lane 0 is the sum (or the largest)
// of all.
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

// Each lane becomes its exponential() (kernels/vector.h).
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

// The lane that exchange() takes from (a, b). Of every two neighbouring blocks of kStep lanes it
// takes the first one (with kSecond the second) of a, then that of b.
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

// Transposes the square of as many vectors as a vector has lanes; kStep is for the recursion:
// blocks of kStep lanes change places with those kStep vectors away.
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
