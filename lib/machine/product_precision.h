// Sets the precision of the products of a thread on the CPU, and multiplies matrices by oneDNN.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

#include "machine/precision.h"

namespace ql::machine {

// These compute products by oneDNN.

// Sets result = a b, or result = result + a b with `add`: a [rows, inner] and b [inner, columns]
// are both bfloat16 or both float32, result [rows, columns] is float32. If `bias` [columns],
// float32 and contiguous, is defined, it is added to each row of the product. The rows of the
// result, and the rows or the columns of the operands, must be contiguous. One thread computes it;
// call it in a piece (machine/threads.h). Throws std::logic_error if this processor or this program
// has no such product.
void multiply_by_onednn(at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool add,
                        const at::Tensor& bias = {});

// These set the precision of our own kernels' products in a thread, and keep the weights that are
// rounded to it.

// While an object lives, the products of its thread have this precision. It keeps the weights that
// were rounded for them, so weights must not change before it ends.
class ProductPrecision {
 public:
  explicit ProductPrecision(Precision precision);
  ~ProductPrecision();
  ProductPrecision(const ProductPrecision&) = delete;
  ProductPrecision& operator=(const ProductPrecision&) = delete;

  Precision precision() const { return precision_; }

  // Returns the result that round() had for `weight` (and for the `scales` of its columns, if there
  // are any) at the first call with them. Threads may call it at the same time.
  at::Tensor rounded(const at::Tensor& weight, const at::Tensor& scales,
                     const std::function<at::Tensor()>& round);

 private:
  // A Key holds the address, sizes and strides of a weight, and the address of its scales.
  using Key = std::array<std::int64_t, 6>;
  // Holds the weight, so that no other tensor is allocated at its address.
  struct Entry {
    std::once_flag made;
    at::Tensor weight, scales, factor;
  };

  ProductPrecision* before_;
  Precision precision_;
  std::mutex mutex_;  // of the map, not of its entries
  std::map<Key, Entry> entries_;
};

// Returns the one of this thread; nullptr if there is none, when products are float32.
ProductPrecision* current_product_precision();
Precision product_precision();

// While it lives, this thread uses the precision of another thread, which waits for it.
class SharedProductPrecision {
 public:
  explicit SharedProductPrecision(ProductPrecision* shared);
  ~SharedProductPrecision();
  SharedProductPrecision(const SharedProductPrecision&) = delete;
  SharedProductPrecision& operator=(const SharedProductPrecision&) = delete;

 private:
  ProductPrecision* before_;
};

}  // namespace ql::machine
