// Draws the mask of the elements that dropout keeps.
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

// Describes a mask without its elements. On the CPU, element i of the mask is value first + i of
// the stream: it is kept if this value is at least `dropped`. `dropped` is the rate in steps of
// 1/65536, below 65536; 0: all elements are kept.
struct DropoutDraw {
  DropoutStream stream;
  std::int64_t first = 0;
  std::uint32_t dropped = 0;
  double factor() const { return 65536.0 / (65536.0 - dropped); }  // of the kept elements
};

// Sets kept[i] to 1 if the random value of element first + i is at least `dropped`, else to 0.
// `dropped` must be below 65536.
void fill_kept(std::uint8_t* kept, std::int64_t first, std::int64_t count,
               const DropoutStream& stream, std::uint32_t dropped,
               machine::VectorVersion version = machine::vector_version());

// Returns the mask's elements, uint8 [shape]: 1 for a kept element, else 0. Devices other than the
// CPU draw from their own generator, which a CUDA graph can replay, and read only `dropped`.
at::Tensor draw_kept(const DropoutDraw& draw, at::IntArrayRef shape, const at::Device& device);

}  // namespace ql::kernels
