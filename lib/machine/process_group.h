// Several processes that compute together: sums over all of them, the same bits in each. c10d's
// Gloo carries those of tensors on the CPU, NCCL those of tensors on GPUs.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

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

  // Waits for a sum that is under way. It has to be called before anybody looks at the tensors, and
  // before the group ends.
  using Wait = std::function<void()>;
  // Common. Adds up contiguous tensors of one type in place, over all processes: several on the
  // CPU, which travel together, or one on the device of join_device(). A GPU's sum is only
  // enqueued, on the current stream: who enqueues there later finds it done.
  Wait start_sum(std::vector<at::Tensor> tensors);
  void sum(const at::Tensor& tensor) { start_sum({tensor})(); }

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

  // Common. Returns the signal that has asked one of the processes to stop, the first one of
  // kStopSignals when several have come; 0: none. `clock` becomes the first process's, too: both
  // travel together.
  int agree_on_stop(int signal_number, double* clock = nullptr);

  // This process's part of `rows` rows; all parts in the order of ranks are the rows, and differ by
  // one row at most. Throws Error when there are fewer rows than processes.
  RowRange share_of(std::int64_t rows) const;

  // Tells the others that this process gets on. Long work between two common calls needs it.
  void get_on();

  // Tells the others why this process ends; they then end, too.
  void tell_failure(const std::exception& error) noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The group of the processes that a launcher has started, of which this is one; null for a process
// alone. From now on only the first process talks, but for errors.
std::unique_ptr<ProcessGroup> join_processes(std::chrono::seconds patience);

// Runs `work`; what it throws, but a stop that was asked for, is told the others of the group.
void run_in_group(ProcessGroup* group, const std::function<void()>& work);

}  // namespace ql::machine
