// Has the linear maps of a layer: a single projection, and the joint projection to queries, keys
// and values.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "kernels/product.h"

namespace ql::kernels {

// Returns the same as at::linear(): `states` [..., width] times the transpose of `weight` [columns,
// width], plus `bias` [columns] unless `bias` is undefined. On the CPU, product()
// (kernels/product.h) computes the matrix product.
at::Tensor project(const at::Tensor& states, const at::Tensor& weight, const at::Tensor& bias = {});

// Computes project() for a `weight` that is a parameter in another order. `factor` is
// weight_factor() of the parameter (kernels/product.h) in this order. On the CPU, the matrix
// product reads only `factor`, and `weight` gets the gradient.
at::Tensor project(const at::Tensor& states, const at::Tensor& weight, const at::Tensor& bias,
                   const at::Tensor& factor);

// project_window() computes the queries, keys and values of a layer on the CPU, as one operation
// with its own gradient. lib/nn/layers.cpp computes the same by plain operations.

struct QueriesKeysValues {
  at::Tensor queries;      // [batch, segment, n_head, d_head]
  at::Tensor keys_values;  // [batch, window, 2, n_head, d_head]; may be bfloat16
};

// `states` [batch, segment, d_model] are the last states of `window` [batch, window, d_model]. Both
// are normalized first if norm_weight and norm_bias [d_model] are defined. qkv_net is [3 * n_head *
// d_head, d_model].
//
// The other states of the window are memory, whose gradient is not computed. A state x that is
// normalized without weight and bias becomes x * w + b, with the norm's weight w and bias b. With W
// for qkv_net, the norm is folded into the weights: W (x * w + b) = (W * w) x + W b. The gradients
// of W, w and b follow from those of W * w and W b. So the backward pass saves the matrix product
// that would compute the gradient of x * w + b for the memory.
//
// If the weights are rounded to bfloat16 and the window is short (kernels/attention.h), keys and
// values are bfloat16, and so is their gradient: moving them to and from memory takes more time
// than computing with them.
QueriesKeysValues project_window(const at::Tensor& states, const at::Tensor& window,
                                 const at::Tensor& norm_weight, const at::Tensor& norm_bias,
                                 const at::Tensor& qkv_net, std::int64_t heads);

}  // namespace ql::kernels
