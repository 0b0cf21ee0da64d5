// Has the precisions of a network's matrix products.
#pragma once

#include <array>

#include "base/strings.h"

namespace ql::machine {

// Weights, the sums of their gradients, the optimizer, norms, softmax and losses are float32 in
// each of them. nn::ModelPrecision makes a model compute in one: kernels/product.h
// multiplies on the CPU, and LibTorch under Autocast of machine/device.h on a GPU. All except
// float32, and bfloat16 on some CPUs, need a GPU.
enum class Precision {
  kFloat32,
  kTf32,      // products of float32 values, rounded to 10 bits of mantissa while they are read
  kBfloat16,  // products of bfloat16 values, and the tensors between two products
  kFloat16,   // the same with float16 values
  kAuto,      // the fastest of these that the device has; set_up_precision() returns it
};

constexpr auto names_of(Precision) {
  return std::array{"float32", "tf32", "bfloat16", "float16", "auto"};
}

}  // namespace ql::machine
