// Implements the linear maps of a layer, with their gradients.

#include "kernels/projection.h"

#include <vector>

#include "kernels/attention.h"
#include "kernels/autograd.h"
#include "kernels/row_kernels.h"
#include "machine/device.h"

namespace ql::kernels {

namespace {

// Let x be the rows of the states, and G the gradient of the output x W^T + b. Then the gradients
// are
//
//   x: G W    W: G^T x    b: sum of G over the rows
struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& states,
                            const at::Tensor& /*weight*/, const OptionalTensor& bias,
                            const at::Tensor& factor) {
    const at::Tensor rows = to_operand(states, factor);
    context->saved_data["rows"] = rows;
    context->saved_data["weight"] = factor;
    context->saved_data["with_bias"] = bias.has_value();
    return product(rows, factor.t(), bias.value_or(at::Tensor()));
  }

  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const at::Tensor rows = context->saved_data["rows"].toTensor();
    const at::Tensor gradient = to_operand(outputs[0].contiguous(), rows);
    at::Tensor of_states, of_weight, of_bias;
    // The input may need no gradient: the sinusoids of positions are an example.
    if (context->needs_input_grad(0)) {
      of_states = product(gradient, context->saved_data["weight"].toTensor());
    }
    if (context->needs_input_grad(1)) of_weight = product(gradient.t(), rows);
    if (context->saved_data["with_bias"].toBool()) of_bias = sum_over_first(outputs[0]);
    return {of_states, of_weight, of_bias, at::Tensor()};
  }
};

}  // namespace

at::Tensor project(const at::Tensor& states, const at::Tensor& weight, const at::Tensor& bias) {
  return project(states, weight, bias, weight_factor(weight));
}

at::Tensor project(const at::Tensor& states, const at::Tensor& weight, const at::Tensor& bias,
                   const at::Tensor& factor) {
  const bool ours = states.numel() > 0 && machine::uses_kernels(states) &&
                    states.scalar_type() == weight.scalar_type();
  if (!ours) return at::linear(states, weight, bias);
  const at::Tensor rows = states.reshape({-1, weight.size(1)});
  const at::Tensor result = at::GradMode::is_enabled()
                                ? Linear::apply(rows, weight, optional_tensor(bias), factor)
                                : product(rows, factor.t(), bias);
  std::vector<std::int64_t> shape = states.sizes().vec();
  shape.back() = weight.size(0);
  return result.view(shape);
}

namespace {

// Returns the last `segment` states of every window as contiguous rows. reshape() alone would not
// make a segment of one state contiguous.
at::Tensor recent_rows(const at::Tensor& window, std::int64_t segment) {
  return window.narrow(1, window.size(1) - segment, segment)
      .contiguous()
      .view({window.size(0) * segment, window.size(2)});
}

// Let y be the rows of the window, normalized without weight and bias. The norm's weight and bias
// are w and b, W is qkv_net, and G is the gradient of the output. W * w scales each column of W by
// an element of w. Then output = y V^T + c with V = W * w and c = W b. With dV for the gradient of
// V, and so on, the gradients are
//
//   dV = G^T y                     dc = sum of G over the rows
//   dW = dV * w + dc b^T           dw = sum of W * dV over the rows     db = W^T dc
//   dy = G V
//
// dy is computed only for the rows of the segment, because the other rows are memory. Then dy goes
// back through the norm. W has rows for queries, keys and values; the part of G for queries has
// only the rows of the segment. Without a norm, y is the window itself, V = W and c = 0.
struct ProjectWindow : torch::autograd::Function<ProjectWindow> {
  static variable_list forward(AutogradContext* context, const at::Tensor& states,
                               const at::Tensor& window, const OptionalTensor& norm_weight,
                               const OptionalTensor& norm_bias, const at::Tensor& qkv_net) {
    const std::int64_t batch = window.size(0), length = window.size(1), width = window.size(2);
    const std::int64_t segment = states.size(1), d_heads = qkv_net.size(0) / 3;
    const at::Tensor factor = weight_factor(qkv_net, norm_weight.value_or(at::Tensor()));
    at::Tensor all, bias, statistics;
    if (norm_weight) {
      const NormalizedRows rows = normalize_rows(window, {}, {}, factor);
      all = rows.values;
      statistics = recent_rows(rows.statistics.view({batch, length, 2}), segment);
      bias = at::mv(qkv_net, *norm_bias);
    } else {
      all = to_operand(window.view({batch * length, width}), factor).view(window.sizes());
    }
    const at::Tensor recent = recent_rows(all, segment);
    all = all.view({batch * length, width});
    const auto part = [&](const at::Tensor& tensor, std::int64_t begin, std::int64_t count) {
      return tensor.defined() ? tensor.narrow(0, begin * d_heads, count * d_heads) : tensor;
    };
    context->save_for_backward({qkv_net, norm_weight.value_or(at::Tensor()),
                                norm_bias.value_or(at::Tensor()),
                                norm_weight ? window : at::Tensor()});
    context->saved_data["batch"] = batch;
    context->saved_data["all"] = all;
    context->saved_data["recent"] = recent;
    context->saved_data["weight"] = factor;
    context->saved_data["statistics"] = statistics;
    const auto multiply = length <= kShortWindow ? &rounded_product : &product;
    return {product(recent, part(factor, 0, 1).t(), part(bias, 0, 1)),
            multiply(all, part(factor, 1, 2).t(), part(bias, 1, 2))};
  }

  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &qkv_net = saved[0], &norm_weight = saved[1], &norm_bias = saved[2];
    const at::Tensor& window = saved[3];
    const at::Tensor all = context->saved_data["all"].toTensor();
    const at::Tensor recent = context->saved_data["recent"].toTensor();
    const at::Tensor weight = context->saved_data["weight"].toTensor();
    const std::int64_t batch = context->saved_data["batch"].toInt();
    const std::int64_t length = all.size(0) / batch, width = all.size(1);
    const std::int64_t d_heads = qkv_net.size(0) / 3, segment = recent.size(0) / batch;
    const at::Tensor queries = outputs[0].contiguous(), keys_values = outputs[1].contiguous();

    const at::Tensor all_keys_values = keys_values.view({batch * length, -1});
    at::Tensor by_queries, by_keys_values, of_shift;
    if (norm_weight.defined()) {
      of_shift = at::cat({sum_rows(queries, weight, by_queries),
                          sum_rows(all_keys_values, weight, by_keys_values)});
    } else {
      by_queries = to_operand(queries, weight);
      by_keys_values = to_operand(all_keys_values, weight);
    }
    at::Tensor states = product(by_queries, weight.narrow(0, 0, d_heads));
    set_product(states, recent_rows(by_keys_values.view({batch, length, 2 * d_heads}), segment),
                weight.narrow(0, d_heads, 2 * d_heads), /*add=*/true);
    at::Tensor of_weight = at::empty_like(qkv_net);
    at::Tensor of_queries = of_weight.narrow(0, 0, d_heads);
    at::Tensor of_keys_values = of_weight.narrow(0, d_heads, 2 * d_heads);
    set_product(of_queries, by_queries.t(), recent);
    set_product(of_keys_values, by_keys_values.t(), all);
    at::Tensor of_norm_weight, of_norm_bias;
    if (norm_weight.defined()) {
      of_norm_weight = sum_over_first(qkv_net * of_weight);
      of_norm_bias = at::mv(qkv_net.t(), of_shift);
      of_weight.mul_(norm_weight).addr_(of_shift, norm_bias);
      normalize_rows_gradient(states, recent_rows(window, segment),
                              context->saved_data["statistics"].toTensor());
    }
    return {states.view({batch, segment, width}), at::Tensor(), of_norm_weight, of_norm_bias,
            of_weight};
  }
};

}  // namespace

QueriesKeysValues project_window(const at::Tensor& states, const at::Tensor& window,
                                 const at::Tensor& norm_weight, const at::Tensor& norm_bias,
                                 const at::Tensor& qkv_net, std::int64_t heads) {
  const std::int64_t batch = window.size(0), d_head = qkv_net.size(0) / 3 / heads;
  const variable_list results =
      ProjectWindow::apply(states, window.detach().contiguous(), optional_tensor(norm_weight),
                           optional_tensor(norm_bias), qkv_net);
  return {results[0].view({batch, states.size(1), heads, d_head}),
          results[1].view({batch, window.size(1), 2, heads, d_head})};
}

}  // namespace ql::kernels
