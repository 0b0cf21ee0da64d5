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

// Layer norm by rows: (x - mean) / deviation * weight + bias, where deviation = sqrt(variance +
// kLayerNormEpsilon) and the variance is that of the row's numbers, divided by their count. An
// undefined weight counts as 1, with a bias of 0.
struct NormalizedRows {
  at::Tensor values;
  at::Tensor statistics;  // [rows, 2]: mean and 1 / deviation
};
// `factor` is set to the values as well, in the precision of `beside`, a factor
// (kernels/product.h).
NormalizedRows normalize_rows(const at::Tensor& states, const at::Tensor& weight,
                              const at::Tensor& bias, const at::Tensor& beside, at::Tensor& factor);

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

// Returns the sums over the rows, and sets `factor` to the rows, in the precision of `beside`.
at::Tensor sum_rows(const at::Tensor& rows, const at::Tensor& beside, at::Tensor& factor);

// Sets hidden = dropout(relu(inner + bias)). `hidden` is `inner` itself, or of bfloat16: then its
// numbers are rounded.
void relu_rows(const at::Tensor& inner, const at::Tensor& bias, const KeptElements& kept,
               const at::Tensor& hidden);

// With the gradient by relu_rows()'s result `hidden`: sets `slopes` to that by its input, and
// returns that by the bias. Elements that were dropped or negative are 0 in `hidden`, so the mask
// is not needed again. `slopes` is `gradient` itself, or of bfloat16 as `hidden` is.
at::Tensor relu_rows_gradient(const at::Tensor& gradient, const at::Tensor& hidden, double factor,
                              const at::Tensor& slopes);

}  // namespace ql::kernels
