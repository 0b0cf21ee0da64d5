#include "kernels/residual.h"

#include "kernels/autograd.h"
#include "kernels/row_kernels.h"

namespace ql::kernels {
namespace {

struct AddResidual : torch::autograd::Function<AddResidual> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& residual,
                            const at::Tensor& output, const OptionalTensor& bias,
                            const KeptElements& kept) {
    context->saved_data["kept"] = kept.elements;
    context->saved_data["factor"] = kept.factor;
    context->saved_data["with_bias"] = bias.has_value();
    return add_rows({residual, output, bias.value_or(at::Tensor()), kept});
  }

  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const at::Tensor sum = outputs[0].contiguous();
    const AddGradients gradients =
        add_rows_gradients(sum, saved_kept(*context), context->saved_data["with_bias"].toBool());
    return {sum, gradients.output, gradients.bias, at::Tensor()};
  }

  static KeptElements saved_kept(AutogradContext& context) {
    return {context.saved_data["kept"].toTensor(), context.saved_data["factor"].toDouble()};
  }
};

struct AddResidualAndNormalize : torch::autograd::Function<AddResidualAndNormalize> {
  static variable_list forward(AutogradContext* context, const at::Tensor& residual,
                               const at::Tensor& output, const OptionalTensor& bias,
                               const at::Tensor& norm_weight, const at::Tensor& norm_bias,
                               const KeptElements& kept) {
    const AddedRows rows = add_and_normalize_rows(
        {residual, output, bias.value_or(at::Tensor()), kept}, norm_weight, norm_bias);
    context->save_for_backward({rows.sum, norm_weight});
    context->set_materialize_grads(false);
    context->saved_data["statistics"] = rows.normalized.statistics;
    context->saved_data["kept"] = kept.elements;
    context->saved_data["factor"] = kept.factor;
    context->saved_data["with_bias"] = bias.has_value();
    return {rows.sum, rows.normalized.values};
  }

  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const variable_list saved = context->get_saved_variables();
    const AddedRows rows{saved[0], {at::Tensor(), context->saved_data["statistics"].toTensor()}};
    const at::Tensor of_sum = outputs[0].defined() ? outputs[0].contiguous() : at::Tensor();
    const at::Tensor of_normalized =
        outputs[1].defined() ? outputs[1].contiguous() : at::zeros_like(saved[0]);
    const AddNormGradients gradients =
        add_norm_gradients(rows, saved[1], of_sum, of_normalized, AddResidual::saved_kept(*context),
                           context->saved_data["with_bias"].toBool());
    return {gradients.residual, gradients.output,    gradients.bias,
            gradients.weight,   gradients.norm_bias, at::Tensor()};
  }
};

}  // namespace

at::Tensor add_residual(const at::Tensor& residual, const at::Tensor& output,
                        const at::Tensor& bias, const KeptElements& kept) {
  return AddResidual::apply(residual.contiguous(), output.contiguous(), optional_tensor(bias),
                            kept);
}

SumAndNorm add_residual_and_normalize(const at::Tensor& residual, const at::Tensor& output,
                                      const at::Tensor& bias, const KeptElements& kept,
                                      const at::Tensor& norm_weight, const at::Tensor& norm_bias) {
  const variable_list results =
      AddResidualAndNormalize::apply(residual.contiguous(), output.contiguous(),
                                     optional_tensor(bias), norm_weight, norm_bias, kept);
  return {results[0], results[1]};
}

}  // namespace ql::kernels
