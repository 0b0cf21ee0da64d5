// Implements layer norm, residual connections and the feed-forward network by kernels/row_kernels.h
// and kernels/product.h.

#include "kernels/feed_forward.h"

#include "kernels/autograd.h"
#include "kernels/product.h"
#include "kernels/row_kernels.h"

namespace ql::kernels {

at::Tensor layer_norm(const at::Tensor& states, const at::Tensor& weight, const at::Tensor& bias) {
  const bool ours = machine::uses_kernels(states) && states.scalar_type() == weight.scalar_type() &&
                    !at::GradMode::is_enabled();
  if (!ours) return at::layer_norm(states, {states.size(-1)}, weight, bias, kLayerNormEpsilon);
  return normalize_rows(states.contiguous(), weight, bias, states).values;
}

namespace {

// Adds a residual connection. The results are the sum and, if a norm is given, the layer norm of
// the sum.
struct AddResidual : torch::autograd::Function<AddResidual> {
  static variable_list forward(AutogradContext* context, const at::Tensor& residual,
                               const at::Tensor& output, const OptionalTensor& bias,
                               const OptionalTensor& norm_weight, const OptionalTensor& norm_bias,
                               const DropoutMask& kept) {
    const AddedRows rows =
        add_rows({residual, output, bias.value_or(at::Tensor()), kept},
                 norm_weight.value_or(at::Tensor()), norm_bias.value_or(at::Tensor()));
    context->saved_data["kept"] = kept.elements;
    context->saved_data["factor"] = kept.factor;
    context->saved_data["with_bias"] = bias.has_value();
    if (!norm_weight) return {rows.sum};
    context->save_for_backward({rows.sum, *norm_weight});
    context->set_materialize_grads(false);
    context->saved_data["statistics"] = rows.normalized.statistics;
    return {rows.sum, rows.normalized.values};
  }

  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const DropoutMask kept{context->saved_data["kept"].toTensor(),
                           context->saved_data["factor"].toDouble()};
    const bool with_bias = context->saved_data["with_bias"].toBool();
    const at::Tensor of_sum = outputs[0].defined() ? outputs[0].contiguous() : at::Tensor();
    AddGradients gradients;
    if (outputs.size() == 1) {
      gradients = add_rows_gradients(of_sum, kept, with_bias);
    } else {
      const variable_list saved = context->get_saved_variables();
      const AddedRows rows{saved[0], {at::Tensor(), context->saved_data["statistics"].toTensor()}};
      const at::Tensor of_normalized =
          outputs[1].defined() ? outputs[1].contiguous() : at::zeros_like(saved[0]);
      gradients = add_norm_gradients(rows, saved[1], of_sum, of_normalized, kept, with_bias);
    }
    return {gradients.residual,    gradients.output,    gradients.bias,
            gradients.norm_weight, gradients.norm_bias, at::Tensor()};
  }
};

}  // namespace

at::Tensor add_residual(const at::Tensor& residual, const at::Tensor& output,
                        const at::Tensor& bias, const DropoutMask& kept) {
  return AddResidual::apply(residual.contiguous(), output.contiguous(), optional_tensor(bias),
                            OptionalTensor(), OptionalTensor(), kept)[0];
}

SumAndNorm add_residual_and_normalize(const at::Tensor& residual, const at::Tensor& output,
                                      const at::Tensor& bias, const DropoutMask& kept,
                                      const at::Tensor& norm_weight, const at::Tensor& norm_bias) {
  const variable_list results =
      AddResidual::apply(residual.contiguous(), output.contiguous(), optional_tensor(bias),
                         norm_weight, norm_bias, kept);
  return {results[0], results[1]};
}

namespace {

// Let x be the rows of the states, f dropout's factor of an element (0 where it is dropped), and G
// the gradient of the output. Then
//
//   h = f relu(x W1^T + b1)        output = h W2^T
//   A = f (G W2) where h > 0, else 0
//   gradients: x: A W1    W1: A^T x    b1: sum of A over the rows    W2: G^T h
struct FeedForward : torch::autograd::Function<FeedForward> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& states,
                            const at::Tensor& inner_weight, const at::Tensor& inner_bias,
                            const at::Tensor& outer_weight, const DropoutMask& kept) {
    const at::Tensor inner_factor = weight_factor(inner_weight);
    const at::Tensor outer_factor = weight_factor(outer_weight);
    const at::Tensor input = to_operand(states, inner_factor);
    at::Tensor hidden = rounded_product(input, inner_factor.t());
    relu_rows(hidden, inner_bias, kept);
    // The saved operands are valid only while the weights do not change. Autograd checks this for
    // the variables that are saved here.
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
    const at::Tensor gradient = to_operand(outputs[0].contiguous(), hidden);
    const at::Tensor of_outer = product(gradient.t(), hidden);
    at::Tensor slopes = rounded_product(gradient, saved("outer_weight"));
    const at::Tensor of_bias =
        relu_rows_gradient(slopes, hidden, context->saved_data["factor"].toDouble());
    return {product(slopes, saved("inner_weight")), product(slopes.t(), saved("states")), of_bias,
            of_outer, at::Tensor()};
  }
};

}  // namespace

at::Tensor feed_forward(const at::Tensor& states, const at::Tensor& inner_weight,
                        const at::Tensor& inner_bias, const at::Tensor& outer_weight,
                        const DropoutMask& kept) {
  const at::Tensor rows = states.reshape({-1, states.size(-1)}).contiguous();
  return FeedForward::apply(rows, inner_weight, inner_bias, outer_weight, kept)
      .view(states.sizes());
}

}  // namespace ql::kernels
