// Tests the buffers of kernels.
#include "kernels/buffer.h"

#include <cstdint>

#include "unit/torch_doctest.h"

namespace ql::kernels {

TEST_CASE("Buffer: zeros at a multiple of 64 bytes, with elements before") {
  for (const std::int64_t front : {0, 1, 16, 37}) {
    const Buffer<float> buffer(100, front);
    CHECK(reinterpret_cast<std::uintptr_t>(buffer.begin()) % 64 == 0);
    for (std::int64_t i = -front; i < 100; ++i) CHECK(buffer.begin()[i] == 0);
  }
  CHECK(Buffer<double>().begin() == nullptr);
}

TEST_CASE("Buffer: more than the system has is refused as a tensor is") {
  CHECK_THROWS_WITH(Buffer<float>((std::int64_t{1} << 48) - 16),
                    "can't allocate memory: you tried to allocate 1125899906842624 bytes");
}

}  // namespace ql::kernels
