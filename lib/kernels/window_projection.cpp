#include "kernels/window_projection.h"

#include "kernels/autograd.h"
#include "kernels/product.h"
#include "kernels/row_kernels.h"
#include "machine/pieces.h"

namespace ql::kernels {
namespace {

// Returns the last `segment` states of every window as contiguous rows. reshape() alone would not
// make a segment of one state contiguous.
at::Tensor recent_rows(const at::Tensor& window, std::int64_t segment) {
  return window.narrow(1, window.size(1) - segment, segment)
      .contiguous()
      .view({window.size(0) * segment, window.size(2)});
}

// With the normalized rows y of the window, the norm's weight w and bias b (each number of w scales
// a column of W), and G for the gradient by the output:
//
//   output = y V^T + c     V = W * w     c = W b
//   by V   A = G^T y                   by c   a = sum of G over the rows
//   by W   A * w + a b^T               by w   sum of W * A over its rows     by b   W^T a
//   by y   G V, for the rows of the segment alone; then back through the norm
//
// W has the rows of queries, keys and values; G of the queries has the rows of the segment alone.
// Without a norm, y is the window itself, V = W and c = 0.
struct ProjectWindow : torch::autograd::Function<ProjectWindow> {
  static variable_list forward(AutogradContext* context, const at::Tensor& states,
                               const at::Tensor& window, const OptionalTensor& norm_weight,
                               const OptionalTensor& norm_bias, const at::Tensor& qkv_net) {
    const std::int64_t batch = window.size(0), length = window.size(1), width = window.size(2);
    const std::int64_t segment = states.size(1), d_heads = qkv_net.size(0) / 3;
    const at::Tensor factor = weight_factor(qkv_net, norm_weight.value_or(at::Tensor()));
    at::Tensor values = window, all, bias, deviations;
    if (norm_weight) {
      const NormalizedRows rows = normalize_rows(window, {}, {}, factor, all);
      values = rows.values;
      deviations =
          recent_rows(rows.statistics.view({batch, length, 2}), segment).select(1, 1).contiguous();
      const auto bytes = static_cast<double>(qkv_net.nbytes());
      machine::let_libraries_divide(machine::microseconds_of(0, bytes),
                                    [&] { bias = at::mv(qkv_net, *norm_bias); });
    } else {
      all = as_factor(window.view({batch * length, width})).view(window.sizes());
    }
    const at::Tensor recent = recent_rows(all, segment);
    all = all.view({batch * length, width});
    const auto part = [&](const at::Tensor& tensor, std::int64_t begin, std::int64_t count) {
      return tensor.defined() ? tensor.narrow(0, begin * d_heads, count * d_heads) : tensor;
    };
    context->save_for_backward(
        {qkv_net, norm_weight.value_or(at::Tensor()), norm_bias.value_or(at::Tensor())});
    context->saved_data["window"] = values;
    context->saved_data["all"] = all;
    context->saved_data["recent"] = recent;
    context->saved_data["weight"] = factor;
    context->saved_data["deviations"] = deviations;
    return {product(recent, part(factor, 0, 1).t(), part(bias, 0, 1)),
            product(all, part(factor, 1, 2).t(), part(bias, 1, 2))};
  }

  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &qkv_net = saved[0], &norm_weight = saved[1], &norm_bias = saved[2];
    const at::Tensor window = context->saved_data["window"].toTensor();
    const at::Tensor all = context->saved_data["all"].toTensor();
    const at::Tensor recent = context->saved_data["recent"].toTensor();
    const at::Tensor weight = context->saved_data["weight"].toTensor();
    const std::int64_t batch = window.size(0), length = window.size(1), width = window.size(2);
    const std::int64_t d_heads = qkv_net.size(0) / 3, segment = recent.size(0) / batch;
    const at::Tensor queries = outputs[0].contiguous(), keys_values = outputs[1].contiguous();

    const at::Tensor all_keys_values = keys_values.view({batch * length, -1});
    at::Tensor by_queries, by_keys_values, of_shift;
    if (norm_weight.defined()) {
      of_shift = at::cat({sum_rows(queries, weight, by_queries),
                          sum_rows(all_keys_values, weight, by_keys_values)});
    } else {
      by_queries = as_factor_beside(queries, weight);
      by_keys_values = as_factor_beside(all_keys_values, weight);
    }
    at::Tensor states = product(by_queries, weight.narrow(0, 0, d_heads));
    add_product(states, recent_rows(by_keys_values.view({batch, length, 2 * d_heads}), segment),
                weight.narrow(0, d_heads, 2 * d_heads));
    at::Tensor of_weight = at::empty_like(qkv_net);
    at::Tensor of_queries = of_weight.narrow(0, 0, d_heads);
    at::Tensor of_keys_values = of_weight.narrow(0, d_heads, 2 * d_heads);
    set_product(of_queries, by_queries.t(), recent);
    set_product(of_keys_values, by_keys_values.t(), all);
    at::Tensor of_norm_weight, of_norm_bias;
    if (norm_weight.defined()) {
      of_norm_weight = (qkv_net * of_weight).sum(0);
      of_norm_bias = at::mv(qkv_net.t(), of_shift);
      of_weight.mul_(norm_weight).addr_(of_shift, norm_bias);
      normalize_rows_gradient_(states, recent_rows(window, segment),
                               context->saved_data["deviations"].toTensor());
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
