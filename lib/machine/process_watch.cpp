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
// What an exception of the main thread is given before the process ends without it.
constexpr std::chrono::milliseconds kGrace{4000};

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

ProcessWatch::ProcessWatch(c10::intrusive_ptr<c10d::Store> store, const LaunchedProcess& process,
                           std::chrono::seconds patience, Lost lost)
    : store_(std::move(store)),
      process_(process),
      patience_(patience),
      lost_(std::move(lost)),
      seen_(static_cast<std::size_t>(process.size)) {
  const auto now = Clock::now();
  for (Seen& seen : seen_) {
    seen.alive_at = seen.progress_at = now;
  }
  looked_at_ = now.time_since_epoch().count();
  looking_ = std::thread([this] { look_on(); });
  try {
    guarding_ = std::thread([this] { guard(); });
  } catch (...) {
    end_looking();
    throw;
  }
}

void ProcessWatch::end_looking() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  looking_.join();
}

ProcessWatch::~ProcessWatch() {
  end_looking();  // the guard ends the process should the store keep that thread waiting
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    guard_ending_ = true;
  }
  changed_.notify_all();
  guarding_.join();
}

std::string ProcessWatch::key(const char* what, int rank) const {
  return fmt::format("{}/{}/{}", what, process_.restart, rank);
}

// True when `end` is set meanwhile.
bool ProcessWatch::wait_for(std::chrono::milliseconds time, const bool& end) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, time, [&end] { return end; });
}

std::string ProcessWatch::known_verdict() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return verdict_;
}

bool ProcessWatch::is_ending() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return ending_;
}

// Who answers for the store.
std::string ProcessWatch::store_name() const {
  return process_.launcher_answers ? "torchrun" : process_name(0, process_.size);
}

void ProcessWatch::look_on() {
  Clock::time_point before = Clock::now();
  while (known_verdict().empty() && !wait_for(kBeat, ending_)) {
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
  while (known_verdict().empty() && !wait_for(kBeat, guard_ending_)) {
    const Clock::time_point now = Clock::now();
    if (now - before > kSuspended) {
      awake_since = now;
    }
    before = now;
    const Clock::time_point looked_at{Clock::duration(looked_at_)};
    if (known_verdict().empty() && now - std::max(looked_at, awake_since) > kSilence) {
      decide(fmt::format("{} has given no sign of life for {} seconds", store_name(),
                         kSilence.count()));
    }
  }
  const std::string text = known_verdict();
  const Clock::time_point last = Clock::now() + patience_;
  while (!text.empty() && !wait_for(kGrace, guard_ending_)) {
    // When the watch is ending, only the other thread is left to wait for, and it hears nothing.
    if (waiting_ || is_ending() || Clock::now() > last) {
      lost_(text);
      return;
    }
  }
}

void ProcessWatch::look() {
  const std::lock_guard<std::mutex> lock(store_mutex_);
  store_->add(key("life", process_.rank), 1);
  const std::int64_t progress = progress_;
  if (waiting_ || progress != told_progress_) {
    store_->add(key("progress", process_.rank), 1);
    told_progress_ = progress;
  }
  if (store_->add(key("lost", 0), 0) > 0) {
    const std::vector<std::uint8_t> why = store_->get(key("why", 0));
    decide(std::string(why.begin(), why.end()));
    return;
  }
  if (process_.rank != 0) {
    look_at(0);
    return;
  }
  for (int rank = 1; rank < process_.size; ++rank) {
    look_at(rank);
  }
}

void ProcessWatch::look_at(int rank) {
  Seen& seen = seen_[static_cast<std::size_t>(rank)];
  const auto now = Clock::now();
  const std::int64_t lives = store_->add(key("life", rank), 0);
  const std::int64_t progress = store_->add(key("progress", rank), 0);
  if (lives != seen.lives) {
    seen.lives = lives;
    seen.alive_at = now;
  }
  if (progress != seen.progress) {
    seen.progress = progress;
    seen.progress_at = now;
  }
  std::string why;
  if (now - seen.alive_at > kSilence) {
    why = fmt::format("{} has given no sign of life for {} seconds",
                      process_name(rank, process_.size), kSilence.count());
  } else if (now - seen.progress_at > patience_) {
    why = fmt::format("{} has let the others wait for {} seconds",
                      process_name(rank, process_.size), patience_.count());
  } else {
    return;
  }
  store_->set(key("why", 0), bytes_of(why));
  store_->add(key("lost", 0), 1);
  decide(why);
}

void ProcessWatch::decide(const std::string& text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (verdict_.empty()) {
    verdict_ = text;
  }
  changed_.notify_all();
}

std::optional<std::string> ProcessWatch::verdict(std::chrono::milliseconds time) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, time, [this] { return !verdict_.empty(); });
  return verdict_.empty() ? std::nullopt : std::optional<std::string>(verdict_);
}

void ProcessWatch::tell_failure(const std::string& why) noexcept {
  waiting_ = true;  // for the store, which may be silent
  try {
    const std::lock_guard<std::mutex> lock(store_mutex_);
    if (store_->add(key("lost", 0), 0) == 0) {
      store_->set(key("why", 0), bytes_of(why));
      store_->add(key("lost", 0), 1);
    }
  } catch (const std::exception&) {
    // The store is gone, and the others notice that themselves.
  }
}

}  // namespace ql::machine

#endif
