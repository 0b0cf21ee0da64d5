#ifdef QL_GLOO

#include "nn/process_watch.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

namespace ql::nn {

namespace {

constexpr std::chrono::milliseconds kBeat{1000};
// What an exception of the main thread is given before the process ends without it.
constexpr std::chrono::milliseconds kGrace{3000};

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

ProcessWatch::ProcessWatch(c10::intrusive_ptr<c10d::Store> store, const ProcessPlace& place,
                           std::chrono::seconds patience, Lost lost)
    : store_(std::move(store)),
      place_(place),
      patience_(patience),
      lost_(std::move(lost)),
      seen_(static_cast<std::size_t>(place.size)) {
  const auto now = Clock::now();
  for (Seen& seen : seen_) {
    seen.alive_at = seen.progress_at = now;
  }
  thread_ = std::thread([this] { run(); });
}

ProcessWatch::~ProcessWatch() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::string ProcessWatch::key(const char* what, int rank) const {
  return fmt::format("{}/{}/{}", what, place_.restart, rank);
}

// True when the watch ends meanwhile.
bool ProcessWatch::wait_for(std::chrono::milliseconds time) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, time, [this] { return ending_; });
}

void ProcessWatch::run() {
  std::string text;
  while (!wait_for(kBeat)) {
    try {
      look();
    } catch (const std::exception&) {
      // The first process, which answers for the store, ends last when all is well.
      decide(fmt::format("the connection to {} is lost", place_.launcher_answers
                                                             ? std::string("torchrun")
                                                             : process_name(0, place_.size)));
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    text = verdict_;
    if (!text.empty()) {
      break;
    }
  }
  if (!text.empty() && !wait_for(kGrace)) {
    lost_(text);
  }
}

void ProcessWatch::look() {
  const std::lock_guard<std::mutex> lock(store_mutex_);
  store_->add(key("life", place_.rank), 1);
  const std::int64_t progress = progress_;
  if (waiting_ || progress != told_progress_) {
    store_->add(key("progress", place_.rank), 1);
    told_progress_ = progress;
  }
  if (store_->add(key("lost", 0), 0) > 0) {
    const std::vector<std::uint8_t> why = store_->get(key("why", 0));
    decide(std::string(why.begin(), why.end()));
    return;
  }
  if (place_.rank != 0) {
    look_at(0);
    return;
  }
  for (int rank = 1; rank < place_.size; ++rank) {
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
                      process_name(rank, place_.size), kSilence.count());
  } else if (now - seen.progress_at > patience_) {
    why = fmt::format("{} has let the others wait for {} seconds", process_name(rank, place_.size),
                      patience_.count());
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

}  // namespace ql::nn

#endif
