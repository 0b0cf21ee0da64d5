// Looks after the processes of a group: which of them is gone, or does not get on. Used by
// process_group.cpp only.
//
// A thread of each process gives a sign of life every second, through a store of c10d that all can
// reach; a second counter tells whether the process got on since. Process 0 watches all of them and
// gives the verdict; the others watch process 0 and look for the verdict. A second thread notices
// when the store itself gives no answer: it has no time limit of its own.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/launched_process.h"

namespace ql::machine {

// Without a sign of life for so long a process counts as gone.
constexpr std::chrono::seconds kSilence{15};

class ProcessWatch {
 public:
  using Lost = std::function<void(const std::string& verdict)>;

  // `store` belongs to the watch alone. `lost` is called by a thread of the watch some seconds
  // after the verdict, as soon as this process waits for the others or has not done so for
  // `patience`: a checkpoint that it is writing is not broken off.
  ProcessWatch(c10::intrusive_ptr<c10d::Store> store, const LaunchedProcess& process,
               std::chrono::seconds patience, Lost lost);
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

  // This process got on.
  void get_on() { ++progress_; }
  // While it waits for the others it is not to blame.
  void set_waiting(bool waiting) { waiting_ = waiting; }

  // Says what happened to the process that is lost, and waits so long for it to be known; empty
  // when all are well as far as can be seen.
  std::string verdict(std::chrono::milliseconds time = {});
  // Tells all processes which one has failed, and why, unless they know of one. Returns what they
  // know then: the first verdict stands.
  std::string tell_failure(const std::string& why);

 private:
  using Clock = std::chrono::steady_clock;
  // Holds what is known of another process.
  struct Seen {
    std::int64_t lives = 0, progress = 0;
    Clock::time_point alive_at, progress_at;
  };

  void look_on();
  void guard();
  void end(std::atomic<bool>& asked, std::thread& thread);
  void look();
  std::string look_at(int rank);
  std::string published();
  std::string publish(const std::string& why);
  void decide(const std::string& text);
  bool wait_for(std::chrono::milliseconds time, const std::atomic<bool>& asked);
  std::string store_name() const;

  c10::intrusive_ptr<c10d::Store> store_;
  LaunchedProcess process_;
  std::chrono::seconds patience_;
  Lost lost_;
  std::vector<Seen> seen_;
  std::atomic<std::int64_t> progress_{0};
  std::atomic<bool> waiting_{false}, ending_{false}, guard_ending_{false};
  std::atomic<Clock::rep> looked_at_;  // when the store last answered
  std::int64_t told_progress_ = -1;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string verdict_;
  std::mutex store_mutex_;  // of its one connection
  std::thread looking_, guarding_;
};

}  // namespace ql::machine
