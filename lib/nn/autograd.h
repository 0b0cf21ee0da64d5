// What operations with a gradient of their own need from LibTorch. For lib/nn's sources.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace ql::nn {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// An undefined tensor as autograd wants it among the inputs: in c10::optional until LibTorch 2.3,
// in std::optional since.
using OptionalTensor = decltype(std::declval<c10::IValue&>().toOptional<at::Tensor>());
inline OptionalTensor optional_tensor(const at::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : OptionalTensor();
}

}  // namespace ql::nn
