// Allocates the memory of tensors on the CPU, keeps it for later tensors, and counts it.
#pragma once

#include <cstdint>

namespace ql::machine {

// Makes the process keep the memory of tensors that are freed in every step, because fresh pages
// from the system would take a tenth of a step's time. Makes LibTorch allocate tensors on the CPU
// by an allocator of our own, which leaves fewer gaps. Call this function before the first tensor
// operation.
void keep_freed_memory();
// Throws the error of a failed allocation if the system lacks this memory: it would grant the
// bytes, and kill the process that uses them. Returns at once for up to 32 MiB. Every tensor is
// held to it; call this function for other memory that grows with a segment or window.
void require_memory(std::int64_t bytes);
// Returns the memory that is free now to the system.
void return_freed_memory();

// While an object of this class lives, the memory of tensors on the CPU that any thread allocates
// is counted, by the bytes that the tensors need. So the same work has the same count, whatever the
// C library does. There is at most one object at a time, and no other thread may allocate tensors
// while it begins, or while set_copies() runs. Tensors may outlive it.
class MemoryCount {
 public:
  // An allocation that would bring the count above `limit` throws std::bad_alloc instead.
  explicit MemoryCount(std::int64_t limit);
  ~MemoryCount();
  MemoryCount(MemoryCount&&) = delete;

  // From now on, every new tensor counts this number of times, until it is freed.
  void set_copies(std::int64_t copies);
  // Adds bytes that no tensor has to the count. Throws as an allocation does.
  void add(std::int64_t bytes);

  std::int64_t bytes() const;  // the count now
  std::int64_t peak() const;   // the largest count so far
  bool exceeded() const;       // an allocation was refused, for the limit or by the system
};

}  // namespace ql::machine
