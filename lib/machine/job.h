// Lets the processes of a job meet in c10d's store, learn there how the others end, and find out
// which one is lost.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <exception>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/launched_process.h"
#include "base/process.h"

namespace ql::machine {

using Clock = std::chrono::steady_clock;
using Store = c10::intrusive_ptr<c10d::Store>;

// Ends a process for a reason that the others know already: one of them has reported it, or all
// have noticed that a process is lost.
class LostProcess : public Error {
  using Error::Error;
};
class NoAnswer : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Calls `work` on a thread of its own, because neither c10d nor NCCL can be interrupted. Throws
// NoAnswer after `time`, and Interrupted when a signal asks to stop, unless `to_the_end`. The
// thread then goes on alone, so `work` has to own what it uses.
template <typename Work>
auto within(std::chrono::milliseconds time, bool to_the_end, Work work) {
  std::packaged_task<decltype(work())()> task(std::move(work));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  const auto deadline = Clock::now() + time;
  while (result.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) {
    const int signal = to_the_end ? 0 : stop_signal();
    if (signal != 0) throw Interrupted(signal, "while the processes met");
    if (Clock::now() > deadline) throw NoAnswer("the other processes do not answer in time");
  }
  return result.get();
}

// Returns the first line of an error of c10d or LibTorch; a stack follows.
inline std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

class Job {
 public:
  explicit Job(const LaunchedProcess& process);
  // Process 0, which has the store, stays some seconds for processes that have not ended yet, or do
  // not know yet why it fails.
  ~Job();
  Job(Job&&) = delete;

  // Waits for all processes, for as long as `patience`. Throws Error when they do not come or are
  // not of one job, Interrupted when a signal asks one of them to stop.
  void meet(std::chrono::seconds patience);

  // The local numbers are those of the processes that have met, not the launcher's.
  const LaunchedProcess& process() const { return process_; }
  const Store& store() const { return store_; }
  // Returns the address at which the others reach this process.
  const std::string& address() const { return addresses_[static_cast<std::size_t>(process_.rank)]; }
  // Returns "process 1 of 3 on host b"; the hosts of the others are known after they have met.
  const std::string& name(int rank) const { return names_[static_cast<std::size_t>(rank)]; }

  // Throws why the job has ended: LostProcess, or Interrupted by the signal that stopped a process.
  // Otherwise returns the signal that asks one of the processes to stop, 0 for none. With `waits`
  // this process answers that it waits, if another one asks which processes do.
  int check(bool waits);
  // Makes check() return this signal in the other processes.
  void ask_to_stop(int signal) { publish("stop", std::to_string(signal)); }
  // Lets the others know why this process ends; they then end, too.
  void end(const std::exception& error) noexcept;
  // Ends the job after an error of Gloo, which is "[file:line] Connection closed by peer
  // [10.0.0.2]:50382" or a timeout, and throws LostProcess with the name of the lost process.
  [[noreturn]] void lose(const std::string& error);

 private:
  template <typename Work>
  auto ask(std::chrono::milliseconds time, Work work, bool to_the_end = true);
  void publish(const std::string& key, const std::string& text) noexcept;

  LaunchedProcess process_;
  std::vector<std::string> names_, addresses_;  // by rank
  Store store_;                                 // null until this process is connected
  Clock::time_point ask_again_;  // the store was silent, and is left alone until then
};

// Call this in a process that seems to be the only one of its job. If others of the job appear, it
// stops in good order, by a signal.
void listen_for_others(const LaunchedProcess& process, std::chrono::seconds patience);

}  // namespace ql::machine
