// Sums over the processes of one machine through memory that they share, which takes half the
// processor time that messages through sockets take. Used by process_group.cpp only.
//
// The memory has two slots for each process. A tensor is summed in chunks: every process writes a
// chunk into a slot of its own, adds up its share of it over the slots of all, and takes the other
// shares from those who added them up. So all have the same bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace ql::machine {

class LocalSum {
 public:
  // For `size` processes; the first makes the memory, the others give its where(). The memory has
  // no name that could be left behind. Throws std::system_error when it cannot be had.
  LocalSum(int rank, int size, const std::string& where = "");
  // What is under way is broken off.
  ~LocalSum();
  LocalSum(const LocalSum&) = delete;
  LocalSum& operator=(const LocalSum&) = delete;

  const std::string& where() const { return where_; }

  // Adds up a contiguous float32 tensor on the CPU, in place, over all processes, by another
  // thread: all have to call this in the same order. The future waits for ever when one of them is
  // gone.
  std::future<void> start(const at::Tensor& tensor);

  // The first of the other processes that has ended, if any.
  std::optional<int> find_ended() const;

 private:
  struct Task {
    at::Tensor tensor;
    std::promise<void> done;
  };

  struct Event;

  void make();
  void open();
  void map(int descriptor);
  void release() noexcept;
  Event& event(int rank, int kind) const;
  float* slot(int rank) const;

  void run();
  void sum(float* values, std::int64_t count);
  void sum_chunk(float* values, std::int64_t count);
  void tell(int kind) const;
  void wait_for(int rank, int kind) const;

  int rank_, size_;
  std::string where_;
  int descriptor_ = -1;  // of the first process, so that the others find it
  std::size_t bytes_;
  char* memory_ = nullptr;
  std::uint32_t chunk_ = 0;  // the number of the chunk that is summed, from 1
  std::atomic<bool> ending_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::thread thread_;
};

}  // namespace ql::machine
