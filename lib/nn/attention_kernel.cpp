#include "nn/attention_kernel.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include "nn/vector.h"

namespace ql::nn {
namespace {

// Streams whose gradients of positions and biases are summed one after the other; the sums of the
// groups are joined in order. Fixed, so that the result does not depend on the number of threads.
constexpr std::int64_t kGroup = 8;

// Keys and values of `length` states of the window; streams are `stride` numbers apart.
template <typename Real>
struct Part {
  const Real* data = nullptr;
  std::int64_t length = 0, stride = 0;
};

// Pointers to the data of an AttentionInput. Rows of queries are `heads * width` apart, rows of
// keys and values twice that.
template <typename Real>
struct View {
  explicit View(const AttentionInput& input)
      : batch(input.queries.size(0)),
        segment(input.queries.size(1)),
        window(input.window()),
        heads(input.queries.size(2)),
        width(input.queries.size(3)),
        span(input.reach.span),
        queries(input.queries.data_ptr<Real>()),
        positions(data_of(input.positions)),
        content_bias(data_of(input.content_bias)),
        position_bias(data_of(input.position_bias)),
        kept(input.probability_kept.defined() ? input.probability_kept.data_ptr<std::uint8_t>()
                                              : nullptr),
        kept_factor(static_cast<Real>(input.kept_factor)),
        dilations(input.reach.dilations.empty() ? nullptr : input.reach.dilations.data()),
        scale(static_cast<Real>(1 / std::sqrt(static_cast<double>(width)))) {
    if (input.keys_values.size() > kMostParts) {
      throw std::logic_error("too many parts of a window");
    }
    for (const at::Tensor& part : input.keys_values) {
      parts[part_count++] = {part.data_ptr<Real>(), part.size(1), part.stride(0)};
    }
  }

  static const Real* data_of(const at::Tensor& tensor) {
    return tensor.defined() ? tensor.data_ptr<Real>() : nullptr;
  }
  std::int64_t row() const { return heads * width; }
  std::int64_t query_at(std::int64_t stream, std::int64_t head) const {
    return stream * segment * row() + head * width;
  }
  std::int64_t score_at(std::int64_t stream, std::int64_t head) const {
    return (stream * heads + head) * segment * window;
  }
  std::int64_t dilation(std::int64_t head) const {
    return dilations == nullptr ? 1 : dilations[head];
  }
  // The distance from a query to the oldest key that it may see, the window permitting.
  std::int64_t farthest(std::int64_t head) const {
    return span > 0 ? std::min((span - 1) * dilation(head), window) : window;
  }

  std::int64_t batch, segment, window, heads, width, span;
  Part<Real> parts[kMostParts];
  std::size_t part_count = 0;
  const Real *queries, *positions, *content_bias, *position_bias;
  const std::uint8_t* kept;
  Real kept_factor;
  const std::int64_t* dilations;
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

// to[column * to_stride + row] = from[row * stride + column].
template <typename Real>
QL_VECTOR_BODY void transpose(const Real* from, std::int64_t stride, std::int64_t rows,
                              std::int64_t columns, Real* to, std::int64_t to_stride) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      to[column * to_stride + row] = from[row * stride + column];
    }
  }
}

// sums[j] += sum over k < width of coefficients[k] * columns[k * stride + j * step], j < count.
template <typename Real>
QL_VECTOR_BODY void add_columns(Real* __restrict sums, const Real* coefficients,
                                const Real* columns, std::int64_t stride, std::int64_t step,
                                std::int64_t count, std::int64_t width) {
  if (step == 1) {
    add_rows<Real>(sums, coefficients, 1, columns, stride, width, count);
    return;
  }
  for (std::int64_t k = 0; k < width; ++k) {
    for (std::int64_t j = 0; j < count; ++j) {
      sums[j] += coefficients[k] * columns[k * stride + j * step];
    }
  }
}

// What the scores are made of: (query + bias) * scale.
template <typename Real>
QL_VECTOR_BODY void scale_query(const Real* query, const Real* bias, Real scale, std::int64_t width,
                                Real* scaled) {
  for (std::int64_t n = 0; n < width; ++n) {
    scaled[n] = (bias == nullptr ? query[n] : query[n] + bias[n]) * scale;
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
// `probabilities`, if they are kept, begins with the first stream and head. `scratch` holds
// (width + 3) * window + 2 * width numbers.
template <typename Real>
QL_VECTOR_BODY void forward_head_body(const View<Real>* in, std::int64_t stream, std::int64_t head,
                                      const Real* position_columns, Real* probabilities, Real* sums,
                                      Real* scratch) {
  const std::int64_t window = in->window, width = in->width, row = in->row();
  const std::int64_t dilation = in->dilation(head), farthest = in->farthest(head);
  Real* key_columns = scratch;
  Real* kept = key_columns + width * window;  // probabilities after dropout
  Real* dense = kept + window;                // scores of the keys that are seen, side by side
  Real* spare = dense + window;
  Real* content = spare + window;
  Real* position = content + width;
  for (std::size_t p = 0, column = 0; p < in->part_count; ++p) {
    const Part<Real>& part = in->parts[p];
    transpose<Real>(part.data + stream * part.stride + head * width, 2 * row, part.length, width,
                    key_columns + column, window);
    column += static_cast<std::size_t>(part.length);
  }
  for (std::int64_t i = 0; i < in->segment; ++i) {
    const std::int64_t newest = window - in->segment + i;
    const std::int64_t count = std::min(farthest, newest) / dilation + 1;
    const std::int64_t first = newest - (count - 1) * dilation;
    const Real* query = in->queries + in->query_at(stream, head) + i * row;
    const std::int64_t scores_at = in->score_at(stream, head) + i * window;
    Real* row_probabilities = probabilities == nullptr ? spare : probabilities + scores_at;
    Real* scores = dilation == 1 ? row_probabilities + first : dense;
    std::fill(row_probabilities, row_probabilities + window, Real(0));
    std::fill(scores, scores + count, Real(0));
    scale_query<Real>(query,
                      in->content_bias == nullptr ? nullptr : in->content_bias + head * width,
                      in->scale, width, content);
    add_columns<Real>(scores, content, key_columns + first, window, dilation, count, width);
    if (in->positions != nullptr) {
      scale_query<Real>(query,
                        in->position_bias == nullptr ? nullptr : in->position_bias + head * width,
                        in->scale, width, position);
      // Key j is at the distance of position row segment-1-i + j.
      add_columns<Real>(scores, position, position_columns + (in->segment - 1 - i) + first, window,
                        dilation, count, width);
    }
    softmax_row(scores, count);
    for (std::int64_t k = 0; dilation > 1 && k < count; ++k) {
      row_probabilities[first + k * dilation] = dense[k];
    }
    const Real* weights = row_probabilities;
    if (in->kept != nullptr) {
      for (std::int64_t j = first; j <= newest; ++j) {
        kept[j] = in->kept[scores_at + j] != 0 ? row_probabilities[j] * in->kept_factor : Real(0);
      }
      weights = kept;
    }
    Real* sum = sums + in->query_at(stream, head) + i * row;
    std::fill(sum, sum + width, Real(0));
    for (std::int64_t p = 0, begin = 0; p < static_cast<std::int64_t>(in->part_count); ++p) {
      const Part<Real>& part = in->parts[p];
      const std::int64_t from = std::max(first, begin);
      const std::int64_t to = std::min(newest + 1, begin + part.length);
      if (from < to) {
        add_rows<Real>(
            sum, weights + from, 1,
            part.data + stream * part.stride + head * width + ((from - begin) * 2 + 1) * row,
            2 * row, to - from, width);
      }
      begin += part.length;
    }
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

// One stream and head of a window in one part. `scratch` holds (width + 2 * segment) * window +
// 2 * segment * width + 2 * width numbers. Keys that a dilation leaves out have the probability 0
// and thus no gradient.
template <typename Real>
QL_VECTOR_BODY void backward_head_body(const View<Real>* in, std::int64_t stream, std::int64_t head,
                                       const Real* probabilities, const Real* sums_gradient,
                                       const GradientView<Real>* out, Real* scratch) {
  const std::int64_t segment = in->segment, window = in->window, width = in->width;
  const std::int64_t memory = window - segment, row = in->row();
  const std::int64_t farthest = in->farthest(head),
                     keys_at = stream * window * 2 * row + head * width;
  const Real* queries = in->queries + in->query_at(stream, head);
  const Real* keys = in->parts[0].data + stream * in->parts[0].stride + head * width;
  const Real* sum_gradients = sums_gradient + in->query_at(stream, head);
  Real* value_columns = scratch;
  Real* kept = value_columns + width * window;      // probabilities after dropout
  Real* score_gradients = kept + segment * window;  // with the scale in them
  Real* content = score_gradients + segment * window;
  Real* position = content + segment * width;
  Real* content_gradient = position + segment * width;
  Real* position_gradient = content_gradient + width;
  transpose<Real>(keys + row, 2 * row, window, width, value_columns, window);

  for (std::int64_t i = 0; i < segment; ++i) {
    const std::int64_t visible = memory + i + 1;
    const std::int64_t first = std::max<std::int64_t>(0, visible - 1 - farthest);
    const std::int64_t count = visible - first;
    const std::int64_t scores_at = in->score_at(stream, head) + i * window;
    const Real* probability = probabilities + scores_at;
    Real* weights = kept + i * window;
    Real* gradient = score_gradients + i * window;
    std::fill(gradient, gradient + window, Real(0));
    add_rows<Real>(gradient + first, sum_gradients + i * row, 1, value_columns + first, window,
                   width, count);
    if (in->kept != nullptr) {
      for (std::int64_t j = first; j < visible; ++j) {
        const Real factor = in->kept[scores_at + j] != 0 ? in->kept_factor : Real(0);
        weights[j] = probability[j] * factor;
        gradient[j] *= factor;
      }
    } else {
      std::copy(probability + first, probability + visible, weights + first);
    }
    Real mean = 0;
    for (std::int64_t j = first; j < visible; ++j) {
      mean += probability[j] * gradient[j];
    }
    for (std::int64_t j = first; j < visible; ++j) {
      gradient[j] = probability[j] * (gradient[j] - mean) * in->scale;
    }
    for (std::int64_t n = 0; n < width; ++n) {
      const Real query = queries[i * row + n];
      content[i * width + n] =
          in->content_bias == nullptr ? query : query + in->content_bias[head * width + n];
      position[i * width + n] =
          in->position_bias == nullptr ? query : query + in->position_bias[head * width + n];
    }
    std::fill(content_gradient, content_gradient + 2 * width, Real(0));
    add_rows<Real>(content_gradient, gradient + first, 1, keys + first * 2 * row, 2 * row, count,
                   width);
    if (in->positions != nullptr) {
      add_rows<Real>(position_gradient, gradient + first, 1,
                     in->positions + (segment - 1 - i + first) * row + head * width, row, count,
                     width);
    }
    Real* query_gradient = out->queries + in->query_at(stream, head) + i * row;
    for (std::int64_t n = 0; n < width; ++n) {
      query_gradient[n] = content_gradient[n] + position_gradient[n];
      out->content_bias[n] += content_gradient[n];
      out->position_bias[n] += position_gradient[n];
    }
  }

  for (std::int64_t j = 0; j < window; ++j) {
    const std::int64_t first = std::max<std::int64_t>(0, j - memory);  // the first query to see j
    const std::int64_t end = std::min(segment, j - memory + farthest + 1);  // behind the last one
    const std::int64_t count = std::max<std::int64_t>(0, end - first);
    Real* key = out->keys_values + keys_at + j * 2 * row;
    std::fill(key, key + width, Real(0));
    std::fill(key + row, key + row + width, Real(0));
    add_rows<Real>(key, score_gradients + first * window + j, window, content + first * width,
                   width, count, width);
    add_rows<Real>(key + row, kept + first * window + j, window, sum_gradients + first * row, row,
                   count, width);
  }
  const std::int64_t nearest_row = std::max<std::int64_t>(0, window - 1 - farthest);
  for (std::int64_t k = nearest_row; in->positions != nullptr && k < window; ++k) {
    // Query i meets position row k at key j = k - (segment - 1 - i) >= 0.
    const std::int64_t first = std::max<std::int64_t>(0, segment - 1 - k);
    add_rows<Real>(out->positions + k * width,
                   score_gradients + first * window + k - (segment - 1 - first), window + 1,
                   position + first * width, width, segment - first, width);
  }
}
QL_VECTOR_KERNEL(backward_head)

template <typename Real>
AttentionResult forward(const AttentionInput& input, bool keep) {
  const View<Real> view(input);
  AttentionResult result;
  result.sums = at::empty(input.queries.sizes(), input.queries.options());
  if (keep) {
    result.probabilities =
        at::empty({view.batch, view.heads, view.segment, view.window}, input.queries.options());
  }
  at::Tensor columns;
  if (view.positions != nullptr) {
    columns = input.positions.permute({1, 2, 0}).contiguous();
  }
  const Real* position_columns = View<Real>::data_of(columns);
  Real* probabilities = keep ? result.probabilities.template data_ptr<Real>() : nullptr;
  Real* sums = result.sums.template data_ptr<Real>();
  at::parallel_for(0, view.batch * view.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Real> scratch(
        static_cast<std::size_t>((view.width + 3) * view.window + 2 * view.width));
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t head = task % view.heads;
      const Real* of_head = position_columns == nullptr
                                ? nullptr
                                : position_columns + head * view.width * view.window;
      forward_head(&view, task / view.heads, head, of_head, probabilities, sums, scratch.data());
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
  result.keys_values = at::empty(input.keys_values.front().sizes(), options);
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
  if (view.positions != nullptr) {
    result.positions = sum.narrow(1, 0, view.window).transpose(0, 1);
  }
  if (view.content_bias != nullptr) {
    result.content_bias = sum.select(1, view.window);
  }
  if (view.position_bias != nullptr) {
    result.position_bias = sum.select(1, view.window + 1);
  }
  return result;
}

}  // namespace

AttentionResult attention_forward(const AttentionInput& input, bool keep) {
  return input.queries.scalar_type() == at::kDouble ? forward<double>(input, keep)
                                                    : forward<float>(input, keep);
}

AttentionGradients attention_backward(const AttentionInput& input, const at::Tensor& probabilities,
                                      const at::Tensor& sums_gradient) {
  return input.queries.scalar_type() == at::kDouble
             ? backward<double>(input, probabilities, sums_gradient)
             : backward<float>(input, probabilities, sums_gradient);
}

}  // namespace ql::nn
