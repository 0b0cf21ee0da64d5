#include "nn/softmax.h"

namespace ql::nn {

at::Tensor cross_entropy(const at::Tensor& states, const at::Tensor& weight, const at::Tensor& bias,
                         const at::Tensor& targets) {
  const at::Tensor logarithms = at::log_softmax(at::linear(states, weight, bias), -1);
  return -logarithms.gather(1, targets.unsqueeze(1)).squeeze(1);
}

}  // namespace ql::nn
