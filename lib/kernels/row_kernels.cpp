// Implements the operations on rows of states by vector kernels, for blocks of rows.

#include "kernels/row_kernels.h"

#include <stdexcept>

#include "kernels/feed_forward.h"
#include "kernels/product.h"
#include "machine/threads.h"

namespace ql::kernels {
namespace {

// A unit of work has at most this many rows.
constexpr std::int64_t kBlock = 64;

std::int64_t width_of(const at::Tensor& rows) { return rows.size(-1); }
std::int64_t count_of(const at::Tensor& rows) {
  return rows.size(-1) == 0 ? 0 : rows.numel() / rows.size(-1);
}

std::int64_t blocks_of(const at::Tensor& rows) { return (count_of(rows) + kBlock - 1) / kBlock; }

// Describes a block of at most kBlock consecutive rows, which is one unit of work.
struct Block {
  std::int64_t index, first, rows;  // first: the block's first row
  std::int64_t at;                  // index of the block's first element
};

// Calls work(block) for every block of the rows.
template <typename Work>
void for_blocks(const at::Tensor& all, const Work& work) {
  const std::int64_t rows = count_of(all), width = width_of(all);
  // `work` reads and writes about this many tensors of the size of `all`.
  constexpr double kTensors = 4;
  machine::for_parts(blocks_of(all),
                     machine::microseconds_of(0, kTensors * static_cast<double>(all.nbytes())),
                     [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t index = begin; index < end; ++index) {
                         const std::int64_t first = index * kBlock;
                         work(Block{index, first, std::min(kBlock, rows - first), first * width});
                       }
                     });
}

// Returns zeros [blocks, sums, width], to which each block of rows adds its column sums.
at::Tensor column_sums(const at::Tensor& rows, std::int64_t sums) {
  const bool rounded = rows.scalar_type() == at::kBFloat16;
  return at::zeros({blocks_of(rows), sums, width_of(rows)},
                   rows.options().dtype(rounded ? at::kFloat : rows.scalar_type()));
}

// Sets sum[j] = residual[j] + kept[j] * factor * (output[j] + bias[j]). A null `kept` drops
// nothing; a null bias counts as 0. Each case has its own loop, because for processors without AVX,
// GCC does not vectorize one loop for all cases.
template <typename Real>
QL_VECTOR_BODY void add_row(const Real* residual, const Real* output, const Real* bias,
                            const std::uint8_t* kept, Real factor, std::int64_t width, Real* sum) {
  if (kept == nullptr && bias == nullptr) {
    for (std::int64_t j = 0; j < width; ++j) sum[j] = residual[j] + output[j];
  } else if (kept == nullptr) {
    for (std::int64_t j = 0; j < width; ++j) sum[j] = residual[j] + (output[j] + bias[j]);
  } else if (bias == nullptr) {
    for (std::int64_t j = 0; j < width; ++j) {
      sum[j] = residual[j] + output[j] * (static_cast<Real>(kept[j]) * factor);
    }
  } else {
    for (std::int64_t j = 0; j < width; ++j) {
      sum[j] = residual[j] + (output[j] + bias[j]) * (static_cast<Real>(kept[j]) * factor);
    }
  }
}

// Sets, with the mean m of the row x, and s = 1 / sqrt(mean of (x - m)^2 + kLayerNormEpsilon):
//
//   normalized[j] = s (x[j] - m) weight[j] + bias[j]     statistics = {m, s}
//
// A null weight stands for weight 1 and bias 0. Sums are computed in several lanes
// (kernels/vector.h).
template <typename Real, typename Number>
QL_VECTOR_BODY void normalize_row(const Real* row, const Real* weight, const Real* bias,
                                  std::int64_t width, Number* normalized, Real* statistics) {
  Real lanes[kLanes] = {};
  std::int64_t j = 0;
  for (; j + kLanes <= width; j += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += row[j + lane];
  }
  for (; j < width; ++j) lanes[0] += row[j];
  const Real mean = sum_of<Real>(lanes) / static_cast<Real>(width);
  std::fill(lanes, lanes + kLanes, Real(0));
  for (j = 0; j + kLanes <= width; j += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const Real distance = row[j + lane] - mean;
      lanes[lane] += distance * distance;
    }
  }
  for (; j < width; ++j) lanes[0] += (row[j] - mean) * (row[j] - mean);
  const Real variance = sum_of<Real>(lanes) / static_cast<Real>(width);
  const Real deviation = 1 / std::sqrt(variance + static_cast<Real>(kLayerNormEpsilon));
  if (weight == nullptr) {
    for (j = 0; j < width; ++j) store_number((row[j] - mean) * deviation, normalized[j]);
  } else {
    for (j = 0; j < width; ++j) {
      store_number((row[j] - mean) * deviation * weight[j] + bias[j], normalized[j]);
    }
  }
  statistics[0] = mean;
  statistics[1] = deviation;
}

// Sets to[j] = before[j] + s (h[j] - mean(h) - y[j] mean(h y)), where h is `slopes` and y is
// `values`. `deviation` is the reciprocal s = 1 / sqrt(variance + kLayerNormEpsilon). A null
// `before` counts as 0. `to` may be `slopes`.
template <typename Real>
QL_VECTOR_BODY void normalize_row_gradient(const Real* slopes, const Real* values, Real deviation,
                                           const Real* before, std::int64_t width, Real* to) {
  Real plain[kLanes] = {}, products[kLanes] = {};
  std::int64_t j = 0;
  for (; j + kLanes <= width; j += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      plain[lane] += slopes[j + lane];
      products[lane] += slopes[j + lane] * values[j + lane];
    }
  }
  for (; j < width; ++j) {
    plain[0] += slopes[j];
    products[0] += slopes[j] * values[j];
  }
  const Real mean = sum_of<Real>(plain) / static_cast<Real>(width);
  const Real along = sum_of<Real>(products) / static_cast<Real>(width);
  for (j = 0; j < width; ++j) {
    const Real slope = slopes[j] - mean - values[j] * along;
    to[j] = before == nullptr ? deviation * slope : before[j] + deviation * slope;
  }
}

template <typename Real>
QL_VECTOR_BODY void add_block_body(const Real* residual, const Real* output, const Real* bias,
                                   const std::uint8_t* kept, Real factor, std::int64_t rows,
                                   std::int64_t width, Real* sum) {
  for (std::int64_t at = 0; at < rows * width; at += width) {
    add_row<Real>(residual + at, output + at, bias, kept == nullptr ? nullptr : kept + at, factor,
                  width, sum + at);
  }
}
QL_VECTOR_KERNEL(add_block)

template <typename Real, typename Number>
QL_VECTOR_BODY void normalize_block_body(const Real* states, const Real* weight, const Real* bias,
                                         std::int64_t rows, std::int64_t width, Number* normalized,
                                         Real* statistics) {
  for (std::int64_t row = 0; row < rows; ++row) {
    normalize_row<Real>(states + row * width, weight, bias, width, normalized + row * width,
                        statistics + 2 * row);
  }
}
QL_VECTOR_KERNEL(normalize_block)

// Sets output = kept * factor * sum_gradient, and adds the sum of `output` over the rows to `bias`.
template <typename Real>
QL_VECTOR_BODY void add_gradient_block_body(const Real* sum_gradient, const std::uint8_t* kept,
                                            Real factor, std::int64_t rows, std::int64_t width,
                                            Real* output, Real* bias) {
  for (std::int64_t at = 0; at < rows * width; at += width) {
    for (std::int64_t j = 0; j < width; ++j) {
      const Real gradient = kept == nullptr
                                ? sum_gradient[at + j]
                                : sum_gradient[at + j] * (static_cast<Real>(kept[at + j]) * factor);
      output[at + j] = gradient;
      bias[j] += gradient;
    }
  }
}
QL_VECTOR_KERNEL(add_gradient_block)

// Points to the gradients of a block of rows. `columns` [3, width] holds sums over the block's
// rows. Added up over all blocks, these are the gradients of the norm's weight, the norm's bias and
// the output's bias, in this order. `scratch` has room for two rows. Without dropout, `output` is
// null, because it would equal `residual`.
template <typename Real>
struct AddNormTarget {
  Real *residual, *output, *columns, *scratch;
};

// Let x be a row of `sums`, m and s its two statistics, y = s (x - m), g the same row of `gradient`
// and h = g * weight. A mean is taken over the columns of a row. Then the results are:
//
//   residual    = sum_gradient + s (h - mean(h) - y mean(h y))
//   output      = kept * factor * residual
//   norm weight : sum of g y over the rows
//   norm bias   : sum of g over the rows
//   bias        : sum of `output` over the rows
template <typename Real>
QL_VECTOR_BODY void add_norm_gradient_block_body(const Real* sums, const Real* statistics,
                                                 const Real* weight, const Real* sum_gradient,
                                                 const Real* gradient, const std::uint8_t* kept,
                                                 Real factor, std::int64_t rows, std::int64_t width,
                                                 AddNormTarget<Real> out) {
  Real* values = out.scratch;          // the normalized row, without weight and bias
  Real* slopes = out.scratch + width;  // the gradient with respect to `values`
  Real* weights = out.columns;         // here begin the three column sums of the block
  Real* norm_biases = weights + width;
  Real* biases = norm_biases + width;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t at = row * width;
    const Real mean = statistics[2 * row], deviation = statistics[2 * row + 1];
    for (std::int64_t j = 0; j < width; ++j) {
      const Real value = (sums[at + j] - mean) * deviation;
      const Real slope = gradient[at + j];
      values[j] = value;
      weights[j] += slope * value;
      norm_biases[j] += slope;
      slopes[j] = slope * weight[j];
    }
    Real* residual = out.residual + at;
    normalize_row_gradient<Real>(slopes, values, deviation,
                                 sum_gradient == nullptr ? nullptr : sum_gradient + at, width,
                                 residual);
    if (out.output == nullptr) {
      for (std::int64_t j = 0; j < width; ++j) biases[j] += residual[j];
    } else {
      for (std::int64_t j = 0; j < width; ++j) {
        const Real own = residual[j] * (static_cast<Real>(kept[at + j]) * factor);
        out.output[at + j] = own;
        biases[j] += own;
      }
    }
  }
}
QL_VECTOR_KERNEL(add_norm_gradient_block)

// Sets gradient = s (g - mean(g) - y mean(g y)) in place, with g for a row of `gradient`, m and s
// for its two statistics, and y = s (x - m) for the row x of `states`. `scratch` has room for a
// row.
template <typename Real>
QL_VECTOR_BODY void normalize_gradient_block_body(Real* gradient, const Real* states,
                                                  const Real* statistics, std::int64_t rows,
                                                  std::int64_t width, Real* scratch) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const Real* const state = states + row * width;
    const Real mean = statistics[2 * row], deviation = statistics[2 * row + 1];
    for (std::int64_t j = 0; j < width; ++j) scratch[j] = (state[j] - mean) * deviation;
    Real* slopes = gradient + row * width;
    normalize_row_gradient<Real>(slopes, scratch, deviation, nullptr, width, slopes);
  }
}
QL_VECTOR_KERNEL(normalize_gradient_block)

// Sets hidden = kept * factor * max(0, hidden + bias). There are two loops for the reason given at
// add_row().
template <typename Real, typename Number>
QL_VECTOR_BODY void relu_block_body(Number* hidden, const Real* bias, const std::uint8_t* kept,
                                    Real factor, std::int64_t rows, std::int64_t width) {
  for (std::int64_t at = 0; at < rows * width; at += width) {
    if (kept == nullptr) {
      for (std::int64_t j = 0; j < width; ++j) {
        const Real value = load_number(hidden[at + j]) + bias[j];
        store_number(value < 0 ? Real(0) : value, hidden[at + j]);
      }
    } else {
      for (std::int64_t j = 0; j < width; ++j) {
        const Real value = load_number(hidden[at + j]) + bias[j];
        store_number((value < 0 ? Real(0) : value) * (static_cast<Real>(kept[at + j]) * factor),
                     hidden[at + j]);
      }
    }
  }
}
QL_VECTOR_KERNEL(relu_block)

// Sets gradient = factor * gradient where hidden > 0, else 0, and adds the new gradients of all
// rows, before they are rounded, to `bias`.
template <typename Real, typename Number>
QL_VECTOR_BODY void relu_gradient_block_body(Number* gradient, const Number* hidden, Real factor,
                                             std::int64_t rows, std::int64_t width, Real* bias) {
  for (std::int64_t at = 0; at < rows * width; at += width) {
    for (std::int64_t j = 0; j < width; ++j) {
      const Real slope =
          load_number(hidden[at + j]) > 0 ? load_number(gradient[at + j]) * factor : Real(0);
      store_number(slope, gradient[at + j]);
      bias[j] += slope;
    }
  }
}
QL_VECTOR_KERNEL(relu_gradient_block)

}  // namespace

NormalizedRows normalize_rows(const at::Tensor& states, const at::Tensor& weight,
                              const at::Tensor& bias, const at::Tensor& beside) {
  const std::int64_t width = width_of(states), count = count_of(states);
  NormalizedRows result{at::empty_like(states, beside.options()),
                        at::empty({count, 2}, states.options())};
  AT_DISPATCH_FLOATING_TYPES(states.scalar_type(), "normalize_rows", [&] {
    auto* statistics = result.statistics.data_ptr<scalar_t>();
    with_numbers<scalar_t>(result.values, [&](auto* values) {
      for_blocks(states, [&](const Block& block) {
        normalize_block(data_of<scalar_t>(states, block.at), data_of<scalar_t>(weight),
                        data_of<scalar_t>(bias), block.rows, width, values + block.at,
                        statistics + 2 * block.first);
      });
    });
  });
  return result;
}

at::Tensor sum_rows(const at::Tensor& rows, const at::Tensor& beside, at::Tensor& factor) {
  const std::int64_t width = width_of(rows);
  const at::Tensor columns = column_sums(rows, 1);
  factor =
      rows.scalar_type() == beside.scalar_type() ? rows : at::empty_like(rows, beside.options());
  AT_DISPATCH_FLOATING_TYPES(columns.scalar_type(), "sum_rows", [&] {
    auto* sums = columns.data_ptr<scalar_t>();
    with_numbers<scalar_t>(rows, [&](const auto* in) {
      with_numbers<scalar_t>(factor, [&](auto* numbers) {
        for_blocks(rows, [&](const Block& block) {
          add_to_sums(in + block.at, width, block.rows, width, sums + block.index * width);
          copy_numbers(in + block.at, block.rows * width, numbers + block.at);
        });
      });
    });
  });
  return sum_over_first(columns).squeeze(0);
}

AddedRows add_rows(const ResidualRows& input, const at::Tensor& weight, const at::Tensor& bias) {
  const std::int64_t width = width_of(input.residual), count = count_of(input.residual);
  AddedRows result{at::empty_like(input.residual), {}};
  if (weight.defined()) {
    result.normalized = {at::empty_like(result.sum), at::empty({count, 2}, weight.options())};
  }
  AT_DISPATCH_FLOATING_TYPES(result.sum.scalar_type(), "add_rows", [&] {
    for_blocks(input.residual, [&](const Block& block) {
      add_block(data_of<scalar_t>(input.residual, block.at),
                data_of<scalar_t>(input.output, block.at), data_of<scalar_t>(input.bias),
                data_of<std::uint8_t>(input.kept.elements, block.at),
                static_cast<scalar_t>(input.kept.factor), block.rows, width,
                result.sum.data_ptr<scalar_t>() + block.at);
      if (!weight.defined()) return;
      normalize_block(data_of<scalar_t>(result.sum, block.at), data_of<scalar_t>(weight),
                      data_of<scalar_t>(bias), block.rows, width,
                      result.normalized.values.data_ptr<scalar_t>() + block.at,
                      result.normalized.statistics.data_ptr<scalar_t>() + 2 * block.first);
    });
  });
  return result;
}

AddGradients add_rows_gradients(const at::Tensor& sum_gradient, const DropoutMask& kept,
                                bool with_bias) {
  if (!kept.elements.defined() && !with_bias) return {sum_gradient, sum_gradient, {}, {}, {}};
  const std::int64_t width = width_of(sum_gradient);
  AddGradients result{sum_gradient, at::empty_like(sum_gradient), {}, {}, {}};
  const at::Tensor columns = column_sums(sum_gradient, 1);
  AT_DISPATCH_FLOATING_TYPES(sum_gradient.scalar_type(), "add_rows_gradients", [&] {
    for_blocks(sum_gradient, [&](const Block& block) {
      add_gradient_block(data_of<scalar_t>(sum_gradient, block.at),
                         data_of<std::uint8_t>(kept.elements, block.at),
                         static_cast<scalar_t>(kept.factor), block.rows, width,
                         result.output.data_ptr<scalar_t>() + block.at,
                         columns.data_ptr<scalar_t>() + block.index * width);
    });
  });
  if (with_bias) result.bias = sum_over_first(columns).squeeze(0);
  return result;
}

AddGradients add_norm_gradients(const AddedRows& result, const at::Tensor& weight,
                                const at::Tensor& sum_gradient,
                                const at::Tensor& normalized_gradient, const DropoutMask& kept,
                                bool with_bias) {
  constexpr std::int64_t kSums = 3;
  const std::int64_t width = width_of(result.sum);
  AddGradients gradients;
  gradients.residual = at::empty_like(result.sum);
  const bool dropped = kept.elements.defined();
  gradients.output = dropped ? at::empty_like(result.sum) : gradients.residual;
  const at::Tensor columns = column_sums(result.sum, kSums);
  const at::Tensor scratch = at::empty({columns.size(0), 2, width}, weight.options());
  AT_DISPATCH_FLOATING_TYPES(weight.scalar_type(), "add_norm_gradients", [&] {
    for_blocks(result.sum, [&](const Block& block) {
      const AddNormTarget<scalar_t> target{
          gradients.residual.data_ptr<scalar_t>() + block.at,
          dropped ? gradients.output.data_ptr<scalar_t>() + block.at : nullptr,
          columns.data_ptr<scalar_t>() + block.index * kSums * width,
          scratch.data_ptr<scalar_t>() + block.index * 2 * width};
      add_norm_gradient_block(data_of<scalar_t>(result.sum, block.at),
                              data_of<scalar_t>(result.normalized.statistics, 2 * block.first),
                              data_of<scalar_t>(weight), data_of<scalar_t>(sum_gradient, block.at),
                              data_of<scalar_t>(normalized_gradient, block.at),
                              data_of<std::uint8_t>(kept.elements, block.at),
                              static_cast<scalar_t>(kept.factor), block.rows, width, target);
    });
  });
  const at::Tensor sums = sum_over_first(columns);
  gradients.norm_weight = sums.select(0, 0);
  gradients.norm_bias = sums.select(0, 1);
  if (with_bias) gradients.bias = sums.select(0, 2);
  return gradients;
}

void normalize_rows_gradient(at::Tensor& gradient, const at::Tensor& states,
                             const at::Tensor& statistics) {
  const std::int64_t width = width_of(gradient);
  const at::Tensor scratch = at::empty({blocks_of(gradient), width}, gradient.options());
  AT_DISPATCH_FLOATING_TYPES(gradient.scalar_type(), "normalize_rows_gradient", [&] {
    for_blocks(gradient, [&](const Block& block) {
      normalize_gradient_block(gradient.data_ptr<scalar_t>() + block.at,
                               data_of<scalar_t>(states, block.at),
                               data_of<scalar_t>(statistics, 2 * block.first), block.rows, width,
                               scratch.data_ptr<scalar_t>() + block.index * width);
    });
  });
}

void relu_rows(at::Tensor& hidden, const at::Tensor& bias, const DropoutMask& kept) {
  const std::int64_t width = width_of(hidden);
  AT_DISPATCH_FLOATING_TYPES(bias.scalar_type(), "relu_rows", [&] {
    with_numbers<scalar_t>(hidden, [&](auto* numbers) {
      for_blocks(hidden, [&](const Block& block) {
        relu_block(numbers + block.at, data_of<scalar_t>(bias),
                   data_of<std::uint8_t>(kept.elements, block.at),
                   static_cast<scalar_t>(kept.factor), block.rows, width);
      });
    });
  });
}

at::Tensor relu_rows_gradient(at::Tensor& gradient, const at::Tensor& hidden, double factor) {
  if (gradient.scalar_type() != hidden.scalar_type()) {
    throw std::logic_error("the hidden states and their gradient have different precisions");
  }
  const std::int64_t width = width_of(gradient);
  const at::Tensor columns = column_sums(gradient, 1);
  AT_DISPATCH_FLOATING_TYPES(columns.scalar_type(), "relu_rows_gradient", [&] {
    with_numbers<scalar_t>(hidden, [&](const auto* values) {
      auto* slopes = static_cast<std::decay_t<decltype(*values)>*>(gradient.data_ptr());
      for_blocks(gradient, [&](const Block& block) {
        relu_gradient_block(slopes + block.at, values + block.at, static_cast<scalar_t>(factor),
                            block.rows, width, columns.data_ptr<scalar_t>() + block.index * width);
      });
    });
  });
  return sum_over_first(columns).squeeze(0);
}

}  // namespace ql::kernels
