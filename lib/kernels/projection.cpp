#include "kernels/projection.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/autograd.h"
#include "kernels/bfloat16_number.h"
#include "kernels/product.h"
#include "kernels/vector.h"
#include "kernels/vector_type.h"
#include "machine/device.h"
#include "machine/pieces.h"

namespace ql::kernels {
namespace {

thread_local bool rows_apart = false;

// A task of a thread has so many columns. Their weights stay in a cache while all rows pass.
constexpr std::int64_t kColumnsOfTask = 32;

// result[row][column] = sum over k of states[row][k] weights[column][k] + bias[column], for the
// columns from `begin` to `end`. Rows of all matrices follow one another without gaps. The weights
// are Real or bfloat16.
template <typename Real, typename Number>
struct RowProducts {
  std::int64_t rows = 0, width = 0, columns = 0, begin = 0, end = 0;
  const Real* states = nullptr;
  const Number* weights = nullptr;
  const Real* bias = nullptr;
  Real* result = nullptr;
};

// Adds up the lanes of as many vectors as a vector has lanes: lane i of the first becomes
// sum_of_lanes() of vector i, to the last bit. A step adds the two halves of each sum, of two
// vectors at once, until every sum is one lane.
template <int kBytes, typename Real, int kStep = Register<Real, kBytes>::kSize / 2>
QL_VECTOR_BODY void add_up_lanes(typename Register<Real, kBytes>::Vector* sums) {
  using Shape = Register<Real, kBytes>;
  if constexpr (kStep > 0) {
    QL_UNROLL
    for (int i = 0; i < kStep; ++i) {
      exchange<kStep, typename Shape::Integers>(sums[i], sums[i + kStep],
                                                std::make_index_sequence<Shape::kSize>());
      sums[i] += sums[i + kStep];
    }
    add_up_lanes<kBytes, Real, kStep / 2>(sums);
  }
}

// totals[i] = sum_of_lanes(sums[i])
template <int kBytes, int kSums, typename Real>
QL_VECTOR_BODY void find_totals(typename Register<Real, kBytes>::Vector* sums, Real* totals) {
  constexpr int kSize = Register<Real, kBytes>::kSize;
  if constexpr (kSums % kSize == 0) {
    for (int first = 0; first < kSums; first += kSize) {
      add_up_lanes<kBytes, Real>(sums + first);
      store(sums[first], totals + first);
    }
  } else {
    for (int i = 0; i < kSums; ++i) totals[i] = sum_of_lanes<Real>(sums[i]);
  }
}

// Computes a block of rows and columns. Every number has a sum of its own, a vector whose lanes
// are added up at the end, so it does not matter which others are computed with it.
template <int kBytes, int kBlockRows, int kBlockColumns, typename Real, typename Number>
QL_VECTOR_BODY void multiply_block(const RowProducts<Real, Number>* product, std::int64_t row,
                                   std::int64_t column) {
  using Vector = typename Register<Real, kBytes>::Vector;
  constexpr std::int64_t kSize = Register<Real, kBytes>::kSize;
  const std::int64_t width = product->width;
  const Real* states = product->states + row * width;
  const Number* weights = product->weights + column * width;
  Vector sums[kBlockRows][kBlockColumns];
  QL_UNROLL
  for (int i = 0; i < kBlockRows; ++i) {
    QL_UNROLL
    for (int j = 0; j < kBlockColumns; ++j) sums[i][j] = Vector{};
  }
  std::int64_t k = 0;
  for (; k + kSize <= width; k += kSize) {
    Vector of_states[kBlockRows];
    QL_UNROLL
    for (int i = 0; i < kBlockRows; ++i) load(states + i * width + k, of_states[i]);
    QL_UNROLL
    for (int j = 0; j < kBlockColumns; ++j) {
      Vector of_weights;
      load(weights + j * width + k, of_weights);
      // The next columns come while these are multiplied.
      __builtin_prefetch(weights + (j + kBlockColumns) * width + k);
      QL_UNROLL
      for (int i = 0; i < kBlockRows; ++i) sums[i][j] += of_states[i] * of_weights;
    }
  }
  if (k < width) {
    QL_UNROLL
    for (int i = 0; i < kBlockRows; ++i) {
      Vector of_states;
      load_part(states + i * width + k, width - k, of_states);
      QL_UNROLL
      for (int j = 0; j < kBlockColumns; ++j) {
        Vector of_weights;
        load_part(weights + j * width + k, width - k, of_weights);
        sums[i][j] += of_states * of_weights;
      }
    }
  }
  Real totals[kBlockRows * kBlockColumns];
  find_totals<kBytes, kBlockRows * kBlockColumns>(&sums[0][0], &totals[0]);
  for (int i = 0; i < kBlockRows; ++i) {
    Real* result = product->result + (row + i) * product->columns + column;
    for (int j = 0; j < kBlockColumns; ++j) {
      result[j] = totals[i * kBlockColumns + j] +
                  (product->bias == nullptr ? Real(0) : product->bias[column + j]);
    }
  }
}

// Blocks of so many columns leave registers for the states: AVX-512 has twice as many.
template <int kBytes>
constexpr int kColumns = kBytes == 64 ? 4 : 2;
constexpr int kRows = 4;

template <int kBytes, typename Real, typename Number>
QL_VECTOR_BODY void multiply_rows_apart_body(const RowProducts<Real, Number>* product) {
  const std::int64_t whole_rows = product->rows / kRows * kRows;
  std::int64_t column = product->begin;
  for (; column + kColumns<kBytes> <= product->end; column += kColumns<kBytes>) {
    std::int64_t row = 0;
    for (; row < whole_rows; row += kRows) {
      multiply_block<kBytes, kRows, kColumns<kBytes>>(product, row, column);
    }
    for (; row < product->rows; ++row) {
      multiply_block<kBytes, 1, kColumns<kBytes>>(product, row, column);
    }
  }
  for (; column < product->end; ++column) {
    for (std::int64_t row = 0; row < product->rows; ++row) {
      multiply_block<kBytes, 1, 1>(product, row, column);
    }
  }
}
QL_REGISTER_KERNEL(multiply_rows_apart)

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
  AT_DISPATCH_FLOATING_TYPES(states.scalar_type(), "project_rows_apart", [&] {
    with_numbers<scalar_t>(factor, [&](const auto* weights) {
      RowProducts<scalar_t, std::decay_t<decltype(*weights)>> product;
      product.rows = rows.size(0);
      product.width = weight.size(1);
      product.columns = weight.size(0);
      product.states = rows.data_ptr<scalar_t>();
      product.weights = weights;
      product.bias = plain_bias.defined() ? plain_bias.data_ptr<scalar_t>() : nullptr;
      product.result = result.data_ptr<scalar_t>();
      const std::int64_t tasks = (product.columns + kColumnsOfTask - 1) / kColumnsOfTask;
      at::parallel_for(0, tasks, 1, [&](std::int64_t begin, std::int64_t end) {
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
  machine::for_pieces(blocks, 1, [&](std::int64_t block, std::int64_t) {
    const std::int64_t row = block / across * kRowsOfBlock, column = block % across * of_block;
    const std::int64_t height = std::min(kRowsOfBlock, count - row);
    const std::int64_t width = std::min(of_block, columns - column);
    at::Tensor part = result_rows.narrow(0, row, height).narrow(1, column, width);
    const at::Tensor of_weight = factor.narrow(0, column, width).t();
    const at::Tensor of_rows = as_factor(rows.narrow(0, row, height));
    set_product(part, of_rows, of_weight,
                bias.defined() ? bias.narrow(0, column, width) : at::Tensor());
  });
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

at::Tensor project_rounded(const at::Tensor& states, const at::Tensor& weight,
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
  return rounds_factors() ? project_rounded(states, weight, bias)
                          : at::linear(states, weight, bias);
}

RowsApart::RowsApart() : before_(rows_apart) { rows_apart = true; }
RowsApart::~RowsApart() { rows_apart = before_; }
bool RowsApart::live() { return rows_apart; }

}  // namespace ql::kernels
