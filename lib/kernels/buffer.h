// The buffer of a kernel: zeros that begin where a line of the cache begins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "machine/tensor_memory.h"

namespace ql::kernels {

// Holds zeros that begin at a multiple of 64 bytes, as a row of a panel should, so that a vector is
// in one line of the cache. `front` elements are before the beginning.
template <typename Element>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t size, std::int64_t front = 0) {
    const std::int64_t all = size + front + kLine;
    machine::require_memory(all * std::int64_t{sizeof(Element)});
    elements_ = std::make_unique<Element[]>(static_cast<std::size_t>(all));
    const auto address = reinterpret_cast<std::uintptr_t>(elements_.get() + front);
    begin_ = elements_.get() + front + (64 - address % 64) % 64 / sizeof(Element);
  }
  Element* begin() const { return begin_; }

 private:
  static constexpr std::int64_t kLine = 64 / std::int64_t{sizeof(Element)};
  std::unique_ptr<Element[]> elements_;
  Element* begin_ = nullptr;
};

}  // namespace ql::kernels
