// Names the precisions of a network's matrix products.
#pragma once

#include <array>

#include "base/strings.h"

namespace ql::machine {

// Weights, the sums of their gradients, the optimizer, norms, softmax and losses are float32 in
// every precision. nn::ModelPrecision makes a model compute in a precision. On the CPU,
// kernels/product.h multiplies; on a GPU, LibTorch multiplies under Autocast (machine/device.h).
// Every CPU has float32, and some CPUs have bfloat16; the other precisions need a GPU.
enum class Precision {
  kFloat32,
  kTf32,      // products of float32 values whose mantissas are rounded to 10 bits when read
  kBfloat16,  // products of bfloat16 values; all results are bfloat16 on a GPU, some on the CPU
  kFloat16,   // products of float16 values, with results in float16
  kAuto,      // the fastest of these that the device has; set_up_precision() finds it
};

constexpr auto names_of(Precision) {
  return std::array{"float32", "tf32", "bfloat16", "float16", "auto"};
}

}  // namespace ql::machine
