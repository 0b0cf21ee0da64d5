// Computes the gradients of the attention kernel.

#include <algorithm>

#include "kernels/attention_problem.h"
#include "kernels/product.h"

namespace ql::kernels {
namespace attention {
namespace {

// The gradients of positions and biases are sums over streams, which are divided into groups of at
// most this many. For each group and head, one thread adds up these gradients, stream by stream.
// Then sum_over_first() adds the sums of the groups. The size is fixed, so that the result does not
// depend on the number of threads.
constexpr std::int64_t kGroup = 8;

// Points to gradients. `queries` and `keys_values` have the shapes of the input. `positions`
// [window, width] and the biases [width] belong to one head; they are summed over some of the
// streams.
template <typename Real>
struct GradientView {
  Real *queries, *keys_values;
  Real *positions, *content_bias, *position_bias;
};

// Computes the gradients of one (stream, head), a block of queries at a time. The letters are those
// of Forward (attention_forward.cpp): p_ij is the probability of key j for query i, f_ij dropout's
// factor, c = 1 / sqrt(d_head), and m the window index of query 0. G_i is the gradient with respect
// to the attention's output for query i. The gradients are
//
//   w_ij    = f_ij p_ij                                      weights_
//   D_ij    = f_ij (G_i . value_j)                           gradient of p_ij
//   S_ij    = c p_ij (D_ij - sum_n p_in D_in)                gradients_: gradient of (score_ij / c)
//   value_j : sum_i w_ij G_i
//   k_j     : sum_i S_ij (q_i + u)
//   r_d     : sum_i S_ij (q_i + v), j = m + i - d            a diagonal of S
//   q_i     : sum_j S_ij k_j + sum_j S_ij r_(m+i-j)
//   u, v    : the first and the second term of q_i, summed over the queries
//
// The first block of queries of a problem (AttentionProblem) sets the gradients of keys and values;
// later blocks add to these gradients. The gradients of r, u and v are sums over the streams of a
// group (kGroup), so every call of run() adds to them.
template <typename Real>
class Backward {
 public:
  Backward(const View<Real>& view, const PositionPanels<Real>& positions, const Real* probabilities,
           const Real* sums_gradient, machine::VectorVersion version)
      : view_(view),
        positions_(positions),
        probabilities_(probabilities),
        sums_gradient_(sums_gradient),
        version_(version) {}

  void run(std::int64_t stream, std::int64_t head, const GradientView<Real>& out) {
    Real* keys_values =
        out.keys_values + stream * view_.window * 2 * view_.row() + head * view_.width;
    if (view_.window <= kShortWindow) {
      prefetch<true>(keys_values, 2 * view_.window, view_.row(), view_.width);
    }
    // If the dilation exceeds the segment length, some keys are not seen by any query. This loop
    // sets the gradients of these keys, and of their values, to 0.
    const std::int64_t dilation = view_.dilation(head), memory = view_.window - view_.segment;
    // Residues from window - memory to dilation - memory have no key in the window.
    for (std::int64_t residue = std::max(view_.segment, dilation - memory); residue < dilation;
         ++residue) {
      clear(keys_values, (memory + residue) % dilation, view_.window, dilation);
    }
    for (std::int64_t first = 0; first < std::min(view_.segment, view_.dilation(head)); ++first) {
      const AttentionProblem<Real> problem{view_, stream, head, first};
      find_rows(problem, scratch_);
      scratch_.gradient_rows.clear();
      for (std::int64_t query = 0; query < problem.queries; ++query) {
        scratch_.gradient_rows.push_back(sums_gradient_ + problem.query_at(query));
      }
      const Panels<Real> keys = make_panels(problem, scratch_, 0, version_, keys_);
      const Packing<Real> values{scratch_.key_rows.data(), problem.keys, view_.width,
                                 value_columns_, view_.row()};
      pack_columns_in(version_, &values);
      for (std::int64_t begin = 0; begin < problem.queries; begin += view_.block()) {
        run_block(problem, begin, std::min(view_.block(), problem.queries - begin), keys, out,
                  keys_values + problem.first_key * 2 * view_.row());
      }
    }
  }

 private:
  // `keys_values` is where the gradients of the problem's keys and values begin.
  void run_block(const AttentionProblem<Real>& problem, std::int64_t begin, std::int64_t count,
                 const Panels<Real>& key_panels, const GradientView<Real>& out, Real* keys_values) {
    find_score_gradients(problem, begin, count);
    const Real* const* queries = scratch_.query_rows.data() + begin;
    Panels<Real> sums = Panels<Real>::packed(sums_, count);
    if (problem.has_rows_in_place(problem.keys)) {
      sums = Panels<Real>::in_place(scratch_.gradient_rows[static_cast<std::size_t>(begin)],
                                    problem.step * view_.row());
    } else {
      pack(scratch_.gradient_rows.data() + begin, count, nullptr, sums_);
    }
    pack(queries, count, bias_of(view_.content_bias, problem), content_);

    const Range keys = find_range(problem.seen(begin), 0, count);
    // Later blocks add to the gradients, so the first block clears those of the keys that none of
    // its queries sees.
    if (begin == 0) {
      clear(keys_values, 0, keys.begin * problem.step, problem.step);
      clear(keys_values, keys.end * problem.step, problem.keys * problem.step, problem.step);
    }
    SmallProduct<Real> product{keys.end - keys.begin, view_.width, count};
    product.a = weights_ + keys.begin;
    product.a_row = 1;
    product.a_inner = scratch_.score_stride;
    product.b = sums;
    product.c_row = problem.step * 2 * view_.row();
    product.c = keys_values + keys.begin * product.c_row + view_.row();
    product.add = begin > 0;
    // The queries from j - memory to j - memory + farthest see key j.
    const std::int64_t nearest = keys.begin - problem.memory - begin;
    product.inner_band = {nearest, nearest + problem.farthest + 1, 1, 0, count};
    multiply_in(version_, &product);
    product.a = gradients_ + keys.begin;
    product.b = Panels<Real>::packed(content_, count);
    product.c -= view_.row();
    multiply_in(version_, &product);

    if (view_.positions != nullptr) {
      pack(queries, count, bias_of(view_.position_bias, problem), position_);
      add_position_gradients(problem, begin, count, out.positions);
    }
    find_query_gradients(problem, begin, count, key_panels, out);
  }

  // Clears the gradients of every step-th key and value from `key` up to `end`.
  void clear(Real* keys_values, std::int64_t key, std::int64_t end, std::int64_t step) {
    for (; key < end; key += step) {
      Real* row = keys_values + key * 2 * view_.row();
      std::fill_n(row, view_.width, Real(0));
      std::fill_n(row + view_.row(), view_.width, Real(0));
    }
  }

  void pack(const Real* const* rows, std::int64_t count, const Real* bias, Real* to) {
    const Packing<Real> packing{rows, count, view_.width, to, 0, bias};
    pack_rows_in(version_, &packing);
  }

  // Sets weights_ to the probabilities after dropout, and gradients_ to the gradients with respect
  // to the scores before the scale is applied.
  void find_score_gradients(const AttentionProblem<Real>& problem, std::int64_t begin,
                            std::int64_t count) {
    ScoreRows<Real> rows;
    rows.rows = count;
    rows.seen = problem.seen(begin);
    SmallProduct<Real> product{count, problem.keys, view_.width};
    product.a = sums_gradient_ + problem.query_at(begin);
    product.a_row = problem.step * view_.row();
    product.b = Panels<Real>::packed(value_columns_, view_.width);
    product.c = gradients_;
    product.c_row = scratch_.score_stride;
    product.padded = true;
    product.column_band = rows.seen;
    multiply_in(version_, &product);

    rows.stride = scratch_.score_stride;
    rows.scores = gradients_;
    rows.weights = weights_;
    // The cast is safe: the gradient pass only reads the probabilities.
    rows.probabilities = const_cast<Real*>(probabilities_) + problem.kept_at(begin);
    rows.probability_stride = view_.kept_row() * problem.step;
    rows.scale = view_.scale;
    if (view_.kept != nullptr) {
      rows.factor_stride = find_factors(problem, begin, count, version_, factors_);
      rows.factors = factors_;
    }
    softmax_gradient_rows_in(version_, &rows);
  }

  // Query i reads row t of the position table for key t - shift + i, and the next query reads this
  // row for the next key. So the gradient of row t is a sum along a diagonal of gradients_.
  void add_position_gradients(const AttentionProblem<Real>& problem, std::int64_t begin,
                              std::int64_t count, Real* positions) {
    const std::int64_t shift = problem.shift() - begin;
    const std::int64_t first = std::max(problem.farthest_row(), shift - (count - 1));
    SmallProduct<Real> product{problem.distances - first, view_.width, count};
    product.a = gradients_ + (first - shift);
    product.a_row = 1;
    product.a_inner = scratch_.score_stride + 1;
    product.b = Panels<Real>::packed(position_, count);
    product.c_row = problem.step * view_.width;
    product.c = positions + (view_.window - 1) * view_.width -
                (problem.distances - 1 - first) * product.c_row;
    product.add = true;
    product.inner_band = {shift - first, kFar, -1, 0, count};
    multiply_in(version_, &product);
  }

  void find_query_gradients(const AttentionProblem<Real>& problem, std::int64_t begin,
                            std::int64_t count, const Panels<Real>& keys,
                            const GradientView<Real>& out) {
    const std::int64_t width = view_.width, stride = padded<Real>(width);
    SmallProduct<Real> product{count, width, problem.keys};
    product.a = gradients_;
    product.a_row = scratch_.score_stride;
    product.b = keys;
    product.c = content_gradient_;
    product.c_row = stride;
    product.padded = true;
    product.inner_band = problem.seen(begin);
    multiply_in(version_, &product);
    add_to_sums_in(version_, static_cast<const Real*>(content_gradient_), stride, count, width,
                   out.content_bias);
    if (view_.positions != nullptr) {
      const std::int64_t shift = problem.shift() - begin;
      const std::int64_t first = std::max(problem.farthest_row(), shift - (count - 1));
      product.inner = problem.distances - first;
      product.a = gradients_ + (first - shift);
      product.a_row = scratch_.score_stride + 1;
      product.b = Panels<Real>::packed(positions_.of(problem.head), problem.distances);
      product.b.data += first * kPanel<Real>;
      product.c = position_gradient_;
      product.inner_band = {shift - first, kFar, -1, 0, product.inner};
      multiply_in(version_, &product);
      add_to_sums_in(version_, static_cast<const Real*>(position_gradient_), stride, count, width,
                     out.position_bias);
    }
    for (std::int64_t query = 0; query < count; ++query) {
      join_rows_in(version_, static_cast<const Real*>(content_gradient_) + query * stride,
                   view_.positions == nullptr ? static_cast<const Real*>(nullptr)
                                              : position_gradient_ + query * stride,
                   width, out.queries + problem.query_at(begin + query));
    }
  }

  const View<Real>& view_;
  const PositionPanels<Real>& positions_;
  const Real *probabilities_, *sums_gradient_;
  machine::VectorVersion version_;
  Scratch<Real> scratch_{view_};
  Real* value_columns_ = scratch_.take(scratch_.columns);
  Real* keys_ = scratch_.take(scratch_.keys);
  Real* sums_ = scratch_.take(scratch_.rows);
  Real* content_ = scratch_.take(scratch_.rows);
  Real* position_ = scratch_.take(scratch_.rows);
  Real* content_gradient_ = scratch_.take(scratch_.rows);
  Real* position_gradient_ = scratch_.take(scratch_.rows);
  Real* gradients_ = scratch_.take(scratch_.scores, view_.block() + kMargin);
  Real* weights_ = scratch_.take(scratch_.scores);
  Real* factors_ = scratch_.take(scratch_.scores);
};

template <typename Real>
AttentionGradients backward(const AttentionInput& input, const at::Tensor& probabilities,
                            const at::Tensor& sums_gradient, machine::VectorVersion version) {
  const View<Real> view(input);
  const std::int64_t groups = (view.batch + kGroup - 1) / kGroup;
  const auto options = input.queries.options();
  AttentionGradients result;
  result.queries = at::empty(input.queries.sizes(), options);
  result.keys_values = at::empty(input.keys_values.front().sizes(), options);
  // For every group and head, there are rows for the gradients of positions, content bias and
  // position bias.
  const std::int64_t rows = view.window + 2;
  const at::Tensor partial = at::zeros({groups, view.heads, rows, view.width}, options);
  const PositionPanels<Real> positions =
      pack_positions(view, padded<Real>(view.width) * view.most_keys,
                     [&](const Packing<Real>* packing) { pack_rows_in(version, packing); });
  const Real* probability = probabilities.data_ptr<Real>();
  const Real* gradient = sums_gradient.data_ptr<Real>();
  Real* query_gradients = result.queries.data_ptr<Real>();
  Real* key_gradients = result.keys_values.data_ptr<Real>();
  Real* partials = partial.data_ptr<Real>();
  const auto go_back = [&](std::int64_t begin, std::int64_t end) {
    Backward<Real> heads(view, positions, probability, gradient, version);
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t group = task / view.heads, head = task % view.heads;
      Real* of_positions = partials + task * rows * view.width;
      Real* biases = of_positions + view.window * view.width;
      const GradientView<Real> out{query_gradients, key_gradients, of_positions, biases,
                                   biases + view.width};
      const std::int64_t last = std::min(view.batch, (group + 1) * kGroup);
      for (std::int64_t stream = group * kGroup; stream < last; ++stream) {
        if (stream + 1 < last) prefetch_inputs(view, stream + 1, head);
        heads.run(stream, head, out);
      }
    }
  };
  // The estimate counts 6 matrix products: one each for the gradients of probabilities, values,
  // keys and positions, and two for the gradients of queries.
  machine::for_parts(groups * view.heads, view.microseconds(6), go_back);
  const at::Tensor sum = sum_over_first(partial);  // [H, window + 2, d_head]
  if (view.positions != nullptr) result.positions = sum.narrow(1, 0, view.window).transpose(0, 1);
  if (view.content_bias != nullptr) result.content_bias = sum.select(1, view.window);
  if (view.position_bias != nullptr) result.position_bias = sum.select(1, view.window + 1);
  return result;
}

}  // namespace
}  // namespace attention

AttentionGradients attention_backward(const AttentionInput& input, const at::Tensor& probabilities,
                                      const at::Tensor& sums_gradient,
                                      machine::VectorVersion version) {
  return input.queries.scalar_type() == at::kDouble
             ? attention::backward<double>(input, probabilities, sums_gradient, version)
             : attention::backward<float>(input, probabilities, sums_gradient, version);
}

}  // namespace ql::kernels
