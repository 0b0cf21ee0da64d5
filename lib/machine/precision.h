// The precision of a network's matrix products.
#pragma once

#include <array>

#include "base/names.h"

namespace ql::machine {

// Weights, their gradients' sums, the optimizer, norms, softmax and losses are float32 in each of
// them. Beside float32 all need a GPU (machine/device.h).
enum class Precision {
  kFloat32,
  kTf32,      // products of float32 numbers, rounded to 10 bits of mantissa while they are read
  kBfloat16,  // products of bfloat16 numbers, and what lies between two products
  kFloat16,   // likewise of float16 numbers
  kAuto,      // the fastest of these that the device has; set_up_precision() says which that is
};

constexpr auto names_of(Precision) {
  return std::array{"float32", "tf32", "bfloat16", "float16", "auto"};
}

}  // namespace ql::machine
