#include "kernels/feed_forward.h"

#include "kernels/autograd.h"
#include "kernels/product.h"
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
    const at::Tensor input = as_factor(states);
    const at::Tensor inner_factor = weight_factor(inner_weight);
    const at::Tensor outer_factor = weight_factor(outer_weight);
    const at::Tensor inner = product(input, inner_factor.t());
    const at::Tensor hidden = place_of_factor(inner, input);
    relu_rows(inner, inner_bias, kept, hidden);
    // The factors of the weights are theirs as long as nobody changes these.
    context->save_for_backward({inner_weight, outer_weight});
    context->saved_data["states"] = input;
    context->saved_data["inner_weight"] = inner_factor;
    context->saved_data["outer_weight"] = outer_factor;
    context->saved_data["hidden"] = hidden;
    context->saved_data["factor"] = kept.factor;
    return product(hidden, outer_factor.t());
  }

  static variable_list backward(AutogradContext* context, variable_list outputs) {
    context->get_saved_variables();
    const auto saved = [&](const char* name) { return context->saved_data[name].toTensor(); };
    const at::Tensor hidden = saved("hidden");
    const at::Tensor gradient = as_factor_beside(outputs[0].contiguous(), hidden);
    const at::Tensor of_outer = product(gradient.t(), hidden);
    const at::Tensor by_hidden = product(gradient, saved("outer_weight"));
    const at::Tensor slopes = place_of_factor(by_hidden, hidden);
    const at::Tensor of_bias =
        relu_rows_gradient(by_hidden, hidden, context->saved_data["factor"].toDouble(), slopes);
    return {product(slopes, saved("inner_weight")), product(slopes.t(), saved("states")), of_bias,
            of_outer, at::Tensor()};
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
