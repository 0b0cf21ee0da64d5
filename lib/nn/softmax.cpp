#include "nn/softmax.h"

#include <torch/csrc/autograd/custom_function.h>

#include "nn/softmax_blocks.h"

namespace ql::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& states,
                            const at::Tensor& weight, const at::Tensor& bias,
                            const at::Tensor& targets) {
    SoftmaxGradients gradients;
    at::Tensor losses = softmax_blocks({states, weight, bias, targets}, at::Tensor(), &gradients);
    context->save_for_backward({states, weight, bias, targets});
    context->saved_data["states"] = gradients.states;
    context->saved_data["weight"] = gradients.weight;
    context->saved_data["bias"] = gradients.bias;
    return losses;
  }

  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const at::Tensor factors = outputs[0].contiguous();
    const at::Tensor first = factors.select(0, 0);
    if (factors.eq(first).all().item<bool>()) {
      return {context->saved_data["states"].toTensor() * first,
              context->saved_data["weight"].toTensor() * first,
              context->saved_data["bias"].toTensor() * first, at::Tensor()};
    }
    const variable_list saved = context->get_saved_variables();
    SoftmaxGradients gradients;
    softmax_blocks({saved[0], saved[1], saved[2], saved[3]}, factors, &gradients);
    return {gradients.states, gradients.weight, gradients.bias, at::Tensor()};
  }
};

}  // namespace

at::Tensor cross_entropy(const at::Tensor& states, const at::Tensor& weight, const at::Tensor& bias,
                         const at::Tensor& targets) {
  if (!states.is_cpu()) {
    const at::Tensor logarithms = at::log_softmax(at::linear(states, weight, bias), -1);
    return -logarithms.gather(1, targets.unsqueeze(1)).squeeze(1);
  }
  const bool with_gradients =
      at::GradMode::is_enabled() &&
      (states.requires_grad() || weight.requires_grad() || bias.requires_grad());
  if (!with_gradients) {
    return softmax_blocks(
        {states.contiguous(), weight.contiguous(), bias.contiguous(), targets.contiguous()},
        at::Tensor(), nullptr);
  }
  return CrossEntropy::apply(states.contiguous(), weight.contiguous(), bias.contiguous(),
                             targets.contiguous());
}

}  // namespace ql::nn
