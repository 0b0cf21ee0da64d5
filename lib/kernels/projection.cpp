#include "kernels/projection.h"

#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/autograd.h"
#include "kernels/bfloat16_number.h"
#include "kernels/product.h"
#include "kernels/row_products.h"
#include "machine/device.h"
#include "machine/pieces.h"

namespace ql::kernels {
namespace {

thread_local bool rows_apart = false;

double microseconds_of_product(std::int64_t rows, const at::Tensor& weight) {
  return machine::microseconds_of(static_cast<double>(rows) * static_cast<double>(weight.numel()),
                                  static_cast<double>(weight.nbytes()));
}

// A task of a thread has so many columns. Their weights stay in a cache while all rows pass.
constexpr std::int64_t kColumnsOfTask = 32;

at::Tensor project_rows_apart(const at::Tensor& states, const at::Tensor& weight,
                              const at::Tensor& bias) {
  // Rounded states are floats again, because a row is read many times.
  const at::Tensor rows =
      as_factor(states.reshape({-1, weight.size(1)})).to(states.scalar_type()).contiguous();
  const at::Tensor factor = weight_factor(weight).contiguous();
  const at::Tensor plain_bias = bias.defined() ? bias.contiguous() : bias;
  std::vector<std::int64_t> shape = states.sizes().vec();
  shape.back() = weight.size(0);
  at::Tensor result = at::empty(shape, states.options());
  const double microseconds = microseconds_of_product(rows.size(0), factor);
  AT_DISPATCH_FLOATING_TYPES(states.scalar_type(), "project_rows_apart", [&] {
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
          multiply_rows_apart(&part);
        }
      });
    });
  });
  return result;
}

// A BLAS first copies the weights into an order of its own, which takes longer than the product of
// so few rows.
constexpr std::int64_t kFewRows = 8;
// A BLAS is as fast with so many rows as with more.
constexpr std::int64_t kRowsOfBlock = 256;
// Where there is one block of rows, the columns are divided.
constexpr std::int64_t kColumnsOfBlock = 128;

at::Tensor project_in_blocks(const at::Tensor& states, const at::Tensor& weight,
                             const at::Tensor& bias) {
  const std::int64_t columns = weight.size(0);
  at::Tensor rows = states.reshape({-1, weight.size(1)});
  const std::int64_t count = rows.size(0);
  // More rows are rounded block by block.
  if (count <= kRowsOfBlock) rows = as_factor(rows);
  const std::int64_t of_block = count > kRowsOfBlock ? columns : kColumnsOfBlock;
  std::vector<std::int64_t> shape = states.sizes().vec();
  shape.back() = columns;
  at::Tensor result = at::empty(shape, states.options());
  const at::Tensor result_rows = result.view({count, columns});
  const at::Tensor factor = weight_factor(weight);
  const std::int64_t across = (columns + of_block - 1) / of_block;
  const std::int64_t blocks = (count + kRowsOfBlock - 1) / kRowsOfBlock * across;
  const auto multiply_block = [&](std::int64_t block, std::int64_t) {
    const std::int64_t row = block / across * kRowsOfBlock, column = block % across * of_block;
    const std::int64_t height = std::min(kRowsOfBlock, count - row);
    const std::int64_t width = std::min(of_block, columns - column);
    at::Tensor part = result_rows.narrow(0, row, height).narrow(1, column, width);
    const at::Tensor of_weight = factor.narrow(0, column, width).t();
    const at::Tensor of_rows = as_factor(rows.narrow(0, row, height));
    set_product(part, of_rows, of_weight,
                bias.defined() ? bias.narrow(0, column, width) : at::Tensor());
  };
  machine::for_pieces(blocks, 1, multiply_block, microseconds_of_product(count, factor));
  return result;
}

// With factors in this thread's precision: the rows x of the states, and G for the gradient by the
// output x W^T + b. Gradients: x: G W    W: G^T x    b: sum of G over the rows
struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& states,
                            const at::Tensor& weight, const OptionalTensor& bias) {
    const at::Tensor rows = as_factor(states), factor = weight_factor(weight);
    context->saved_data["rows"] = rows;
    context->saved_data["weight"] = factor;
    context->saved_data["with_bias"] = bias.has_value();
    return product(rows, factor.t(), bias.value_or(at::Tensor()));
  }

  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const at::Tensor rows = context->saved_data["rows"].toTensor();
    const at::Tensor gradient = as_factor_beside(outputs[0].contiguous(), rows);
    return {product(gradient, context->saved_data["weight"].toTensor()),
            product(gradient.t(), rows),
            context->saved_data["with_bias"].toBool() ? outputs[0].sum(0) : at::Tensor()};
  }
};

at::Tensor project_factors(const at::Tensor& states, const at::Tensor& weight,
                           const at::Tensor& bias) {
  const at::Tensor rows = states.reshape({-1, weight.size(1)}).contiguous();
  std::vector<std::int64_t> shape = states.sizes().vec();
  shape.back() = weight.size(0);
  const at::Tensor result = at::GradMode::is_enabled()
                                ? Linear::apply(rows, weight, optional_tensor(bias))
                                : product(as_factor(rows), weight_factor(weight).t(), bias);
  return result.view(shape);
}

}  // namespace

at::Tensor project(const at::Tensor& states, const at::Tensor& weight, const at::Tensor& bias) {
  const bool ours = states.numel() > 0 && machine::uses_kernels(states) &&
                    states.scalar_type() == weight.scalar_type();
  if (!ours) return at::linear(states, weight, bias);
  const bool with_gradients = at::GradMode::is_enabled(), in_piece = machine::in_piece();
  const bool few = !in_piece && states.numel() <= kFewRows * weight.size(1);
  if ((rows_apart || few) && !with_gradients) return project_rows_apart(states, weight, bias);
  if (!in_piece && !with_gradients) return project_in_blocks(states, weight, bias);
  return rounds_factors() || !with_gradients ? project_factors(states, weight, bias)
                                             : at::linear(states, weight, bias);
}

RowsApart::RowsApart() : before_(rows_apart) { rows_apart = true; }
RowsApart::~RowsApart() { rows_apart = before_; }
bool RowsApart::live() { return rows_apart; }

}  // namespace ql::kernels
