// Rounds matrices to bfloat16, divides matrix products among threads, and lets the BLAS, oneDNN or
// our own kernel compute the parts.

#include "kernels/product.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "kernels/row_products.h"
#include "kernels/vector.h"
#include "machine/device.h"
#include "machine/onednn.h"
#include "machine/threads.h"

namespace ql::kernels {
namespace {

// A matrix product is divided into pieces for the threads. A piece has at most this many rows of
// the result; more rows would not make a BLAS faster.
constexpr std::int64_t kRowsOfPiece = 256;
// If all rows fit into one piece, the columns are divided: a piece has at most this many columns.
constexpr std::int64_t kColumnsOfPiece = 128;
// Our own kernel computes products of up to kFewRows rows. A BLAS would take longer to copy the
// weights into its own order than to multiply them. If the thread is already computing a piece of
// work (machine::in_piece()), our own kernel computes products of up to kFewRowsOfPiece rows, but
// only with vectors of 64 bytes, and only if the weights are contiguous and not rounded.
constexpr std::int64_t kFewRows = 8, kFewRowsOfPiece = 64;
// A task of our own kernel has at most this many columns, whose weights stay in a cache while they
// are multiplied with all rows.
constexpr std::int64_t kColumnsOfTask = 32;

// sum_over_first() adds up at most this many columns at once, so that their sums stay in a cache,
// in blocks of at most this many rows: a sum of blocks has smaller rounding errors than one of
// rows.
constexpr std::int64_t kColumnsOfSum = 256, kRowsOfSum = 64;

thread_local bool batch_invariant = false;

// Adds the sums of the `width` columns of `rows` to `sums`.
template <typename Real>
QL_VECTOR_BODY void sum_rows_in_blocks_body(const Real* rows, std::int64_t stride,
                                            std::int64_t count, std::int64_t width, Real* sums) {
  for (std::int64_t first = 0; first < count; first += kRowsOfSum) {
    Real of_block[kColumnsOfSum] = {};
    add_to_sums_body(rows + first * stride, stride, std::min(kRowsOfSum, count - first), width,
                     &of_block[0]);
    for (std::int64_t n = 0; n < width; ++n) sums[n] += of_block[n];
  }
}
QL_VECTOR_KERNEL(sum_rows_in_blocks)

at::Tensor round_matrix(const at::Tensor& matrix) {
  if (matrix.stride(1) != 1 && matrix.stride(0) == 1) return round_matrix(matrix.t()).t();
  if (!matrix.is_contiguous()) return round_matrix(matrix.contiguous());
  at::Tensor rounded = at::empty(matrix.sizes(), matrix.options().dtype(at::kBFloat16));
  const float* from = matrix.data_ptr<float>();
  Bfloat16Bits* to = bfloat16_bits(rounded);
  const auto bytes = static_cast<double>(matrix.nbytes() + rounded.nbytes());
  machine::for_parts(matrix.numel(), machine::microseconds_of(0, bytes),
                     [&](std::int64_t begin, std::int64_t end) {
                       copy_numbers(from + begin, end - begin, to + begin);
                     });
  return rounded;
}

void multiply_floats(at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool add,
                     const at::Tensor& bias) {
  if (bias.defined() && !add) result.copy_(bias.expand_as(result));
  if (add || bias.defined()) {
    result.addmm_(a, b);
  } else {
    at::mm_out(result, a, b);
  }
}

void multiply_rounded(at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool add,
                      const at::Tensor& bias) {
  if (machine::bfloat16_products() == machine::Bfloat16Products::kNative) {
    machine::multiply_by_onednn(result, a, b, add, bias.defined() ? bias.contiguous() : bias);
    return;
  }
  at::Tensor sums = result.to(at::kFloat);
  multiply_floats(sums, a.to(at::kFloat), b.to(at::kFloat), add, bias);
  if (!sums.is_same(result)) result.copy_(sums);
}

double microseconds_of(const at::Tensor& a, const at::Tensor& b) {
  return machine::microseconds_of(static_cast<double>(a.numel()) * static_cast<double>(b.size(1)),
                                  static_cast<double>(a.nbytes() + b.nbytes()));
}

// Returns true if the transpose of `b` is contiguous. To ask b.t() itself takes some 5,000
// instructions, which slow generation down.
bool is_transposed(const at::Tensor& b) { return b.stride(0) == 1 && b.stride(1) == b.size(0); }

bool takes_own_kernel(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b) {
  if (result.stride(1) != 1 || result.scalar_type() == at::kBFloat16) return false;
  if (batch_invariant) return true;
  if (!machine::in_piece()) return a.size(0) <= kFewRows;
  return a.size(0) <= kFewRowsOfPiece && is_transposed(b) && b.scalar_type() != at::kBFloat16 &&
         machine::vector_version() == machine::VectorVersion::kAvx512;
}

// Computes every element of the result as a separate sum, whose order does not depend on other
// elements.
void multiply_by_own_kernel(at::Tensor& result, const at::Tensor& a, const at::Tensor& b,
                            const at::Tensor& bias) {
  // Rounded states are converted back to float, because each row is read many times.
  const at::Tensor states = to_operand(a, b).to(result.scalar_type()).contiguous();
  const at::Tensor weights = is_transposed(b) ? b : b.t().contiguous();
  const at::Tensor plain_bias = bias.defined() ? bias.contiguous() : bias;
  AT_DISPATCH_FLOATING_TYPES(result.scalar_type(), "multiply_by_own_kernel", [&] {
    with_numbers<scalar_t>(weights, [&](const auto* numbers) {
      RowProducts<scalar_t, std::decay_t<decltype(*numbers)>> product;
      product.rows = states.size(0);
      product.width = states.size(1);
      product.columns = b.size(1);
      product.pitch = result.stride(0);
      product.states = states.data_ptr<scalar_t>();
      product.weights = numbers;
      product.bias = data_of<scalar_t>(plain_bias);
      product.result = result.data_ptr<scalar_t>();
      const std::int64_t tasks = (product.columns + kColumnsOfTask - 1) / kColumnsOfTask;
      machine::for_parts(tasks, microseconds_of(states, b),
                         [&](std::int64_t begin, std::int64_t end) {
                           auto part = product;
                           for (std::int64_t task = begin; task < end; ++task) {
                             part.begin = task * kColumnsOfTask;
                             part.end = std::min(product.columns, part.begin + kColumnsOfTask);
                             multiply_batch_invariant(&part);
                           }
                         });
    });
  });
}

// Computes the product in this thread.
void multiply_undivided(at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool add,
                        const at::Tensor& bias) {
  if (b.scalar_type() == at::kBFloat16) {
    multiply_rounded(result, to_operand(a, b), b, add, bias);
  } else {
    multiply_floats(result, a, b, add, bias);
  }
}

void multiply(at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool add,
              const at::Tensor& bias) {
  const bool rounds = a.scalar_type() == at::kFloat && b.scalar_type() == at::kBFloat16;
  if (a.scalar_type() != b.scalar_type() && !rounds) {
    throw std::logic_error("the two matrices of a product have different precisions");
  }
  if (!add && takes_own_kernel(result, a, b)) {
    multiply_by_own_kernel(result, a, b, bias);
    return;
  }
  if (machine::in_piece()) {
    multiply_undivided(result, a, b, add, bias);
    return;
  }
  const std::int64_t rows = a.size(0), columns = b.size(1);
  const bool divides_rows = rows > kRowsOfPiece;
  const at::Tensor all = divides_rows ? a : to_operand(a, b);
  const std::int64_t of_piece = divides_rows ? columns : kColumnsOfPiece;
  const std::int64_t across = (columns + of_piece - 1) / of_piece;
  const std::int64_t pieces = (rows + kRowsOfPiece - 1) / kRowsOfPiece * across;
  const auto multiply_piece = [&](std::int64_t piece, std::int64_t) {
    const std::int64_t row = piece / across * kRowsOfPiece, column = piece % across * of_piece;
    const std::int64_t height = std::min(kRowsOfPiece, rows - row);
    const std::int64_t width = std::min(of_piece, columns - column);
    at::Tensor part = result.narrow(0, row, height).narrow(1, column, width);
    multiply_undivided(part, all.narrow(0, row, height), b.narrow(1, column, width), add,
                       bias.defined() ? bias.narrow(0, column, width) : bias);
  };
  machine::for_pieces(pieces, 1, multiply_piece, microseconds_of(a, b));
}

// A tensor of weights, by its storage, which all its views share, and its rounded copy. The list
// has an entry for every living RoundedWeights.
struct RoundedCopy {
  c10::StorageImpl* storage;
  at::Tensor rounded;
};
std::vector<RoundedCopy> rounded_copies;

// Returns the rounded copy of the tensor that `weight` is a part of; undefined if there is none.
const at::Tensor& rounded_copy(const at::Tensor& weight) {
  static const at::Tensor kNone;
  for (const RoundedCopy& copy : rounded_copies) {
    if (copy.storage == weight.storage().unsafeGetStorageImpl()) return copy.rounded;
  }
  return kNone;
}

}  // namespace

RoundedWeights::RoundedWeights(const at::Tensor& weights)
    : storage_(weights.storage().unsafeGetStorageImpl()) {
  rounded_copies.push_back({storage_, round_matrix(weights.view({1, -1}))});
}

RoundedWeights::~RoundedWeights() {
  const auto is_own = [this](const RoundedCopy& copy) { return copy.storage == storage_; };
  rounded_copies.erase(std::find_if(rounded_copies.begin(), rounded_copies.end(), is_own));
}

at::Tensor weight_factor(const at::Tensor& weight, const at::Tensor& scales) {
  const at::Tensor& rounded = rounded_copy(weight);
  if (scales.defined()) return rounded.defined() ? round_matrix(weight * scales) : weight * scales;
  if (!rounded.defined()) return weight;
  return rounded.as_strided(weight.sizes(), weight.strides(), weight.storage_offset());
}

at::Tensor to_operand(const at::Tensor& matrix, const at::Tensor& factor) {
  return factor.scalar_type() == at::kBFloat16 && matrix.scalar_type() == at::kFloat
             ? round_matrix(matrix)
             : matrix;
}

BatchInvariant::BatchInvariant() : before_(batch_invariant) { batch_invariant = true; }
BatchInvariant::~BatchInvariant() { batch_invariant = before_; }
bool BatchInvariant::live() { return batch_invariant; }

at::Tensor product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  const at::ScalarType type = a.scalar_type() == at::kBFloat16 ? at::kFloat : a.scalar_type();
  at::Tensor result = at::empty({a.size(0), b.size(1)}, a.options().dtype(type));
  multiply(result, a, b, false, bias);
  return result;
}

at::Tensor rounded_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  if (b.scalar_type() != at::kBFloat16) return product(a, b, bias);
  if (batch_invariant) return round_matrix(product(a, b, bias));
  at::Tensor result = at::empty({a.size(0), b.size(1)}, b.options());
  multiply(result, a, b, false, bias);
  return result;
}

void set_product(at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool add) {
  multiply(result, a, b, add, at::Tensor());
}

at::Tensor sum_over_first(const at::Tensor& tensor) {
  const at::Tensor rows = tensor.contiguous();
  at::Tensor sum = at::zeros(tensor.sizes().slice(1), tensor.options());
  const std::int64_t count = rows.size(0), columns = sum.numel();
  AT_DISPATCH_FLOATING_TYPES(rows.scalar_type(), "sum_over_first", [&] {
    const auto* from = rows.data_ptr<scalar_t>();
    auto* to = sum.data_ptr<scalar_t>();
    machine::for_parts(
        (columns + kColumnsOfSum - 1) / kColumnsOfSum,
        machine::microseconds_of(0, static_cast<double>(rows.nbytes())),
        [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t column = begin * kColumnsOfSum;
               column < std::min(columns, end * kColumnsOfSum); column += kColumnsOfSum) {
            sum_rows_in_blocks(from + column, columns, count,
                               std::min(kColumnsOfSum, columns - column), to + column);
          }
        });
  });
  return sum;
}

}  // namespace ql::kernels
