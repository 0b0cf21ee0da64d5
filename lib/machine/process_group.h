// Several processes that compute together: sums over all of them, the same bits in each. c10d's
// Gloo carries them; those of float32 go through memory when all processes share a machine, and
// those of tensors on GPUs through NCCL.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "base/launched_process.h"
#include "machine/row_range.h"

namespace ql::machine {

// Every function that is said to be common has to be called by all processes, in the same order. It
// throws Error when another process has failed, is silent or does not get on: which, and why.
class ProcessGroup {
 public:
  // Waits for all that were launched together. `patience`: how long one may let the others wait.
  // Throws Error when they do not come.
  ProcessGroup(const LaunchedProcess& process, std::chrono::seconds patience);
  // During an exception the first process stays some seconds, for the others to hear why.
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const;
  int size() const;
  int local_rank() const;  // among the processes on this machine,
  int local_size() const;  // which are so many
  bool is_first() const { return rank() == 0; }

  // A sum that is under way; wait() before the tensor is looked at, and before the group ends.
  class Sum {
   public:
    void wait();

   private:
    friend class ProcessGroup;
    struct State;
    std::shared_ptr<State> state_;
  };
  // Common. Adds up a contiguous tensor on the CPU, or on the device of join_device(), in place,
  // over all processes. A GPU's sum is only enqueued, on the current stream: who enqueues there
  // later finds it done.
  Sum start_sum(const at::Tensor& tensor);
  void sum(const at::Tensor& tensor) { start_sum(tensor).wait(); }

  // Common. From now on sums of tensors on `device` are possible; those on the CPU always are.
  // Throws UsageError when LibTorch has no NCCL, Error when it does not connect the GPUs.
  void join_device(const c10::Device& device);
  // Until the device has done its sums. To be called before the host waits for the device in any
  // other way: only so is it known whose fault it is when the device does not get there.
  void await_device();

  // Common. The first process's text.
  std::string from_first(const std::string& text);
  std::int64_t from_first(std::int64_t value);
  // Common. Throws Error unless all processes give the same text; `what` says what it is of.
  void require_same(const std::string& text, const std::string& what);

  // This process's part of `rows` rows; all parts in the order of ranks are the rows, and differ by
  // one row at most. Throws Error when there are fewer rows than processes.
  RowRange share_of(std::int64_t rows) const;

  // For long work between two common calls: tells the others that this process gets on.
  void get_on();

  // Tells the others why this process ends; they then end, too.
  void tell_failure(const std::exception& error) noexcept;

 private:
  struct State;
  void share_memory();

  std::unique_ptr<State> state_;
};

// The group of the processes that a launcher has started, of which this is one; null for a process
// alone. From now on only the first process talks, but for errors.
std::unique_ptr<ProcessGroup> join_processes(std::chrono::seconds patience);

// Runs `work`; what it throws, but a stop that was asked for, is told the others of the group.
void run_in_group(ProcessGroup* group, const std::function<void()>& work);

}  // namespace ql::machine
