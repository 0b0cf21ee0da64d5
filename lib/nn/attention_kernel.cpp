#include "nn/attention_kernel.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "nn/vector.h"

namespace ql::nn {
namespace {

// Streams whose gradients of positions and biases are summed one after the other; the sums of the
// groups are joined in order. Fixed, so that the result does not depend on the number of threads.
constexpr std::int64_t kGroup = 8;

// Pointers to the data of an AttentionInput. Rows of queries are `heads * width` apart, rows of
// keys and values twice that.
template <typename Real>
struct View {
  explicit View(const AttentionInput& input)
      : batch(input.queries.size(0)),
        segment(input.queries.size(1)),
        window(input.keys_values.size(1)),
        heads(input.queries.size(2)),
        width(input.queries.size(3)),
        queries(input.queries.data_ptr<Real>()),
        keys_values(input.keys_values.data_ptr<Real>()),
        positions(input.positions.data_ptr<Real>()),
        content_bias(input.content_bias.data_ptr<Real>()),
        position_bias(input.position_bias.data_ptr<Real>()),
        mask(input.probability_mask.defined() ? input.probability_mask.data_ptr<Real>() : nullptr),
        scale(static_cast<Real>(1 / std::sqrt(static_cast<double>(width)))) {}

  std::int64_t row() const { return heads * width; }
  std::int64_t query_at(std::int64_t stream, std::int64_t head) const {
    return stream * segment * row() + head * width;
  }
  std::int64_t key_at(std::int64_t stream, std::int64_t head) const {
    return stream * window * 2 * row() + head * width;
  }
  std::int64_t score_at(std::int64_t stream, std::int64_t head) const {
    return (stream * heads + head) * segment * window;
  }

  std::int64_t batch, segment, window, heads, width;
  const Real *queries, *keys_values, *positions, *content_bias, *position_bias, *mask;
  Real scale;
};

// sums[n] += sum over k < count of coefficients[k * step] * rows[k * stride + n], n < width.
template <typename Real>
QL_VECTOR_BODY void add_rows(Real* __restrict sums, const Real* coefficients, std::int64_t step,
                             const Real* rows, std::int64_t stride, std::int64_t count,
                             std::int64_t width) {
  std::int64_t k = 0;
  for (; k + 4 <= count; k += 4) {
    const Real a = coefficients[k * step], b = coefficients[(k + 1) * step];
    const Real c = coefficients[(k + 2) * step], d = coefficients[(k + 3) * step];
    const Real *row_a = rows + k * stride, *row_b = row_a + stride;
    const Real *row_c = row_b + stride, *row_d = row_c + stride;
    for (std::int64_t n = 0; n < width; ++n) {
      sums[n] += a * row_a[n] + b * row_b[n] + c * row_c[n] + d * row_d[n];
    }
  }
  for (; k < count; ++k) {
    const Real a = coefficients[k * step];
    const Real* row = rows + k * stride;
    for (std::int64_t n = 0; n < width; ++n) {
      sums[n] += a * row[n];
    }
  }
}

// to[column][row] = from[row][column].
template <typename Real>
QL_VECTOR_BODY void transpose(const Real* from, std::int64_t stride, std::int64_t rows,
                              std::int64_t columns, Real* to) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      to[column * rows + row] = from[row * stride + column];
    }
  }
}

template <typename Real>
QL_VECTOR_BODY void softmax_row(Real* scores, std::int64_t count) {
  Real maximum = scores[0];
  for (std::int64_t j = 1; j < count; ++j) {
    maximum = maximum < scores[j] ? scores[j] : maximum;
  }
  Real sum = 0;
  for (std::int64_t j = 0; j < count; ++j) {
    scores[j] = exponential(scores[j] - maximum);
  }
  for (std::int64_t j = 0; j < count; ++j) {
    sum += scores[j];
  }
  const Real factor = 1 / sum;
  for (std::int64_t j = 0; j < count; ++j) {
    scores[j] *= factor;
  }
}

// One stream and head. `position_columns` is the head's positions transposed [width, window];
// `scratch` holds (width + 1) * window + 2 * width numbers.
template <typename Real>
QL_VECTOR_BODY void forward_head_body(const View<Real>* in, std::int64_t stream, std::int64_t head,
                                      const Real* position_columns, Real* probabilities, Real* sums,
                                      Real* scratch) {
  const std::int64_t window = in->window, width = in->width, row = in->row();
  const Real* keys = in->keys_values + in->key_at(stream, head);
  const Real* values = keys + row;
  Real* key_columns = scratch;
  Real* kept = key_columns + width * window;  // probabilities after dropout
  Real* content = kept + window;
  Real* position = content + width;
  transpose(keys, 2 * row, window, width, key_columns);
  for (std::int64_t i = 0; i < in->segment; ++i) {
    const std::int64_t visible = window - in->segment + i + 1;
    const Real* query = in->queries + in->query_at(stream, head) + i * row;
    for (std::int64_t n = 0; n < width; ++n) {
      content[n] = (query[n] + in->content_bias[head * width + n]) * in->scale;
      position[n] = (query[n] + in->position_bias[head * width + n]) * in->scale;
    }
    const std::int64_t scores_at = in->score_at(stream, head) + i * window;
    Real* scores = probabilities + scores_at;
    std::fill(scores, scores + window, Real(0));
    add_rows<Real>(scores, content, 1, key_columns, window, width, visible);
    // Key j is at the distance of position row segment-1-i + j.
    add_rows<Real>(scores, position, 1, position_columns + (in->segment - 1 - i), window, width,
                   visible);
    softmax_row(scores, visible);
    const Real* weights = scores;
    if (in->mask != nullptr) {
      for (std::int64_t j = 0; j < visible; ++j) {
        kept[j] = scores[j] * in->mask[scores_at + j];
      }
      weights = kept;
    }
    Real* sum = sums + in->query_at(stream, head) + i * row;
    std::fill(sum, sum + width, Real(0));
    add_rows<Real>(sum, weights, 1, values, 2 * row, visible, width);
  }
}
QL_VECTOR_KERNEL(forward_head)

// Where the gradients of one group of streams go. Positions and biases are [window, width] and
// [width] of the head; the others as in the input.
template <typename Real>
struct GradientView {
  Real *queries, *keys_values;
  Real *positions, *content_bias, *position_bias;
};

// One stream and head. `scratch` holds 2 * (width + segment) * window + 2 * segment * width +
// 2 * width numbers.
template <typename Real>
QL_VECTOR_BODY void backward_head_body(const View<Real>* in, std::int64_t stream, std::int64_t head,
                                       const Real* probabilities, const Real* sums_gradient,
                                       const GradientView<Real>* out, Real* scratch) {
  const std::int64_t segment = in->segment, window = in->window, width = in->width;
  const std::int64_t memory = window - segment, row = in->row();
  const Real* queries = in->queries + in->query_at(stream, head);
  const Real* keys = in->keys_values + in->key_at(stream, head);
  const Real* sum_gradients = sums_gradient + in->query_at(stream, head);
  Real* value_columns = scratch;
  Real* kept = value_columns + width * window;      // probabilities after dropout
  Real* score_gradients = kept + segment * window;  // with the scale in them
  Real* content = score_gradients + segment * window;
  Real* position = content + segment * width;
  Real* content_gradient = position + segment * width;
  Real* position_gradient = content_gradient + width;
  transpose(keys + row, 2 * row, window, width, value_columns);

  for (std::int64_t i = 0; i < segment; ++i) {
    const std::int64_t visible = memory + i + 1;
    const std::int64_t scores_at = in->score_at(stream, head) + i * window;
    const Real* probability = probabilities + scores_at;
    Real* weights = kept + i * window;
    Real* gradient = score_gradients + i * window;
    std::fill(gradient, gradient + window, Real(0));
    add_rows<Real>(gradient, sum_gradients + i * row, 1, value_columns, window, width, visible);
    if (in->mask != nullptr) {
      const Real* mask = in->mask + scores_at;
      for (std::int64_t j = 0; j < visible; ++j) {
        weights[j] = probability[j] * mask[j];
        gradient[j] *= mask[j];
      }
    } else {
      std::copy(probability, probability + visible, weights);
    }
    Real mean = 0;
    for (std::int64_t j = 0; j < visible; ++j) {
      mean += probability[j] * gradient[j];
    }
    for (std::int64_t j = 0; j < visible; ++j) {
      gradient[j] = probability[j] * (gradient[j] - mean) * in->scale;
    }
    for (std::int64_t n = 0; n < width; ++n) {
      content[i * width + n] = queries[i * row + n] + in->content_bias[head * width + n];
      position[i * width + n] = queries[i * row + n] + in->position_bias[head * width + n];
    }
    std::fill(content_gradient, content_gradient + 2 * width, Real(0));
    add_rows<Real>(content_gradient, gradient, 1, keys, 2 * row, visible, width);
    add_rows<Real>(position_gradient, gradient, 1,
                   in->positions + (segment - 1 - i) * row + head * width, row, visible, width);
    Real* query_gradient = out->queries + in->query_at(stream, head) + i * row;
    for (std::int64_t n = 0; n < width; ++n) {
      query_gradient[n] = content_gradient[n] + position_gradient[n];
      out->content_bias[n] += content_gradient[n];
      out->position_bias[n] += position_gradient[n];
    }
  }

  for (std::int64_t j = 0; j < window; ++j) {
    const std::int64_t first = std::max<std::int64_t>(0, j - memory);  // the first query to see j
    const std::int64_t count = segment - first;
    Real* key = out->keys_values + in->key_at(stream, head) + j * 2 * row;
    std::fill(key, key + width, Real(0));
    std::fill(key + row, key + row + width, Real(0));
    add_rows<Real>(key, score_gradients + first * window + j, window, content + first * width,
                   width, count, width);
    add_rows<Real>(key + row, kept + first * window + j, window, sum_gradients + first * row, row,
                   count, width);
  }
  for (std::int64_t k = 0; k < window; ++k) {
    // Query i meets position row k at key j = k - (segment - 1 - i) >= 0.
    const std::int64_t first = std::max<std::int64_t>(0, segment - 1 - k);
    add_rows<Real>(out->positions + k * width,
                   score_gradients + first * window + k - (segment - 1 - first), window + 1,
                   position + first * width, width, segment - first, width);
  }
}
QL_VECTOR_KERNEL(backward_head)

template <typename Real>
AttentionResult forward(const AttentionInput& input) {
  const View<Real> view(input);
  AttentionResult result;
  result.sums = at::empty(input.queries.sizes(), input.queries.options());
  result.probabilities =
      at::empty({view.batch, view.heads, view.segment, view.window}, input.queries.options());
  const at::Tensor columns = input.positions.permute({1, 2, 0}).contiguous();
  const Real* position_columns = columns.data_ptr<Real>();
  Real* probabilities = result.probabilities.data_ptr<Real>();
  Real* sums = result.sums.data_ptr<Real>();
  at::parallel_for(0, view.batch * view.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Real> scratch(
        static_cast<std::size_t>((view.width + 1) * view.window + 2 * view.width));
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t head = task % view.heads;
      forward_head(&view, task / view.heads, head,
                   position_columns + head * view.width * view.window, probabilities, sums,
                   scratch.data());
    }
  });
  return result;
}

template <typename Real>
AttentionGradients backward(const AttentionInput& input, const at::Tensor& probabilities,
                            const at::Tensor& sums_gradient) {
  const View<Real> view(input);
  const std::int64_t groups = (view.batch + kGroup - 1) / kGroup;
  const auto options = input.queries.options();
  AttentionGradients result;
  result.queries = at::empty(input.queries.sizes(), options);
  result.keys_values = at::empty(input.keys_values.sizes(), options);
  // Of every group and head: the gradients of its positions, content bias and position bias.
  const std::int64_t rows = view.window + 2;
  const at::Tensor partial = at::zeros({groups, view.heads, rows, view.width}, options);
  const Real* probability = probabilities.data_ptr<Real>();
  const Real* gradient = sums_gradient.data_ptr<Real>();
  Real* query_gradients = result.queries.data_ptr<Real>();
  Real* key_gradients = result.keys_values.data_ptr<Real>();
  Real* partials = partial.data_ptr<Real>();
  at::parallel_for(0, groups * view.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Real> scratch(
        static_cast<std::size_t>((view.width + 2 * view.segment) * view.window +
                                 2 * view.segment * view.width + 2 * view.width));
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t group = task / view.heads, head = task % view.heads;
      Real* positions = partials + task * rows * view.width;
      Real* biases = positions + view.window * view.width;
      const GradientView<Real> out{query_gradients, key_gradients, positions, biases,
                                   biases + view.width};
      const std::int64_t last = std::min(view.batch, (group + 1) * kGroup);
      for (std::int64_t stream = group * kGroup; stream < last; ++stream) {
        backward_head(&view, stream, head, probability, gradient, &out, scratch.data());
      }
    }
  });
  const at::Tensor sum = partial.sum(0);  // [H, window + 2, d_head]
  result.positions = sum.narrow(1, 0, view.window).transpose(0, 1);
  result.content_bias = sum.select(1, view.window);
  result.position_bias = sum.select(1, view.window + 1);
  return result;
}

}  // namespace

AttentionResult attention_forward(const AttentionInput& input) {
  return input.queries.scalar_type() == at::kDouble ? forward<double>(input)
                                                    : forward<float>(input);
}

AttentionGradients attention_backward(const AttentionInput& input, const at::Tensor& probabilities,
                                      const at::Tensor& sums_gradient) {
  return input.queries.scalar_type() == at::kDouble
             ? backward<double>(input, probabilities, sums_gradient)
             : backward<float>(input, probabilities, sums_gradient);
}

}  // namespace ql::nn
