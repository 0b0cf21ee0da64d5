// Adds residual connections with dropout and layer norm on the CPU, as one operation with a
// gradient of its own. lib/nn/layers.cpp computes the same by plain operations.
#pragma once

#include <ATen/ATen.h>

#include "kernels/kept_elements.h"

namespace ql::kernels {

// Returns residual + dropout(output + bias), all [.., d_model]. An undefined bias [d_model] counts
// as 0.
at::Tensor add_residual(const at::Tensor& residual, const at::Tensor& output,
                        const at::Tensor& bias, const KeptElements& kept);

// The same sum and its layer norm.
struct SumAndNorm {
  at::Tensor sum, normalized;
};
SumAndNorm add_residual_and_normalize(const at::Tensor& residual, const at::Tensor& output,
                                      const at::Tensor& bias, const KeptElements& kept,
                                      const at::Tensor& norm_weight, const at::Tensor& norm_bias);

}  // namespace ql::kernels
