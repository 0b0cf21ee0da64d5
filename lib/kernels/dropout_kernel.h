// Draws from Philox (kernels/philox.h) which elements dropout keeps.
#pragma once

#include <cstdint>

#include "kernels/vector.h"

namespace ql::kernels {

// One Philox call gives eight numbers of 16 bits. Sixteen calls side by side fill a group of 128
// elements: number i of call k is the group's element 16 i + k, so that calls and elements can both
// be vectors. The counter is {16 * group + call, place, low and high word of the step}, the key is
// the seed.
struct DropoutStream {
  std::uint64_t seed = 0, step = 0;
  std::uint32_t place = 0;
};

constexpr std::int64_t kDropoutCalls = 16;
constexpr std::int64_t kDropoutGroup = 8 * kDropoutCalls;

// kept[i] = 1 where the number of element first + i is at least `dropped` < 65536, else 0.
void fill_kept(std::uint8_t* kept, std::int64_t first, std::int64_t count,
               const DropoutStream& stream, std::uint32_t dropped,
               machine::VectorVersion version = machine::vector_version());

// factors[i] = kept[i * step] ? factor : 0.
template <typename Real>
QL_VECTOR_BODY void make_factors_body(const std::uint8_t* kept, std::int64_t step,
                                      std::int64_t count, Real factor, Real* factors) {
  if (step == 1) {
    for (std::int64_t i = 0; i < count; ++i) factors[i] = kept[i] != 0 ? factor : Real(0);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) factors[i] = kept[i * step] != 0 ? factor : Real(0);
}
QL_VECTOR_KERNEL(make_factors)

}  // namespace ql::kernels
