// The precision of our own kernels' products in a thread, and the weights that are rounded to it.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

#include "machine/precision.h"

namespace ql::machine {

// While it lives, products of this thread have this precision. It keeps the weights that were
// rounded for them, so weights must not change before it ends.
class ProductPrecision {
 public:
  explicit ProductPrecision(Precision precision);
  ~ProductPrecision();
  ProductPrecision(const ProductPrecision&) = delete;
  ProductPrecision& operator=(const ProductPrecision&) = delete;

  Precision precision() const { return precision_; }

  // Returns what round() made of `weight`, and of the `scales` of its columns where there are any,
  // when they were first asked for. Threads may ask at the same time.
  at::Tensor rounded(const at::Tensor& weight, const at::Tensor& scales,
                     const std::function<at::Tensor()>& round);

 private:
  // Address, sizes and strides of a weight, and the address of its scales.
  using Key = std::array<std::int64_t, 6>;
  // It holds the weight, so that no other one comes to lie at its address.
  struct Entry {
    std::once_flag made;
    at::Tensor weight, scales, factor;
  };

  ProductPrecision* before_;
  Precision precision_;
  std::mutex mutex_;  // of the map, not of its entries
  std::map<Key, Entry> entries_;
};

// Returns that of this thread; where there is none, products are float32.
ProductPrecision* current_product_precision();
Precision product_precision();

// While it lives, this thread has the precision of another one, which waits for it.
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
