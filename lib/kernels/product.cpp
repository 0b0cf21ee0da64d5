// Rounds operands, and divides products into pieces of rows for the BLAS, oneDNN or our own kernel.

#include "kernels/product.h"

#include <ATen/Dispatch.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>

#include "kernels/small_product.h"
#include "kernels/vector.h"
#include "machine/device.h"
#include "machine/onednn.h"
#include "machine/threads.h"

namespace ql::kernels {
namespace {

// Rows of the result that one piece of work computes.
constexpr std::int64_t kRowsOfPiece = 256;
// With vectors of 64 bytes, up to this many rows take less time than a BLAS needs to copy the
// weights.
constexpr std::int64_t kFewRowsOfPiece = 64;

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

// Sets the result by reading the weights in place, if `b` holds them by columns and `a` has few
// rows. Otherwise it does nothing and returns false.
bool multiply_few_rows(at::Tensor& result, const at::Tensor& a, const at::Tensor& b,
                       const at::Tensor& bias) {
  const bool fits = a.size(0) <= kFewRowsOfPiece && a.is_contiguous() && b.t().is_contiguous() &&
                    result.stride(1) == 1 && (!bias.defined() || bias.is_contiguous());
  if (!fits || machine::vector_version() != machine::VectorVersion::kAvx512) return false;
  AT_DISPATCH_FLOATING_TYPES(a.scalar_type(), "multiply_few_rows", [&] {
    RowProducts<scalar_t, scalar_t> few;
    few.rows = a.size(0);
    few.width = a.size(1);
    few.columns = few.end = b.size(1);
    few.pitch = result.stride(0);
    few.states = a.data_ptr<scalar_t>();
    few.weights = b.data_ptr<scalar_t>();
    few.bias = bias.defined() ? bias.data_ptr<scalar_t>() : nullptr;
    few.result = result.data_ptr<scalar_t>();
    multiply_batch_invariant(&few);
  });
  return true;
}

void multiply_rounded(at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool add,
                      const at::Tensor& bias) {
  if (machine::bfloat16_products() == machine::Bfloat16Products::kNative) {
    machine::multiply_by_onednn(result, a, b, add, bias.defined() ? bias.contiguous() : bias);
  } else {
    multiply_floats(result, a.to(at::kFloat), b.to(at::kFloat), add, bias);
  }
}

double microseconds_of(const at::Tensor& a, const at::Tensor& b) {
  return machine::microseconds_of(static_cast<double>(a.numel()) * static_cast<double>(b.size(1)),
                                  static_cast<double>(a.nbytes() + b.nbytes()));
}

void multiply(at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool add,
              const at::Tensor& bias) {
  if (a.scalar_type() != b.scalar_type()) {
    throw std::logic_error("the two matrices of a product have different precisions");
  }
  if (a.scalar_type() != at::kBFloat16) {
    const bool done = !add && machine::in_piece() && multiply_few_rows(result, a, b, bias);
    if (!done) {
      machine::let_libraries_divide(microseconds_of(a, b),
                                    [&] { multiply_floats(result, a, b, add, bias); });
    }
  } else if (machine::in_piece()) {
    multiply_rounded(result, a, b, add, bias);
  } else {
    const auto multiply_piece = [&](std::int64_t first, std::int64_t count) {
      at::Tensor rows = result.narrow(0, first, count);
      multiply_rounded(rows, a.narrow(0, first, count), b, add, bias);
    };
    machine::for_pieces(a.size(0), kRowsOfPiece, multiply_piece, microseconds_of(a, b));
  }
}

// The memory of a parameter, and its rounded copy while products take that.
struct ParameterMemory {
  at::Tensor numbers, rounded;
};

void delete_memory(void* memory) { delete static_cast<ParameterMemory*>(memory); }

// Returns nullptr for other tensors than parameters and their views.
ParameterMemory* memory_of(const at::Tensor& tensor) {
  return tensor.storage().data_ptr().cast_context<ParameterMemory>(&delete_memory);
}

}  // namespace

at::Tensor make_parameter(at::IntArrayRef shape, const at::TensorOptions& options) {
  at::Tensor parameter = at::zeros(shape, options);
  if (parameter.is_cpu()) {
    auto memory = std::make_unique<ParameterMemory>(ParameterMemory{parameter, {}});
    parameter = at::for_blob(parameter.data_ptr(), shape)
                    .context(memory.release(), &delete_memory)
                    .options(options)
                    .make_tensor();
  }
  return parameter.set_requires_grad(true);
}

void set_rounded(const at::Tensor& parameter, bool rounded) {
  ParameterMemory* const memory = memory_of(parameter);
  if (memory == nullptr || parameter.scalar_type() != at::kFloat) return;
  memory->rounded = rounded ? round_matrix(memory->numbers.view({1, -1})) : at::Tensor();
}

at::Tensor weight_factor(const at::Tensor& weight, const at::Tensor& scales) {
  const ParameterMemory* const memory = memory_of(weight);
  const bool rounds = memory != nullptr && memory->rounded.defined();
  if (scales.defined()) return rounds ? round_matrix(weight * scales) : weight * scales;
  if (!rounds) return weight;
  return memory->rounded.as_strided(weight.sizes(), weight.strides(), weight.storage_offset());
}

at::Tensor to_operand(const at::Tensor& matrix, const at::Tensor& factor) {
  return factor.scalar_type() == at::kBFloat16 && matrix.scalar_type() == at::kFloat
             ? round_matrix(matrix)
             : matrix;
}

at::Tensor operand_buffer(const at::Tensor& matrix, const at::Tensor& factor) {
  return matrix.scalar_type() == factor.scalar_type() ? matrix
                                                      : at::empty_like(matrix, factor.options());
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  const at::ScalarType type = a.scalar_type() == at::kBFloat16 ? at::kFloat : a.scalar_type();
  at::Tensor result = at::empty({a.size(0), b.size(1)}, a.options().dtype(type));
  multiply(result, a, b, false, bias);
  return result;
}

void set_product(at::Tensor& result, const at::Tensor& a, const at::Tensor& b,
                 const at::Tensor& bias) {
  multiply(result, a, b, false, bias);
}

void add_product(at::Tensor& result, const at::Tensor& a, const at::Tensor& b) {
  multiply(result, a, b, true, at::Tensor());
}

}  // namespace ql::kernels
