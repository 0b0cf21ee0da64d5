// The precision of a network's matrix products.
#pragma once

#include <string>
#include <vector>

namespace ql::nn {

// Weights, their gradients' sums, the optimizer, norms, softmax and losses are float32 in each of
// them. Beside float32 all need a GPU (nn/device.h).
enum class Precision {
  kFloat32,
  kTf32,      // products of float32 numbers, rounded to 10 bits of mantissa while they are read
  kBfloat16,  // products of bfloat16 numbers, and what lies between two products
  kFloat16,   // likewise of float16 numbers
};

const std::vector<std::string>& precision_names();
std::string to_text(Precision precision);
// Throws ConfigError naming `where` and the names there are.
Precision precision_from_text(const std::string& text, const std::string& where);

}  // namespace ql::nn
