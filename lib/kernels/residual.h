// Residual connections with dropout and layer norm, as one operation with a gradient of its own; on
// the CPU. The plain operations in lib/nn/layers.cpp say the same.
#pragma once

#include <ATen/ATen.h>

#include "kernels/kept_elements.h"

namespace ql::kernels {

// residual + dropout(output + bias), all [.., d_model]; an undefined bias [d_model] counts 0.
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
