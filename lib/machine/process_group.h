// Adds up tensors over the processes that compute together; a single process is a group of one. A
// sum has the same bits in each process. c10d's Gloo computes the sums of tensors on the CPU, and
// NCCL computes the sums of tensors on GPUs.
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

namespace ql::machine {

// Stands for the rows [first, first + count) of a batch.
struct RowRange {
  std::int64_t first = 0, count = 0;
};

// Holds the name and the text of a value that must be equal in all processes of a job.
using Fact = std::pair<std::string, std::string>;

// The remedy where the processes may be of two jobs.
constexpr const char* kSameJob =
    "start all processes with the same program, command and data; or another job uses this port: "
    "then give each job a MASTER_PORT of its own";

// All processes have to call every function that is marked as collective, in the same order. A
// collective function throws Error when another process has failed or lets the others wait too
// long. The error names that process and the reason. A collective function throws Interrupted when
// a signal has stopped another process. It also throws Interrupted when a signal has asked this
// process to stop, and the others do not make the same call soon (except during a LongWait).
class ProcessGroup {
 public:
  // Makes a group of one process, which never waits.
  ProcessGroup();
  // Waits for all processes that were launched together. In this and every later call, a process
  // may let the others wait for `patience`. Throws Error when a process does not come, and
  // Interrupted when a signal asks one of the processes to stop.
  ProcessGroup(const LaunchedProcess& process, std::chrono::seconds patience);
  ~ProcessGroup();
  ProcessGroup(ProcessGroup&&) = delete;

  // Returns the group of one process that functions use unless they are given another group.
  static ProcessGroup& single();

  int rank() const { return process_.rank; }
  int size() const { return process_.size; }
  int local_rank() const { return process_.local_rank; }  // among the processes on this machine
  int local_size() const { return process_.local_size; }  // processes on this machine
  bool is_first() const { return rank() == 0; }
  bool is_single() const { return size() == 1; }

  // A Wait function waits for the end of a sum. The caller of start_sum() has to call it before
  // anything reads the tensors, and before the group is destroyed.
  using Wait = std::function<void()>;
  // Collective. Adds up a contiguous tensor in place, over all processes. It is on the CPU or on
  // the device of join_device(). A sum on a GPU is only enqueued, on the current stream, so work
  // that is enqueued later on this stream finds the result.
  Wait start_sum(const at::Tensor& tensor);
  void sum(const at::Tensor& tensor) { start_sum(tensor)(); }

  // Collective. From now on sums of tensors on `device` are possible; sums on the CPU always are.
  // Throws UsageError when LibTorch has no NCCL, and Error when NCCL does not connect the GPUs.
  void join_device(const c10::Device& device);
  // Waits until the device has finished its sums. Call this function before the host waits for the
  // device in any other way. Otherwise, if the device never finishes, nothing reports the process
  // at fault.
  void await_device();

  // Collective. Gathers the rows of all processes: `own` [share_of(rows).count, ...] holds the rows
  // of this process, in float32 on any device. The result [rows, ...] is on the CPU, or in a group
  // of one `own` itself; each row has the same bits as in the process that owns the row.
  at::Tensor all_rows(const at::Tensor& own, std::int64_t rows);
  // Collective. Returns the argument of the first process.
  std::string from_first(const std::string& text) { return gather(is_first() ? text : "")[0]; }
  std::int64_t from_first(std::int64_t value);
  // Collective. Returns the texts of all processes.
  std::vector<std::string> gather(const std::string& text);
  // Collective. Throws Error in all processes if a fact is not the same in all of them. The error
  // names the first such fact, and two processes with their values.
  void require_same(const std::vector<Fact>& facts, const std::string& remedy = kSameJob);

  // Collective. Returns the signal that has asked one of the processes to stop, or 0. If several
  // signals have come, returns the first of them in kStopSignals. Also sets `clock`, if given,
  // to its value in the first process. A single sum over the processes serves both purposes.
  int agree_on_stop(int signal_number, double* clock = nullptr);

  // Returns this process's part of `rows` rows. The parts follow each other in the order of ranks,
  // and their sizes differ by one row at most. Throws Error when there are fewer rows than
  // processes.
  RowRange share_of(std::int64_t rows) const;

  // While a LongWait exists, a signal does not end this process's waiting. The other processes will
  // make the call, but one of them works for long before it: the first one writes a checkpoint.
  class LongWait {
   public:
    explicit LongWait(ProcessGroup& group);
    ~LongWait();
    LongWait(LongWait&&) = delete;

   private:
    ProcessGroup& group_;
  };

  // Throws Interrupted when a signal has asked one of the processes to stop, and Error when another
  // process has failed. Long work between two collective calls has to call this function
  // repeatedly.
  void check_for_stop();

  // Lets the other processes know why this process ends; the others then end, too.
  void publish_failure(const std::exception& error) noexcept;

 private:
  struct Others;
  std::unique_ptr<Others> others_;  // absent in a group of one
  LaunchedProcess process_;
};

// Runs `work`. An exception that `work` throws ends the other processes of the group, too.
void run_in_group(ProcessGroup& group, const std::function<void()>& work);

// Runs work(group) in this process, in the group of all processes that the launcher started. Only
// the first process prints messages, except for errors.
void run_in_processes(std::chrono::seconds patience,
                      const std::function<void(ProcessGroup& group)>& work);

}  // namespace ql::machine
