// Has the operations on rows of states between a layer's matrix products: the sum of residual and
// dropout(output + bias); layer norm; dropout(relu(hidden + bias)); and the gradients of these.
// Each operation is one pass over memory, on the CPU and outside of autograd.
//
// Tensors are contiguous, float32 or float64. Masks are uint8, and tensors that are operands or
// results of matrix products may be bfloat16 where this is said. A tensor is treated as rows [rows,
// width], whatever dimensions it has before the last one. Sums over rows are computed in blocks of
// fixed size, so that the sums do not depend on the number of threads.
#pragma once

#include <ATen/ATen.h>

#include "kernels/dropout_kernel.h"

namespace ql::kernels {

// Holds the input of residual + dropout(output + bias). An undefined bias counts as 0.
struct ResidualRows {
  at::Tensor residual, output, bias;
  DropoutMask kept;
};

// The layer norm of a row is (x - mean) / deviation * weight + bias, where deviation =
// sqrt(variance + kLayerNormEpsilon) and the variance of a row is the mean of (x - mean)^2. An
// undefined weight counts as 1, with a bias of 0.
struct NormalizedRows {
  at::Tensor values;
  at::Tensor statistics;  // [rows, 2]: mean and 1 / deviation
};
// Normalizes the rows of `states`. The values are an operand for a product with `beside`
// (kernels/product.h): they are rounded if `beside` is bfloat16.
NormalizedRows normalize_rows(const at::Tensor& states, const at::Tensor& weight,
                              const at::Tensor& bias, const at::Tensor& beside);

// add_rows() computes the sum residual + dropout(output + bias) from the members of `input`, and
// the layer norm of the sum. `weight` and `bias` are those of the norm. Without a weight,
// add_rows() computes the sum alone.
struct AddedRows {
  at::Tensor sum;
  NormalizedRows normalized;
};
AddedRows add_rows(const ResidualRows& input, const at::Tensor& weight = {},
                   const at::Tensor& bias = {});

// Holds the gradients of add_rows(). norm_weight and norm_bias stay undefined if add_rows() got no
// weight.
struct AddGradients {
  at::Tensor residual, output, bias, norm_weight, norm_bias;
};
// Returns the gradients for the inputs of an add_rows() without a norm.
AddGradients add_rows_gradients(const at::Tensor& sum_gradient, const DropoutMask& kept,
                                bool with_bias);
// Returns the gradients for the inputs of an add_rows() with a norm. An undefined `sum_gradient`
// counts as 0.
AddGradients add_norm_gradients(const AddedRows& result, const at::Tensor& weight,
                                const at::Tensor& sum_gradient,
                                const at::Tensor& normalized_gradient, const DropoutMask& kept,
                                bool with_bias);

// Turns the gradient with respect to the normalized values (weight 1, bias 0) of `states` into the
// gradient with respect to `states`. `statistics` are those of normalize_rows().
void normalize_rows_gradient(at::Tensor& gradient, const at::Tensor& states,
                             const at::Tensor& statistics);

// Returns the sum of all rows [width]. Also sets `factor` to the rows as an operand for a product
// with `beside` (kernels/product.h). The rows may be bfloat16; their sum is float32 then.
at::Tensor sum_rows(const at::Tensor& rows, const at::Tensor& beside, at::Tensor& factor);

// Sets hidden = dropout(relu(hidden + bias)). `hidden` may be bfloat16.
void relu_rows(at::Tensor& hidden, const at::Tensor& bias, const DropoutMask& kept);

// Turns the gradient with respect to `hidden`, the result of relu_rows(), into the gradient with
// respect to the values that relu_rows() replaced, and returns the gradient of `bias`. Both tensors
// are bfloat16, or none; throws std::logic_error if only one is. `factor` is DropoutMask::factor.
// The mask's elements are not needed, because dropped elements are 0 in `hidden`.
at::Tensor relu_rows_gradient(at::Tensor& gradient, const at::Tensor& hidden, double factor);

}  // namespace ql::kernels
