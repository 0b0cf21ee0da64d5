// Draws the mask of the elements that dropout keeps, and turns masks into factors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/philox.h"
#include "kernels/vector.h"

namespace ql::kernels {

// Holds a dropout mask as our own kernels read it.
struct DropoutMask {
  at::Tensor elements;  // uint8, 1 for each kept element; undefined: all are kept
  double factor = 1;
};

// One Philox call gives eight values of 16 bits. Sixteen consecutive calls fill a group of 128
// elements. Value i of call k is the group's element 16 i + k, so that loops over calls and loops
// over elements can both be vectorized. The counter is {16 * group + call, place, low word of the
// step, high word of the step}, and the key is the seed. `place` is the id of a dropout site
// (nn/dropout.h).
struct DropoutStream {
  std::uint64_t seed = 0, step = 0;
  std::uint32_t place = 0;
};

constexpr std::int64_t kDropoutCalls = 16;
constexpr std::int64_t kDropoutGroup = 8 * kDropoutCalls;

// Sets kept[i] to 1 if the random value of element first + i is at least `dropped`, else to 0.
// `dropped` must be below 65536.
void fill_kept(std::uint8_t* kept, std::int64_t first, std::int64_t count,
               const DropoutStream& stream, std::uint32_t dropped,
               machine::VectorVersion version = machine::vector_version());

// Sets factors[i] = kept[i * step] ? factor : 0.
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
