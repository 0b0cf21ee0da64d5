// Tests the allocator of tensors, and how it counts.
#include "machine/tensor_memory.h"

#include <ATen/ATen.h>

#include <cstdint>
#include <limits>
#include <new>
#include <thread>

#include "unit/torch_doctest.h"

namespace ql::machine {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

TEST_CASE("MemoryCount: counts the bytes of new tensors until they are freed, in every thread") {
  at::Tensor before = at::ones({100});
  at::Tensor outlives;
  {
    MemoryCount count(kNoLimit);
    CHECK(count.bytes() == 0);
    before = at::Tensor();  // was not counted
    at::Tensor a = at::empty({1000}, at::kFloat);
    CHECK(count.bytes() == 4000);
    std::thread([&] { const at::Tensor of_thread = at::empty({500}, at::kFloat); }).join();
    CHECK(count.bytes() == 4000);
    CHECK(count.peak() == 6000);
    const at::Tensor part = a.narrow(0, 0, 10);  // has no memory of its own
    a = at::Tensor();
    CHECK(count.bytes() == 4000);
    count.set_copies(3);
    outlives = at::empty({7}, at::kLong);
    CHECK(count.bytes() == 4000 + 3 * 56);
    count.set_copies(1);
    count.add(-100);
    CHECK(count.bytes() == 3900 + 3 * 56);
    CHECK(count.peak() == 6000);
  }
  MemoryCount next(kNoLimit);
  outlives = at::Tensor();
  CHECK(next.bytes() == 0);
  CHECK(next.peak() == 0);
}

TEST_CASE("MemoryCount: nothing is allocated beyond the limit") {
  MemoryCount count(4000);
  const at::Tensor a = at::empty({500}, at::kFloat);
  CHECK_FALSE(count.exceeded());
  CHECK_THROWS_AS(at::empty({501}, at::kFloat), std::bad_alloc);
  CHECK(count.exceeded());
  CHECK(count.bytes() == 2000);
  CHECK_THROWS_AS(count.add(2001), std::bad_alloc);
  const at::Tensor b = at::empty({500}, at::kFloat);
  CHECK(count.peak() == 4000);
}

TEST_CASE("keep_freed_memory: tensors are aligned, and may be empty or grow") {
  keep_freed_memory();
  for (const std::int64_t bytes : {1, 2, 63, 64, 65, 4095, 1 << 20}) {
    const at::Tensor tensor = at::full({bytes}, 7, at::kByte);
    CHECK(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 64 == 0);
    CHECK(tensor.sum().item<std::int64_t>() == 7 * bytes);
  }
  at::Tensor grows = at::empty({0}, at::kFloat);
  CHECK(grows.data_ptr() == nullptr);
  grows.resize_({3}).fill_(1);
  grows.resize_({1000});
  CHECK(grows.narrow(0, 0, 3).sum().item<float>() == 3);
  CHECK_THROWS_WITH(at::empty({std::int64_t{1} << 50}, at::kByte),
                    "can't allocate memory: you tried to allocate 1125899906842624 bytes");
}

TEST_CASE("require_memory: refuses what no system has, and what a MemoryCount tries") {
  constexpr std::int64_t kTooMuch = std::int64_t{1} << 50;
  const char* const refusal = "can't allocate memory: you tried to allocate 1125899906842624 bytes";
  CHECK_NOTHROW(require_memory(1));
  CHECK_NOTHROW(require_memory(40 << 20));
  CHECK_THROWS_WITH(require_memory(kTooMuch), refusal);
  MemoryCount count(kNoLimit);
  CHECK_THROWS_WITH(at::empty({kTooMuch}, at::kByte), refusal);
  CHECK(count.exceeded());
  CHECK(count.bytes() == 0);
}

}  // namespace ql::machine
