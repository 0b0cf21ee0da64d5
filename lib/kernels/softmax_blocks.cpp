// Computes the exponentials, losses and gradients of the softmax in blocks of rows and panels of
// columns.

#include "kernels/softmax_blocks.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/product.h"
#include "kernels/softmax.h"
#include "kernels/vector.h"
#include "machine/threads.h"

namespace ql::kernels {
namespace {

constexpr std::int64_t kPanelElements = std::int64_t{1} << 21;

// Returns the maximum of row[i] + bias[i].
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
  for (; i < size; ++i) lanes[0] = std::max(lanes[0], row[i] + bias[i]);
  return *std::max_element(lanes, lanes + kLanes);
}
QL_VECTOR_KERNEL(row_maximum)

// Sets to[i] = e^(row[i] + bias[i] - maximum), which may be rounded, and returns the sum of the
// values before rounding. Sums of short chunks are added in double, so that the error does not grow
// with the vocabulary.
template <typename Real, typename Number>
QL_VECTOR_BODY double exponentiate_body(const Real* row, const Real* bias, std::int64_t size,
                                        Real maximum, Number* to) {
  constexpr std::int64_t kChunk = 64 * kLanes;
  double sum = 0;
  for (std::int64_t begin = 0; begin < size; begin += kChunk) {
    const std::int64_t end = std::min(begin + kChunk, size);
    Real lanes[kLanes] = {};
    std::int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        const Real value = exponential(row[i + lane] + bias[i + lane] - maximum);
        store_number(value, to[i + lane]);
        lanes[lane] += value;
      }
    }
    for (; i < end; ++i) {
      const Real value = exponential(row[i] + bias[i] - maximum);
      store_number(value, to[i]);
      sum += value;
    }
    for (std::int64_t lane = 0; lane < kLanes; ++lane) sum += lanes[lane];
  }
  return sum;
}
QL_VECTOR_KERNEL(exponentiate)

// Sets to[i] = to[i] + factor * from[i].
template <typename Real, typename Number>
QL_VECTOR_BODY void add_scaled_body(Real* to, const Number* from, std::int64_t size, Real factor) {
  for (std::int64_t i = 0; i < size; ++i) to[i] += factor * load_number(from[i]);
}
QL_VECTOR_KERNEL(add_scaled)

// Sets to[i] = scale * to[i] - factor * from[i].
template <typename Real>
QL_VECTOR_BODY void scale_and_subtract_body(Real* to, Real scale, const Real* from,
                                            std::int64_t size, Real factor) {
  for (std::int64_t i = 0; i < size; ++i) to[i] = scale * to[i] - factor * from[i];
}
QL_VECTOR_KERNEL(scale_and_subtract)

// Describes `size` consecutive columns of one set, beginning with the set's column `first`.
// `offset` columns of the softmax come before these columns.
struct Panel {
  const SoftmaxColumns* set;
  at::Tensor factor;  // weight_factor(set->weight), which matrix products read
  std::int64_t first, size, offset;

  at::Tensor of(const at::Tensor& tensor) const { return tensor.narrow(0, first, size); }
};

std::vector<Panel> make_panels(const std::vector<SoftmaxColumns>& columns) {
  std::vector<Panel> panels;
  std::int64_t offset = 0;
  for (const SoftmaxColumns& set : columns) {
    const std::int64_t size = set.weight.size(0);
    const at::Tensor factor = weight_factor(set.weight);
    for (std::int64_t first = 0; first < size; first += kPanelColumns) {
      panels.push_back(
          {&set, factor, first, std::min(kPanelColumns, size - first), offset + first});
    }
    offset += size;
  }
  return panels;
}

// Works on one block of rows at a time. For a row with the state x, the factor f and the target t,
// with the weight W_j and the bias b_j of column j, and with the maximum m of the row's z_j:
//
//   z_j = x . W_j + b_j     e_j = e^(z_j - m)     s = sum_j e_j     loss = log s + m - z_t
//
// The gradients of f * loss are, with [j = t] = 1 if j = t, else 0,
//
//   x   : (f / s) sum_j e_j W_j - f W_t
//   W_j : sum over the rows of (e_j (f / s) - f [j = t]) x
//   b_j : sum over the rows of e_j (f / s) - f [j = t]
//
// f / s never scales the exponentials, only the narrower matrices that are multiplied with them.
// Columns are read in panels (Panel), and m is at first the maximum over the panels read so far.
// Results that were computed with a smaller m are scaled by e^(smaller m - m) when they are used.
// Threads first divide the rows of a block among themselves, and then, for gradients, the columns.
// So they wait for each other at most twice per block.
template <typename Real>
class SoftmaxBlock {
 public:
  SoftmaxBlock(const SoftmaxRows& rows, const std::vector<SoftmaxColumns>& columns)
      : rows_(rows), columns_(columns) {
    const std::int64_t count = rows.states.size(0);
    const std::int64_t most =
        std::max(kSmallestBlock, (with_gradients_ ? kBlockElements : kPanelElements) / pitch_);
    const std::int64_t blocks = std::max<std::int64_t>(1, (count + most - 1) / most);
    size_ = (count + blocks - 1) / blocks;
    exponentials_ = at::empty({size_ * pitch_}, with_gradients_ ? panels_.front().factor.options()
                                                                : rows.states.options());
    sums_.resize(static_cast<std::size_t>(size_));
    maxima_.resize(static_cast<std::size_t>(size_) * panels_.size());
  }

  at::Tensor run() {
    const std::int64_t rows = rows_.states.size(0);
    at::Tensor losses = at::empty({rows}, rows_.states.options());
    if (rows > 0 && rows <= kFewSoftmaxRows && !with_gradients_ && !machine::in_piece()) {
      count_ = rows;
      read_panels(losses.data_ptr<Real>());
      return losses;
    }
    for (first_ = 0; first_ < rows; first_ += size_) {
      count_ = std::min(size_, rows - first_);
      machine::for_parts(count_, microseconds(), [&](std::int64_t begin, std::int64_t end) {
        read_rows(begin, end, losses.data_ptr<Real>() + first_);
      });
      if (with_gradients_) {
        machine::for_parts(all_columns_, microseconds(), [&](std::int64_t begin, std::int64_t end) {
          add_column_gradients(begin, end);
        });
        subtract_targets();
      }
    }
    return losses;
  }

 private:
  // Estimates the time that one thread takes for the block's matrix product of states and weights.
  double microseconds() const {
    const double weights = static_cast<double>(all_columns_) * static_cast<double>(width_);
    return machine::microseconds_of(static_cast<double>(count_) * weights, sizeof(Real) * weights);
  }
  template <typename T>
  static T* data(const at::Tensor& tensor) {
    return tensor.data_ptr<T>();
  }
  // The next four functions point to the data of the block; rows are counted from the block's first
  // row.
  const std::int64_t* targets() const { return data<std::int64_t>(rows_.targets) + first_; }
  const Real* factors() const { return data<Real>(rows_.factors) + first_; }
  const Real* states(std::int64_t row) const {
    return data<Real>(rows_.states) + (first_ + row) * width_;
  }
  Real* state_gradient(std::int64_t row) const {
    return data<Real>(rows_.state_gradient) + (first_ + row) * width_;
  }
  // Returns the maximum of each row's logits: in read_rows() over all panels up to `panel`, in
  // read_panels() over `panel` alone.
  Real* maxima(std::size_t panel) {
    return maxima_.data() + panel * static_cast<std::size_t>(size_);
  }
  // Returns rows [begin, end) of a panel's exponentials. If they have the dtype of the logits, the
  // same memory holds the panel's logits before.
  at::Tensor values(const Panel& panel, std::int64_t begin, std::int64_t end) const {
    if (!with_gradients_) {
      return exponentials_.view({size_, pitch_})
          .narrow(0, begin, end - begin)
          .narrow(1, 0, panel.size);
    }
    return exponentials_.narrow(0, count_ * panel.offset, count_ * panel.size)
        .view({count_, panel.size})
        .narrow(0, begin, end - begin);
  }
  // Returns the set that contains a row's target, and the row of the target's weight in that set.
  std::pair<const SoftmaxColumns*, std::int64_t> target_of(std::int64_t row) const {
    std::int64_t target = targets()[row];
    const SoftmaxColumns* set = columns_.data();
    for (; target >= set->weight.size(0); ++set) target -= set->weight.size(0);
    return {set, target};
  }

  void read_rows(std::int64_t begin, std::int64_t end, Real* losses) {
    const at::Tensor states =
        to_operand(rows_.states.narrow(0, first_ + begin, end - begin), panels_.front().factor);
    const bool wanted = rows_.state_gradient.defined();
    at::Tensor gradient =
        wanted ? rows_.state_gradient.narrow(0, first_ + begin, end - begin) : at::Tensor();
    for (std::size_t index = 0; index < panels_.size(); ++index) {
      const Panel& panel = panels_[index];
      const at::Tensor weight = panel.of(panel.factor);
      const at::Tensor exponentials = values(panel, begin, end);
      at::Tensor logits = exponentials.scalar_type() == rows_.states.scalar_type()
                              ? exponentials
                              : at::empty(exponentials.sizes(), rows_.states.options());
      set_product(logits, states, weight.t());
      const Real* bias = data<Real>(panel.set->bias) + panel.first;
      with_numbers<Real>(exponentials, [&](auto* numbers) {
        for (std::int64_t row = begin; row < end; ++row) {
          exponentiate_row(index, row, data<Real>(logits) + (row - begin) * logits.stride(0), bias,
                           losses[row], numbers + (row - begin) * exponentials.stride(0));
        }
      });
      // The first panel sets the gradient, and the others add to it.
      if (wanted) set_product(gradient, exponentials, weight, index > 0);
    }
    for (std::int64_t row = begin; row < end; ++row) {
      const double sum = sums_[static_cast<std::size_t>(row)];
      losses[row] = static_cast<Real>(
          std::log(sum) + (static_cast<double>(maxima(panels_.size() - 1)[row]) - losses[row]));
      if (wanted) {
        const auto [set, target] = target_of(row);
        scale_and_subtract(state_gradient(row), static_cast<Real>(factors()[row] / sum),
                           data<Real>(set->weight) + target * width_, width_, factors()[row]);
      }
    }
  }

  // Computes the losses of all rows without gradients. Threads divide the panels (groups of
  // columns) among themselves, and find the maximum and the sum of exponentials of every row in
  // every panel. The results are then combined in the order of the panels.
  void read_panels(Real* losses) {
    std::vector<double> sums(maxima_.size());
    const at::Tensor states = to_operand(rows_.states, panels_.front().factor);
    machine::for_pieces(
        static_cast<std::int64_t>(panels_.size()), 1,
        [&](std::int64_t piece, std::int64_t) {
          const auto index = static_cast<std::size_t>(piece);
          const Panel& panel = panels_[index];
          at::Tensor logits = at::empty({count_, panel.size}, rows_.states.options());
          set_product(logits, states, panel.of(panel.factor).t());
          const Real* bias = data<Real>(panel.set->bias) + panel.first;
          for (std::int64_t row = 0; row < count_; ++row) {
            Real* numbers = data<Real>(logits) + row * panel.size;
            find_target(panel, row, numbers, bias, losses[row]);
            const Real maximum = row_maximum<const Real*>(numbers, bias, panel.size);
            maxima(index)[row] = maximum;
            sums[index * static_cast<std::size_t>(size_) + static_cast<std::size_t>(row)] =
                exponentiate<const Real*>(numbers, bias, panel.size, maximum, numbers);
          }
        },
        microseconds());
    for (std::int64_t row = 0; row < count_; ++row) {
      Real largest = maxima(0)[row];
      for (std::size_t i = 1; i < panels_.size(); ++i) largest = std::max(largest, maxima(i)[row]);
      double sum = 0;
      for (std::size_t i = 0; i < panels_.size(); ++i) {
        sum += sums[i * static_cast<std::size_t>(size_) + static_cast<std::size_t>(row)] *
               std::exp(static_cast<double>(maxima(i)[row]) - largest);
      }
      losses[row] = static_cast<Real>(std::log(sum) + (static_cast<double>(largest) - losses[row]));
    }
  }

  // Sets `target_logit` to z_t if the row's target is in the panel.
  void find_target(const Panel& panel, std::int64_t row, const Real* logits, const Real* bias,
                   Real& target_logit) const {
    const std::int64_t target = targets()[row] - panel.offset;
    if (target >= 0 && target < panel.size) target_logit = logits[target] + bias[target];
  }

  // Calls find_target(), sets the exponentials of a row in this panel, and adds them to the row's
  // sum. If the maximum grows, first scales the sum and the state gradient.
  template <typename Number>
  void exponentiate_row(std::size_t index, std::int64_t row, const Real* logits, const Real* bias,
                        Real& target_logit, Number* exponentials) {
    const Panel& panel = panels_[index];
    find_target(panel, row, logits, bias, target_logit);
    Real maximum = row_maximum(logits, bias, panel.size);
    double& sum = sums_[static_cast<std::size_t>(row)];
    if (index == 0) {
      sum = 0;
    } else {
      const Real smaller = maxima(index - 1)[row];
      maximum = std::max(maximum, smaller);
      const double shrink = std::exp(static_cast<double>(smaller) - maximum);
      sum *= shrink;
      if (shrink != 1 && rows_.state_gradient.defined()) {
        Real* gradient = state_gradient(row);
        scale_numbers(static_cast<const Real*>(gradient), width_, static_cast<Real>(shrink),
                      gradient);
      }
    }
    maxima(index)[row] = maximum;
    sum += exponentiate(logits, bias, panel.size, maximum, exponentials);
  }

  // For a panel of columns, sets in each row scales = f / sum * e^(own - last) and scaled_states =
  // scales * state, with the row's element f of factors(). The panel's exponentials were computed
  // with the maximum own; the sum refers to the final maximum, last. If `again` is true, both
  // tensors hold the values of the previous panel. A row with an unchanged maximum keeps its
  // values.
  void scale_states(std::size_t index, bool again, const at::Tensor& scaled_states,
                    const at::Tensor& scales) {
    const Real* own = maxima(index);
    const Real* last = maxima(panels_.size() - 1);
    for (std::int64_t row = 0; row < count_; ++row) {
      if (again && own[row] == maxima(index - 1)[row]) continue;
      const double ratio = std::exp(static_cast<double>(own[row]) - last[row]);
      const double factor = factors()[row] / sums_[static_cast<std::size_t>(row)] * ratio;
      data<Real>(scales)[row] = static_cast<Real>(factor);
      scale_numbers(states(row), width_, static_cast<Real>(factor),
                    data<Real>(scaled_states) + row * width_);
    }
  }

  void add_column_gradients(std::int64_t begin, std::int64_t end) {
    const at::Tensor scaled_states = at::empty({count_, width_}, rows_.states.options());
    const at::Tensor scales = at::empty({count_}, rows_.states.options());
    bool again = false;
    for (std::size_t index = 0; index < panels_.size(); ++index) {
      const Panel& panel = panels_[index];
      const std::int64_t from = std::max(begin - panel.offset, std::int64_t{0});
      const std::int64_t size = std::min(end - panel.offset, panel.size) - from;
      if (size <= 0) continue;
      scale_states(index, again, scaled_states, scales);
      again = true;
      const at::Tensor by_column = values(panel, 0, count_).narrow(1, from, size).t();
      if (panel.set->bias_gradient.defined()) {
        add_bias_gradient(panel.set->bias_gradient.narrow(0, panel.first + from, size), by_column,
                          scales);
      }
      if (panel.set->weight_gradient.defined()) {
        at::Tensor gradient = panel.set->weight_gradient.narrow(0, panel.first + from, size);
        const at::Tensor of_states = to_operand(scaled_states, by_column);
        set_product(gradient, by_column, of_states, first_ > 0);
      }
    }
  }

  void add_bias_gradient(const at::Tensor& gradient, const at::Tensor& by_column,
                         const at::Tensor& scales) {
    if (first_ == 0) gradient.zero_();
    with_numbers<Real>(by_column, [&](const auto* numbers) {
      for (std::int64_t row = 0; row < count_; ++row) {
        add_scaled(data<Real>(gradient), numbers + row * by_column.stride(1), gradient.size(0),
                   data<Real>(scales)[row]);
      }
    });
  }

  void subtract_targets() {
    for (std::int64_t row = 0; row < count_; ++row) {
      const auto [set, target] = target_of(row);
      if (set->bias_gradient.defined()) data<Real>(set->bias_gradient)[target] -= factors()[row];
      if (set->weight_gradient.defined()) {
        scale_and_subtract(data<Real>(set->weight_gradient) + target * width_, Real(1), states(row),
                           width_, factors()[row]);
      }
    }
  }

  const SoftmaxRows& rows_;
  const std::vector<SoftmaxColumns>& columns_;
  const std::vector<Panel> panels_ = make_panels(columns_);
  const bool with_gradients_ = rows_.factors.defined();
  const std::int64_t width_ = rows_.states.size(1);
  const std::int64_t all_columns_ = panels_.back().offset + panels_.back().size;
  // exponentials_ has this many elements per row. With gradients it has one for each column.
  // Without gradients it has room for one panel only, because a panel is not needed after it was
  // read.
  const std::int64_t pitch_ =
      with_gradients_ ? all_columns_ : std::min(all_columns_, kPanelColumns);
  std::int64_t size_ = 0;               // most rows of a block
  std::int64_t first_ = 0, count_ = 0;  // first row and number of rows of the current block
  at::Tensor exponentials_;             // of the current block, laid out by values()
  std::vector<double> sums_;
  std::vector<Real> maxima_;
};

}  // namespace

at::Tensor softmax_blocks(const SoftmaxRows& rows, const std::vector<SoftmaxColumns>& columns) {
  const at::NoGradGuard no_grad;
  return rows.states.scalar_type() == at::kDouble ? SoftmaxBlock<double>(rows, columns).run()
                                                  : SoftmaxBlock<float>(rows, columns).run();
}

}  // namespace ql::kernels
