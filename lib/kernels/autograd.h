// Includes the headers of LibTorch that operations with their own gradients need, for the sources
// of lib/kernels.
#pragma once

#include <ATen/ATen.h>
#if defined(__GNUC__) && !defined(__clang__)
// GCC 14 mistakes the std::vector<bool> in LibTorch 2.6's Function::apply() for an overflow.
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

// Autograd takes an input that may be undefined as an optional: this is c10::optional up to
// LibTorch 2.3, and std::optional since then.
using OptionalTensor = decltype(std::declval<c10::IValue&>().toOptional<at::Tensor>());
inline OptionalTensor optional_tensor(const at::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : OptionalTensor();
}

}  // namespace ql::kernels
