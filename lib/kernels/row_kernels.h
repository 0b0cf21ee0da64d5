// The passes over rows of states around a layer's matrix products, each once over memory: sums with
// bias, dropout and residual, layer norm, ReLU. On the CPU, outside of autograd.
//
// Tensors are contiguous, float32 or float64; "rows" are [rows, width], whatever dimensions the
// tensors have before the last one. Sums over rows are taken in blocks of fixed size, so that they
// do not depend on the number of threads.
#pragma once

#include <ATen/ATen.h>

#include "kernels/kept_elements.h"

namespace ql::kernels {

// residual + dropout(output + bias). An undefined bias counts 0.
struct ResidualRows {
  at::Tensor residual, output, bias;
  KeptElements kept;
};
at::Tensor add_rows(const ResidualRows& input);

// Layer norm by rows, without weight and bias.
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

// Gradients of add_rows(): of the residual it is the sum's own.
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

// Of the states behind normalized `values` (weight and bias 1 and 0), from their gradient: in its
// place. `deviations` [rows] holds 1 / deviation.
void normalize_rows_gradient_(at::Tensor& gradient, const at::Tensor& values,
                              const at::Tensor& deviations);

// inner = dropout(relu(inner + bias)), in place.
void relu_rows_(at::Tensor& inner, const at::Tensor& bias, const KeptElements& kept);

// The gradient of what relu_rows_() began with, in place of that of its result `inner`; returns the
// bias's. What was dropped or negative is 0 in `inner`, so the mask is not needed again.
at::Tensor relu_rows_gradient_(at::Tensor& gradient, const at::Tensor& inner, double factor);

}  // namespace ql::kernels
