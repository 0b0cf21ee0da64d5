// What operations with a gradient of their own need from LibTorch. For lib/nn's sources.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace ql::nn {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// An undefined tensor as autograd wants it among the inputs.
using OptionalTensor = c10::optional<at::Tensor>;
inline OptionalTensor optional_tensor(const at::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : OptionalTensor();
}

}  // namespace ql::nn
