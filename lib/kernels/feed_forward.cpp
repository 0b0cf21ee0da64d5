#include "kernels/feed_forward.h"

#include "kernels/autograd.h"
#include "kernels/row_kernels.h"

namespace ql::kernels {
namespace {

// With the rows x of the states, f for dropout's factor of an element (0 where it is dropped), and
// G for the gradient by the output:
//
//   h = f relu(x W1^T + b1)        output = h W2^T
//   A = f (G W2) where h > 0, else 0
//   gradients: x: A W1    W1: A^T x    b1: sum of A over the rows    W2: G^T h
struct FeedForward : torch::autograd::Function<FeedForward> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& states,
                            const at::Tensor& inner_weight, const at::Tensor& inner_bias,
                            const at::Tensor& outer_weight, const KeptElements& kept) {
    at::Tensor inner = at::mm(states, inner_weight.t());
    relu_rows_(inner, inner_bias, kept);
    context->save_for_backward({states, inner_weight, outer_weight});
    context->saved_data["inner"] = inner;
    context->saved_data["factor"] = kept.factor;
    return at::mm(inner, outer_weight.t());
  }

  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &states = saved[0], &inner_weight = saved[1], &outer_weight = saved[2];
    const at::Tensor inner = context->saved_data["inner"].toTensor();
    const at::Tensor gradient = outputs[0].contiguous();
    const at::Tensor of_outer = at::mm(gradient.t(), inner);
    at::Tensor of_inner = at::mm(gradient, outer_weight);
    const at::Tensor of_bias =
        relu_rows_gradient_(of_inner, inner, context->saved_data["factor"].toDouble());
    return {at::mm(of_inner, inner_weight), at::mm(of_inner.t(), states), of_bias, of_outer,
            at::Tensor()};
  }
};

}  // namespace

at::Tensor feed_forward(const at::Tensor& states, const at::Tensor& inner_weight,
                        const at::Tensor& inner_bias, const at::Tensor& outer_weight,
                        const KeptElements& kept) {
  const at::Tensor rows = states.reshape({-1, states.size(-1)}).contiguous();
  return FeedForward::apply(rows, inner_weight, inner_bias, outer_weight, kept)
      .view(states.sizes());
}

}  // namespace ql::kernels
