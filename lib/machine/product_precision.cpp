#include "machine/product_precision.h"

namespace ql::machine {
namespace {

thread_local ProductPrecision* current = nullptr;

std::int64_t address_of(const at::Tensor& tensor) {
  return tensor.defined()
             ? static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(tensor.data_ptr()))
             : 0;
}

}  // namespace

ProductPrecision::ProductPrecision(Precision precision) : before_(current), precision_(precision) {
  current = this;
}
ProductPrecision::~ProductPrecision() { current = before_; }

at::Tensor ProductPrecision::rounded(const at::Tensor& weight, const at::Tensor& scales,
                                     const std::function<at::Tensor()>& round) {
  const Key key = {address_of(weight), weight.size(0),   weight.size(1),
                   weight.stride(0),   weight.stride(1), address_of(scales)};
  Entry* entry = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    entry = &entries_[key];
  }
  // Others who want the same weight wait until it is there.
  std::call_once(entry->made, [&] {
    entry->weight = weight;
    entry->scales = scales;
    entry->factor = round();
  });
  return entry->factor;
}

ProductPrecision* current_product_precision() { return current; }

Precision product_precision() {
  return current == nullptr ? Precision::kFloat32 : current->precision();
}

SharedProductPrecision::SharedProductPrecision(ProductPrecision* shared) : before_(current) {
  current = shared;
}
SharedProductPrecision::~SharedProductPrecision() { current = before_; }

}  // namespace ql::machine
