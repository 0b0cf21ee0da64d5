#include "nn/softmax_blocks.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "nn/vector.h"

namespace ql::nn {
namespace {

// Logits of one block: large enough for fast matrix products, small enough to stay in a cache.
constexpr std::int64_t kBlockElements = std::int64_t{1} << 22;
constexpr std::int64_t kSmallestBlock = 32;
constexpr std::int64_t kColumns = 2048;

template <typename Real>
QL_VECTOR_BODY Real row_maximum_body(const Real* row, const Real* bias, std::int64_t size) {
  Real lanes[kLanes];
  std::fill(lanes, lanes + kLanes, row[0] + bias[0]);
  std::int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const Real value = row[i + lane] + bias[i + lane];
      lanes[lane] = lanes[lane] < value ? value : lanes[lane];
    }
  }
  for (; i < size; ++i) {
    lanes[0] = std::max(lanes[0], row[i] + bias[i]);
  }
  return *std::max_element(lanes, lanes + kLanes);
}
QL_VECTOR_KERNEL(row_maximum)

// row[i] = e^(row[i] + bias[i] - maximum); returns their sum. Short float sums are joined in
// double, so that the sum's error does not grow with the vocabulary.
template <typename Real>
QL_VECTOR_BODY double exponentiate_body(Real* row, const Real* bias, std::int64_t size,
                                        Real maximum) {
  constexpr std::int64_t kChunk = 64 * kLanes;
  double sum = 0;
  for (std::int64_t begin = 0; begin < size; begin += kChunk) {
    const std::int64_t end = std::min(begin + kChunk, size);
    Real lanes[kLanes] = {};
    std::int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        const Real value = exponential(row[i + lane] + bias[i + lane] - maximum);
        row[i + lane] = value;
        lanes[lane] += value;
      }
    }
    for (; i < end; ++i) {
      row[i] = exponential(row[i] + bias[i] - maximum);
      sum += row[i];
    }
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      sum += lanes[lane];
    }
  }
  return sum;
}
QL_VECTOR_KERNEL(exponentiate)

// rows[r][c] *= factors[r]; sums[c] += rows[r][c].
template <typename Real>
QL_VECTOR_BODY void scale_and_sum_body(Real* rows, std::int64_t count, std::int64_t stride,
                                       std::int64_t columns, const Real* factors, Real* sums) {
  for (std::int64_t row = 0; row < count; ++row) {
    Real* values = rows + row * stride;
    const Real factor = factors[row];
    for (std::int64_t column = 0; column < columns; ++column) {
      values[column] *= factor;
      sums[column] += values[column];
    }
  }
}
QL_VECTOR_KERNEL(scale_and_sum)

// A block of logits without bias becomes the losses and the exponentials; `sums` their row sums.
template <typename Real>
void finish_losses(const at::Tensor& logits, const at::Tensor& bias, const std::int64_t* targets,
                   Real* losses, std::vector<double>& sums) {
  const std::int64_t vocab = logits.size(1);
  Real* values = logits.data_ptr<Real>();
  const Real* biases = bias.data_ptr<Real>();
  at::parallel_for(0, logits.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      Real* logit = values + row * vocab;
      const Real maximum = row_maximum(static_cast<const Real*>(logit), biases, vocab);
      const Real target = logit[targets[row]] + biases[targets[row]];
      const double sum = exponentiate(logit, biases, vocab, maximum);
      sums[static_cast<std::size_t>(row)] = sum;
      losses[row] = static_cast<Real>(std::log(sum) + (static_cast<double>(maximum) - target));
    }
  });
}

// The exponentials become the gradients by logit, (softmax - [is target]) * factor.
template <typename Real>
void finish_gradients(const at::Tensor& exponentials, const std::int64_t* targets,
                      const Real* factors, const std::vector<double>& sums,
                      const at::Tensor& bias_gradient) {
  const std::int64_t rows = exponentials.size(0), vocab = exponentials.size(1);
  Real* values = exponentials.data_ptr<Real>();
  Real* bias = bias_gradient.data_ptr<Real>();
  std::vector<Real> scales(static_cast<std::size_t>(rows));
  for (std::int64_t row = 0; row < rows; ++row) {
    const double factor = factors == nullptr ? 1 : factors[row];
    scales[static_cast<std::size_t>(row)] =
        static_cast<Real>(factor / sums[static_cast<std::size_t>(row)]);
  }
  const std::int64_t chunks = (vocab + kColumns - 1) / kColumns;
  at::parallel_for(0, chunks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = begin * kColumns; first < std::min(end * kColumns, vocab);
         first += kColumns) {
      const std::int64_t columns = std::min(kColumns, vocab - first);
      scale_and_sum(values + first, rows, vocab, columns, static_cast<const Real*>(scales.data()),
                    bias + first);
    }
  });
  for (std::int64_t row = 0; row < rows; ++row) {
    const Real factor = factors == nullptr ? Real(1) : factors[row];
    values[row * vocab + targets[row]] -= factor;
    bias[targets[row]] -= factor;
  }
}

template <typename Real>
at::Tensor run(const SoftmaxInput& input, const at::Tensor& factors, SoftmaxGradients* gradients) {
  const std::int64_t rows = input.states.size(0), vocab = input.weight.size(0);
  const std::int64_t block = std::min(rows, std::max(kSmallestBlock, kBlockElements / vocab));
  at::Tensor losses = at::empty({rows}, input.states.options());
  at::Tensor buffer = at::empty({block, vocab}, input.states.options());
  if (gradients != nullptr) {
    *gradients = {at::empty_like(input.states), at::empty_like(input.weight),
                  at::zeros_like(input.bias)};
  }
  std::vector<double> sums(static_cast<std::size_t>(block));
  for (std::int64_t first = 0; first < rows; first += block) {
    const std::int64_t count = std::min(block, rows - first);
    const std::int64_t* targets = input.targets.data_ptr<std::int64_t>() + first;
    const at::Tensor states = input.states.narrow(0, first, count);
    at::Tensor logits = buffer.narrow(0, 0, count);
    at::mm_out(logits, states, input.weight.t());
    finish_losses<Real>(logits, input.bias, targets, losses.data_ptr<Real>() + first, sums);
    if (gradients != nullptr) {
      finish_gradients<Real>(logits, targets,
                             factors.defined() ? factors.data_ptr<Real>() + first : nullptr, sums,
                             gradients->bias);
      at::Tensor target = gradients->states.narrow(0, first, count);
      at::mm_out(target, logits, input.weight);
      // The first block sets, the others add.
      gradients->weight.addmm_(logits.t(), states, first == 0 ? 0 : 1);
    }
  }
  return losses;
}

}  // namespace

at::Tensor softmax_blocks(const SoftmaxInput& input, const at::Tensor& factors,
                          SoftmaxGradients* gradients) {
  const at::NoGradGuard no_grad;
  return input.states.scalar_type() == at::kDouble ? run<double>(input, factors, gradients)
                                                   : run<float>(input, factors, gradients);
}

}  // namespace ql::nn
