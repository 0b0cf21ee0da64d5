// Allocates the memory of tensors on the CPU, and counts it.

#include "machine/tensor_memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/alignment.h>
#include <fmt/format.h>
#include <malloc.h>
#include <torch/version.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <stdexcept>

#include "base/resources.h"

namespace ql::machine {

namespace {

// Holds the count of the only MemoryCount.
struct Count {
  std::int64_t objects = 0;  // MemoryCount objects so far
  std::int64_t limit = 0, copies = 1;
  std::atomic<std::int64_t> number{0};  // of the present object; 0: there is none
  std::atomic<std::int64_t> bytes{0}, peak{0};
  std::atomic<bool> exceeded{false};

  void add(std::int64_t more) {
    const std::int64_t now = bytes += more;
    if (more > 0 && now > limit) {
      bytes -= more;
      exceeded = true;
      throw std::bad_alloc();
    }
    for (std::int64_t before = peak; before < now && !peak.compare_exchange_weak(before, now);) {
    }
  }
} count;

// The C library takes larger blocks from the system, unless its heap has a free one, and returns
// them when they are freed. It allows no larger threshold.
constexpr std::int64_t kKeptBytes = 32 << 20;

[[noreturn]] void refuse(std::int64_t bytes) {
  count.exceeded = true;
  throw std::runtime_error(
      fmt::format("can't allocate memory: you tried to allocate {} bytes", bytes));
}

// Precedes the memory of a tensor.
struct Header {
  void* block;          // the memory of the C library
  std::int64_t number;  // Count::number at the allocation
  std::int64_t bytes;   // in the count
};

void release(void* memory) {
  if (memory == nullptr) return;
  const Header header = static_cast<Header*>(memory)[-1];
  std::free(header.block);
  if (header.number != 0 && header.number == count.number) count.add(-header.bytes);
}

c10::DataPtr allocate_tensor(std::size_t bytes) {
  const auto pointer = [](void* memory) {
    return c10::DataPtr(memory, memory, &release, c10::DeviceType::CPU);
  };
  if (bytes == 0) return pointer(nullptr);
  require_memory(static_cast<std::int64_t>(bytes));
  Header header{nullptr, count.number, static_cast<std::int64_t>(bytes) * count.copies};
  if (header.number != 0) count.add(header.bytes);
  header.block = std::malloc(sizeof(Header) + c10::gAlignment + bytes);
  if (header.block == nullptr) {
    if (header.number != 0) count.add(-header.bytes);
    refuse(static_cast<std::int64_t>(bytes));
  }
  auto* const first = static_cast<char*>(header.block) + sizeof(Header);
  const std::size_t beyond = reinterpret_cast<std::uintptr_t>(first) % c10::gAlignment;
  void* const memory = first + (c10::gAlignment - beyond);
  static_cast<Header*>(memory)[-1] = header;
  return pointer(memory);
}

// LibTorch's own allocator asks the C library for aligned memory. glibc 2.36 then needs a free
// block that is larger than the tensor, so that a tensor never takes the place of a freed one of
// the same size. The gaps made trainings a tenth to a quarter larger.
class TensorAllocator : public c10::Allocator {
 public:
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
  c10::DataPtr allocate(std::size_t bytes) override { return allocate_tensor(bytes); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
#else
  c10::DataPtr allocate(std::size_t bytes) const override { return allocate_tensor(bytes); }
#endif
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
};

void use_tensor_allocator() {
  // Tensors remember their allocator, so it is never destroyed.
  static auto* const allocator = new TensorAllocator;
  c10::SetCPUAllocator(allocator);
}

}  // namespace

void require_memory(std::int64_t bytes) {
  // Smaller blocks are not looked at; some room is left for them.
  constexpr std::int64_t kRoom = 2 * kKeptBytes;
  if (bytes <= kKeptBytes || system_has(bytes + kRoom)) return;
  return_freed_memory();
  if (!system_has(bytes + kRoom)) refuse(bytes);
}

void keep_freed_memory() {
  use_tensor_allocator();
#if defined(__GLIBC__)
  ::mallopt(M_MMAP_THRESHOLD, kKeptBytes);
  ::mallopt(M_TRIM_THRESHOLD, 16 * kKeptBytes);
  // Without this limit each thread that computes a piece would get its own arena, and such arenas
  // continually return pages to the system.
  ::mallopt(M_ARENA_MAX, 1);
#endif
}

void return_freed_memory() {
#if defined(__GLIBC__)
  ::malloc_trim(0);
#endif
}

MemoryCount::MemoryCount(std::int64_t limit) {
  use_tensor_allocator();
  count.limit = limit;
  count.copies = 1;
  count.bytes = 0;
  count.peak = 0;
  count.exceeded = false;
  count.number = ++count.objects;
}

MemoryCount::~MemoryCount() { count.number = 0; }

void MemoryCount::set_copies(std::int64_t copies) { count.copies = copies; }

void MemoryCount::add(std::int64_t bytes) { count.add(bytes); }

std::int64_t MemoryCount::bytes() const { return count.bytes; }

std::int64_t MemoryCount::peak() const { return count.peak; }

bool MemoryCount::exceeded() const { return count.exceeded; }

}  // namespace ql::machine
