// Connects the processes of a job through c10d's store, in which each of them can set and read
// texts by keys. From the store the processes learn how others ended, and which process is lost.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/launched_process.h"
#include "base/process.h"
#include "machine/store_watch.h"

namespace ql::machine {

using Clock = std::chrono::steady_clock;
using Store = c10::intrusive_ptr<c10d::Store>;

// This exception ends a process that need not report the reason: the other processes know the
// reason already, or this process is not a part of their job.
class LostProcess : public Error {
  using Error::Error;
};
class NoAnswer : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Returns the result of `work`, which runs on a thread of its own, because neither c10d nor NCCL
// can be interrupted. Throws NoAnswer if `work` takes longer than `time`. Unless `to_the_end`, also
// throws Interrupted when a signal asks to stop. After these exceptions the thread continues alone,
// so `work` has to own everything that it uses.
template <typename Work>
auto within(std::chrono::milliseconds time, bool to_the_end, Work work) {
  std::packaged_task<decltype(work())()> task(std::move(work));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  const auto deadline = Clock::now() + time;
  while (result.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) {
    const int signal = to_the_end ? 0 : stop_signal();
    if (signal != 0) throw Interrupted(signal, "while connecting to the other processes");
    if (Clock::now() > deadline) throw NoAnswer("the other processes do not answer in time");
  }
  return result.get();
}

// Returns the first line of an error of c10d or LibTorch; the further lines are a stack trace.
inline std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

class Job {
 public:
  explicit Job(const LaunchedProcess& process);
  // If process 0 hosts the store, its destructor waits some seconds for processes that have not
  // ended yet, or do not know yet why process 0 fails.
  ~Job();
  Job(Job&&) = delete;

  // Waits up to `patience` for all processes. Throws Error when a process does not come or belongs
  // to another job, and Interrupted when a signal asks one of the processes to stop.
  void meet(std::chrono::seconds patience);

  // Waits until all processes have called this function, once: each when it has opened its network
  // interface. Throws Error with the names of those that have not after `patience`, what check()
  // throws, and Interrupted when a signal asks one of the processes to stop.
  void await_all(std::chrono::seconds patience);

  // After meet(), local_rank and local_size are counted from the processes' addresses, and are not
  // the launcher's values.
  const LaunchedProcess& process() const { return process_; }
  const Store& store() const { return store_; }
  // Returns the address at which the other processes reach this one.
  const std::string& address() const { return addresses_[static_cast<std::size_t>(process_.rank)]; }
  // Returns "process 1 of 3 on host b"; the hosts of the other processes are known after meet().
  const std::string& name(int rank) const { return names_[static_cast<std::size_t>(rank)]; }

  // If the job has ended, throws the reason: LostProcess, or Interrupted with the signal that
  // stopped a process. Otherwise returns the signal that asks one of the processes to stop, or 0 if
  // there is none or c10d's store does not answer. `waits` is true if this process is waiting for a
  // sum. check() reports this when another process asks in lose().
  int check(bool waits);
  // Makes check() return this signal, or an earlier one, in all processes.
  void ask_to_stop(int signal) { publish("stop", std::to_string(signal)); }
  // Lets the other processes know why this process ends; the others then end, too.
  void end(const std::exception& error) noexcept;
  // Ends the job after an error such as Gloo's "[file:line] Connection closed by peer
  // [10.0.0.2]:50382" or a timeout. Throws LostProcess with the names of the lost processes, or
  // what check() throws.
  [[noreturn]] void lose(const std::string& error);

 private:
  template <typename Work>
  auto ask(std::chrono::milliseconds time, Work work, bool to_the_end = true);
  void find_others(std::chrono::seconds patience);
  void publish(const std::string& key, const std::string& text) noexcept;

  LaunchedProcess process_;
  std::vector<std::string> names_, addresses_;  // by rank
  std::unique_ptr<StoreWatch> watch_;           // null except in the process that hosts the store
  Store store_;                                 // null until this process is connected
  Clock::time_point ask_again_;  // a store that was silent is not asked before this time
};

// Call this in a process that seems to be the only one of its job. If other processes of the job
// appear, a signal stops this process in good order.
void listen_for_others(const LaunchedProcess& process, std::chrono::seconds patience);

}  // namespace ql::machine
