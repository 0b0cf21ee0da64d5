// Implements the linear maps of projection.h: products in blocks or row by row, and autograd
// functions.

#include "kernels/projection.h"

#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/autograd.h"
#include "kernels/product.h"
#include "kernels/row_kernels.h"
#include "kernels/small_product.h"
#include "kernels/vector.h"
#include "machine/device.h"
#include "machine/threads.h"

namespace ql::kernels {

namespace {

thread_local bool batch_invariant = false;

double microseconds_of_product(std::int64_t rows, const at::Tensor& weight) {
  return machine::microseconds_of(static_cast<double>(rows) * static_cast<double>(weight.numel()),
                                  static_cast<double>(weight.nbytes()));
}

// Columns that one task of a thread computes. Their weights stay in a cache while all rows are
// read.
constexpr std::int64_t kColumnsOfTask = 32;

at::Tensor project_batch_invariant(const at::Tensor& states, const at::Tensor& weight,
                                   const at::Tensor& bias) {
  // Rounded states are converted back to float, because each row is read many times.
  const at::Tensor rows = to_operand(states.reshape({-1, weight.size(1)}), weight)
                              .to(states.scalar_type())
                              .contiguous();
  const at::Tensor factor = weight.contiguous();
  const at::Tensor plain_bias = bias.defined() ? bias.contiguous() : bias;
  std::vector<std::int64_t> shape = states.sizes().vec();
  shape.back() = weight.size(0);
  at::Tensor result = at::empty(shape, states.options());
  const double microseconds = microseconds_of_product(rows.size(0), factor);
  AT_DISPATCH_FLOATING_TYPES(states.scalar_type(), "project_batch_invariant", [&] {
    with_numbers<scalar_t>(factor, [&](const auto* weights) {
      RowProducts<scalar_t, std::decay_t<decltype(*weights)>> product;
      product.rows = rows.size(0);
      product.width = weight.size(1);
      product.columns = product.pitch = weight.size(0);
      product.states = rows.data_ptr<scalar_t>();
      product.weights = weights;
      product.bias = plain_bias.defined() ? plain_bias.data_ptr<scalar_t>() : nullptr;
      product.result = result.data_ptr<scalar_t>();
      const std::int64_t tasks = (product.columns + kColumnsOfTask - 1) / kColumnsOfTask;
      machine::for_parts(tasks, microseconds, [&](std::int64_t begin, std::int64_t end) {
        auto part = product;
        for (std::int64_t task = begin; task < end; ++task) {
          part.begin = task * kColumnsOfTask;
          part.end = std::min(product.columns, part.begin + kColumnsOfTask);
          multiply_batch_invariant(&part);
        }
      });
    });
  });
  return result;
}

// A BLAS first copies the weights into its own order. Up to this many rows, that takes longer than
// the product itself.
constexpr std::int64_t kFewRows = 8;
// A BLAS gains nothing from more rows than this.
constexpr std::int64_t kRowsOfBlock = 256;
// If there is one block of rows, the columns are divided.
constexpr std::int64_t kColumnsOfBlock = 128;

at::Tensor project_in_blocks(const at::Tensor& states, const at::Tensor& weight,
                             const at::Tensor& bias) {
  const std::int64_t columns = weight.size(0);
  at::Tensor rows = states.reshape({-1, weight.size(1)});
  const std::int64_t count = rows.size(0);
  // If there are more rows, they are rounded block by block.
  if (count <= kRowsOfBlock) rows = to_operand(rows, weight);
  const std::int64_t of_block = count > kRowsOfBlock ? columns : kColumnsOfBlock;
  std::vector<std::int64_t> shape = states.sizes().vec();
  shape.back() = columns;
  at::Tensor result = at::empty(shape, states.options());
  const at::Tensor result_rows = result.view({count, columns});
  const std::int64_t across = (columns + of_block - 1) / of_block;
  const std::int64_t blocks = (count + kRowsOfBlock - 1) / kRowsOfBlock * across;
  const auto multiply_block = [&](std::int64_t block, std::int64_t) {
    const std::int64_t row = block / across * kRowsOfBlock, column = block % across * of_block;
    const std::int64_t height = std::min(kRowsOfBlock, count - row);
    const std::int64_t width = std::min(of_block, columns - column);
    at::Tensor part = result_rows.narrow(0, row, height).narrow(1, column, width);
    const at::Tensor of_weight = weight.narrow(0, column, width).t();
    const at::Tensor of_rows = to_operand(rows.narrow(0, row, height), weight);
    set_product(part, of_rows, of_weight,
                bias.defined() ? bias.narrow(0, column, width) : at::Tensor());
  };
  machine::for_pieces(blocks, 1, multiply_block, microseconds_of_product(count, weight));
  return result;
}

// With operands: the rows x of the states, and G for the gradient by the output x W^T + b.
// Gradients: x: G W W: G^T x b: sum of G over the rows
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
    return {
        product(gradient, context->saved_data["weight"].toTensor()), product(gradient.t(), rows),
        context->saved_data["with_bias"].toBool() ? outputs[0].sum(0) : at::Tensor(), at::Tensor()};
  }
};

at::Tensor project_factors(const at::Tensor& states, const at::Tensor& weight,
                           const at::Tensor& bias, const at::Tensor& factor) {
  const at::Tensor rows = states.reshape({-1, weight.size(1)}).contiguous();
  std::vector<std::int64_t> shape = states.sizes().vec();
  shape.back() = weight.size(0);
  const at::Tensor result = at::GradMode::is_enabled()
                                ? Linear::apply(rows, weight, optional_tensor(bias), factor)
                                : product(to_operand(rows, factor), factor.t(), bias);
  return result.view(shape);
}

}  // namespace

at::Tensor project(const at::Tensor& states, const at::Tensor& weight, const at::Tensor& bias) {
  return project(states, weight, bias, weight_factor(weight));
}

at::Tensor project(const at::Tensor& states, const at::Tensor& weight, const at::Tensor& bias,
                   const at::Tensor& factor) {
  const bool ours = states.numel() > 0 && machine::uses_kernels(states) &&
                    states.scalar_type() == weight.scalar_type();
  if (!ours) return at::linear(states, weight, bias);
  const bool with_gradients = at::GradMode::is_enabled(), in_piece = machine::in_piece();
  const bool few = !in_piece && states.numel() <= kFewRows * weight.size(1);
  if ((batch_invariant || few) && !with_gradients)
    return project_batch_invariant(states, factor, bias);
  if (!in_piece && !with_gradients) return project_in_blocks(states, factor, bias);
  const bool rounds = factor.scalar_type() != weight.scalar_type();
  return rounds || !with_gradients ? project_factors(states, weight, bias, factor)
                                   : at::linear(states, weight, bias);
}

BatchInvariant::BatchInvariant() : before_(batch_invariant) { batch_invariant = true; }
BatchInvariant::~BatchInvariant() { batch_invariant = before_; }
bool BatchInvariant::live() { return batch_invariant; }

namespace {

// Returns the last `segment` states of every window as contiguous rows. reshape() alone would not
// make a segment of one state contiguous.
at::Tensor recent_rows(const at::Tensor& window, std::int64_t segment) {
  return window.narrow(1, window.size(1) - segment, segment)
      .contiguous()
      .view({window.size(0) * segment, window.size(2)});
}

// Let y be the normalized rows of the window, w and b the norm's weight and bias (each element of w
// scales a column of W), and G the gradient of the output. Then output = y V^T + c with V = W * w
// and c = W b, and the gradients are
//
//   V: A = G^T y                   c: a = sum of G over the rows
//   W: A * w + a b^T               w: sum of W * A over its rows     b: W^T a
//   y: G V, for the rows of the segment alone; then back through the norm
//
// W has the rows of queries, keys and values; G of the queries has only the rows of the segment.
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
      all = to_operand(window.view({batch * length, width}), factor).view(window.sizes());
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
      by_queries = to_operand(queries, weight);
      by_keys_values = to_operand(all_keys_values, weight);
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
