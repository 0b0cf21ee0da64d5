// Lets several processes compute together: a sum over all of them has the same bits in each. c10d's
// Gloo computes the sums of tensors on the CPU, and NCCL those of tensors on GPUs.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/launched_process.h"
#include "machine/threads.h"

namespace ql::machine {

// The name and the value of something that all processes of a job have to have in common.
using Fact = std::pair<std::string, std::string>;

// All processes have to call every function that is marked as collective, in the same order. It
// throws Error when another process has failed or lets the others wait too long. The error names
// the process and the reason.
// When a signal has asked this process to stop and the others do not come soon, it throws
// Interrupted.
class ProcessGroup {
 public:
  // Waits for all processes that were launched together. One may let the others wait for
  // `patience`. Throws Error when they do not come, Interrupted when a signal asks one of them to
  // stop.
  ProcessGroup(const LaunchedProcess& process, std::chrono::seconds patience);
  ~ProcessGroup();
  ProcessGroup(ProcessGroup&&) = delete;

  int rank() const { return process_.rank; }
  int size() const { return process_.size; }
  int local_rank() const { return process_.local_rank; }  // among those on this machine
  int local_size() const { return process_.local_size; }  // processes on this machine
  bool is_first() const { return rank() == 0; }

  // Waits for a sum that is under way. It has to be called before anybody looks at the tensors, and
  // before the group ends.
  using Wait = std::function<void()>;
  // Collective. Adds up contiguous tensors of one type in place, over all processes. They are
  // either several tensors on the CPU, which are sent together, or one on the device of
  // join_device(). A sum on a GPU is only enqueued, on the current stream, so work that is enqueued
  // there later finds the result.
  Wait start_sum(std::vector<at::Tensor> tensors);
  void sum(const at::Tensor& tensor) { start_sum({tensor})(); }

  // Collective. From now on sums of tensors on `device` are possible; those on the CPU always are.
  // Throws UsageError when LibTorch has no NCCL, Error when it does not connect the GPUs.
  void join_device(const c10::Device& device);
  // Waits until the device has done its sums. It has to be called before the host waits for the
  // device in any other way. Otherwise it is not known which process is at fault when the device
  // does not finish.
  void await_device();

  // Collective. Gathers the rows of all processes: `own` [share_of(rows).count, ...] holds those of
  // this process, float32 on any device. The result [rows, ...] is on the CPU; its elements have
  // the same bits as those of the process that owns the row.
  at::Tensor all_rows(const at::Tensor& own, std::int64_t rows);
  // Collective. Returns the first process's text.
  std::string from_first(const std::string& text) { return gather(is_first() ? text : "")[0]; }
  std::int64_t from_first(std::int64_t value);
  // Collective. Returns the texts of all processes.
  std::vector<std::string> gather(const std::string& text);
  // Collective. Throws Error, in all processes, that names the first fact that is not the same, and
  // two hosts with what they have.
  void require_same(const std::vector<Fact>& facts, const std::string& remedy);

  // Collective. Returns the signal that has asked one of the processes to stop, the first one of
  // kStopSignals when several have come; 0: none. `clock` becomes the first process's, too: both
  // travel together.
  int agree_on_stop(int signal_number, double* clock = nullptr);

  // Returns this process's part of `rows` rows. The parts follow each other in the order of ranks,
  // and their sizes differ by one row at most. Throws Error when there are fewer rows than
  // processes.
  RowRange share_of(std::int64_t rows) const;

  // Throws Interrupted when a signal has asked one of the processes to stop, and Error when another
  // process has failed. Long work between two collective calls calls it again and again.
  void check_for_stop();

  // Lets the others know why this process ends; they then end, too.
  void publish_failure(const std::exception& error) noexcept;

 private:
  struct Others;
  std::unique_ptr<Others> others_;
  LaunchedProcess process_;
};

// Runs `work`. An exception that it throws ends the other processes of the group, too.
void run_in_group(ProcessGroup* group, const std::function<void()>& work);

// Runs work(group) in the group of the processes that a launcher started, of which this is one.
// `group` is null for a single process. Only the first process prints messages, except for errors.
void run_in_processes(std::chrono::seconds patience,
                      const std::function<void(ProcessGroup* group)>& work);

}  // namespace ql::machine
