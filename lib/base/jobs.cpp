// Runs work on threads, first come, first served.

#include "base/jobs.h"

#include <exception>

#include "base/error.h"

namespace ql {

WorkerThreads::WorkerThreads(int threads) {
  threads_.reserve(static_cast<std::size_t>(threads));
  try {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { serve(); });
  } catch (const std::exception&) {
    // The system grants no more threads, or no memory for them. The threads that run do all the
    // work, only more slowly.
    if (threads_.empty()) {
      throw Error("", "the system refuses to start a thread", "give --threads 1");
    }
  }
}

WorkerThreads::~WorkerThreads() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerThreads::run(std::function<void()> work) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_.push_back(std::move(work));
  }
  changed_.notify_one();
}

void WorkerThreads::serve() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (ending_) return;
    std::function<void()> next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    next();
    next = nullptr;  // its memory is freed outside the lock
    lock.lock();
  }
}

}  // namespace ql
