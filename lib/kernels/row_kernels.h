// Runs the operations on rows of states around a layer's matrix products: sums with bias, dropout
// and residual, layer norm, ReLU, and their gradients. Each is one pass over memory, on the CPU and
// outside of autograd.
//
// Tensors are contiguous, float32 or float64; "rows" are [rows, width], whatever dimensions the
// tensors have before the last one. Sums over rows are taken in blocks of fixed size, so that they
// do not depend on the number of threads.
#pragma once

#include <ATen/ATen.h>

#include "kernels/kept_elements.h"

namespace ql::kernels {

// The input of residual + dropout(output + bias). An undefined bias counts as 0.
struct ResidualRows {
  at::Tensor residual, output, bias;
  KeptElements kept;
};
at::Tensor add_rows(const ResidualRows& input);

// Layer norm by rows, without weight and bias: (x - mean) / deviation, where deviation =
// sqrt(variance + kLayerNormEpsilon) and the variance is that of the row's numbers, divided by
// their count.
struct NormalizedRows {
  at::Tensor values;
  at::Tensor statistics;  // [rows, 2]: mean and 1 / deviation
};
NormalizedRows normalize_rows(const at::Tensor& states);

// add_rows() and the layer norm of its result, with weight and bias, in one pass.
struct AddedRows {
  at::Tensor sum;
  NormalizedRows normalized;
};
AddedRows add_and_normalize_rows(const ResidualRows& input, const at::Tensor& weight,
                                 const at::Tensor& bias);

// Gradients of add_rows(). That of the residual is the sum's own.
struct AddGradients {
  at::Tensor output, bias;
};
AddGradients add_rows_gradients(const at::Tensor& sum_gradient, const KeptElements& kept,
                                bool with_bias);

// Gradients of add_and_normalize_rows(), given those of its sum (undefined: zeros) and of the
// normalized rows.
struct AddNormGradients {
  at::Tensor residual, output, bias, weight, norm_bias;
};
AddNormGradients add_norm_gradients(const AddedRows& result, const at::Tensor& weight,
                                    const at::Tensor& sum_gradient,
                                    const at::Tensor& normalized_gradient, const KeptElements& kept,
                                    bool with_bias);

// Replaces the gradient by the normalized `values` (weight 1, bias 0) by that of the states before
// the norm. `deviations` [rows] holds 1 / deviation.
void normalize_rows_gradient_(at::Tensor& gradient, const at::Tensor& values,
                              const at::Tensor& deviations);

// Sets inner = dropout(relu(inner + bias)) in place.
void relu_rows_(at::Tensor& inner, const at::Tensor& bias, const KeptElements& kept);

// Replaces the gradient by relu_rows_()'s result `inner` by that of its input, and returns the
// bias's gradient. Elements that were dropped or negative are 0 in `inner`, so the mask is not
// needed again.
at::Tensor relu_rows_gradient_(at::Tensor& gradient, const at::Tensor& inner, double factor);

}  // namespace ql::kernels
