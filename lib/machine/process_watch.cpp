#ifdef QL_GLOO

#include "machine/process_watch_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace ql::machine {

namespace {

constexpr std::chrono::milliseconds kBeat{1000};
// A second that took so long: this process was suspended, and the others perhaps with it.
constexpr std::chrono::seconds kSuspended{5};
// An exception of the main thread has so long to end the process in good order.
constexpr std::chrono::milliseconds kGrace{4000};

// Names in the store: the verdict, whether there is one, and the counters of each process.
constexpr const char* kWhy = "why";
constexpr const char* kLost = "lost";
std::string life_of(int rank) { return fmt::format("life/{}", rank); }
std::string progress_of(int rank) { return fmt::format("progress/{}", rank); }

}  // namespace

ProcessWatch::ProcessWatch(c10::intrusive_ptr<c10d::Store> store, const LaunchedProcess& process,
                           std::chrono::seconds patience, Lost lost)
    : store_(std::move(store)),
      process_(process),
      patience_(patience),
      lost_(std::move(lost)),
      seen_(static_cast<std::size_t>(process.size)) {
  const auto now = Clock::now();
  for (Seen& seen : seen_) seen.alive_at = seen.progress_at = now;
  looked_at_ = now.time_since_epoch().count();
  looking_ = std::thread([this] { look_on(); });
  try {
    guarding_ = std::thread([this] { guard(); });
  } catch (...) {
    end(ending_, looking_);
    throw;
  }
}

ProcessWatch::~ProcessWatch() {
  end(ending_, looking_);  // the guard ends the process should the store keep that thread waiting
  end(guard_ending_, guarding_);
}

void ProcessWatch::end(std::atomic<bool>& asked, std::thread& thread) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    asked = true;
  }
  changed_.notify_all();
  thread.join();
}

// True when an end is asked for meanwhile.
bool ProcessWatch::wait_for(std::chrono::milliseconds time, const std::atomic<bool>& asked) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, time, [&asked] { return asked.load(); });
}

// Names the process that answers for the store.
std::string ProcessWatch::store_name() const {
  return process_.launcher_answers ? "torchrun" : process_name(0, process_.size);
}

void ProcessWatch::look_on() {
  Clock::time_point before = Clock::now();
  while (verdict().empty() && !wait_for(kBeat, ending_)) {
    const Clock::duration pause = Clock::now() - before;
    before += pause;
    if (pause > kSuspended) {
      for (Seen& seen : seen_) {
        seen.alive_at += pause;
        seen.progress_at += pause;
      }
    }
    try {
      look();
    } catch (const std::exception&) {
      // The first process, which answers for the store, ends last when all is well.
      decide(fmt::format("the connection to {} is lost", store_name()));
    }
    looked_at_ = Clock::now().time_since_epoch().count();
  }
}

void ProcessWatch::guard() {
  Clock::time_point before = Clock::now(), awake_since = before;
  while (verdict().empty() && !wait_for(kBeat, guard_ending_)) {
    const Clock::time_point now = Clock::now();
    if (now - before > kSuspended) awake_since = now;
    before = now;
    const Clock::time_point looked_at{Clock::duration(looked_at_)};
    if (verdict().empty() && now - std::max(looked_at, awake_since) > kSilence) {
      decide(fmt::format("{} has given no sign of life for {} seconds", store_name(),
                         kSilence.count()));
    }
  }
  const std::string text = verdict();
  const Clock::time_point last = Clock::now() + patience_;
  while (!text.empty() && !wait_for(kGrace, guard_ending_)) {
    // When the watch is ending, only the other thread is left to wait for, and it hears nothing.
    if (waiting_ || ending_ || Clock::now() > last) {
      lost_(text);
      return;
    }
  }
}

void ProcessWatch::look() {
  const std::lock_guard<std::mutex> lock(store_mutex_);
  store_->add(life_of(process_.rank), 1);
  const std::int64_t progress = progress_;
  if (waiting_ || progress != told_progress_) {
    store_->add(progress_of(process_.rank), 1);
    told_progress_ = progress;
  }
  if (const std::string why = published(); !why.empty()) {
    decide(why);
    return;
  }
  const int first = process_.rank == 0 ? 1 : 0, end = process_.rank == 0 ? process_.size : 1;
  for (int rank = first; rank < end; ++rank) {
    if (const std::string why = look_at(rank); !why.empty()) {
      publish(why);
      decide(why);
    }
  }
}

// Returns what is wrong with another process; empty when nothing is.
std::string ProcessWatch::look_at(int rank) {
  Seen& seen = seen_[static_cast<std::size_t>(rank)];
  const auto now = Clock::now();
  const std::int64_t lives = store_->add(life_of(rank), 0);
  const std::int64_t progress = store_->add(progress_of(rank), 0);
  if (lives != seen.lives) {
    seen.lives = lives;
    seen.alive_at = now;
  }
  if (progress != seen.progress) {
    seen.progress = progress;
    seen.progress_at = now;
  }
  if (now - seen.alive_at > kSilence) {
    return fmt::format("{} has given no sign of life for {} seconds",
                       process_name(rank, process_.size), kSilence.count());
  }
  if (now - seen.progress_at > patience_) {
    return fmt::format("{} has let the others wait for {} seconds",
                       process_name(rank, process_.size), patience_.count());
  }
  return "";
}

std::string ProcessWatch::published() {
  if (store_->add(kLost, 0) == 0) return "";
  const std::vector<std::uint8_t> why = store_->get(kWhy);
  return {why.begin(), why.end()};
}

std::string ProcessWatch::publish(const std::string& why) {
  if (const std::string first = published(); !first.empty()) return first;
  store_->set(kWhy, std::vector<std::uint8_t>(why.begin(), why.end()));
  store_->add(kLost, 1);
  return why;
}

void ProcessWatch::decide(const std::string& text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (verdict_.empty()) verdict_ = text;
  changed_.notify_all();
}

std::string ProcessWatch::verdict(std::chrono::milliseconds time) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, time, [this] { return !verdict_.empty(); });
  return verdict_;
}

std::string ProcessWatch::tell_failure(const std::string& why) {
  waiting_ = true;  // for the store, which may be silent
  try {
    const std::lock_guard<std::mutex> lock(store_mutex_);
    return publish(why);
  } catch (const std::exception&) {
    return why;  // the store is gone, and the others notice that themselves
  }
}

}  // namespace ql::machine

#endif
