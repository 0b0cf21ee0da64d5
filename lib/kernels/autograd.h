// Includes the headers of LibTorch with which the sources of lib/kernels define operations with
// their own gradients.
#pragma once

#include <ATen/ATen.h>
#if defined(__GNUC__) && !defined(__clang__)
// GCC 14 wrongly warns of an overflow in the std::vector<bool> of LibTorch 2.6's Function::apply().
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Warray-bounds"
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#endif
#include <torch/csrc/autograd/custom_function.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include <utility>

namespace ql::kernels {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// For an input that may be undefined, autograd takes an optional. Its type is c10::optional up to
// LibTorch 2.3, and std::optional in later versions.
using OptionalTensor = decltype(std::declval<c10::IValue&>().toOptional<at::Tensor>());
inline OptionalTensor optional_tensor(const at::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : OptionalTensor();
}

}  // namespace ql::kernels
