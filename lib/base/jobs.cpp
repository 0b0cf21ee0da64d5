// Runs work on threads, first come, first served.

#include "base/jobs.h"

#include <new>
#include <system_error>

#include "base/error.h"

namespace ql {

WorkerThreads::WorkerThreads(int threads) {
  try {
    threads_.reserve(static_cast<std::size_t>(threads));
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { serve(); });
  } catch (const std::system_error&) {
    // The system grants no more threads. The threads that run do all the work, only more slowly.
    if (threads_.empty()) {
      throw Error("", "the system refuses to start a thread", "give --threads 1");
    }
  } catch (const std::bad_alloc&) {
    if (threads_.empty()) throw;
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
