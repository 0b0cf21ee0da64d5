#include "base/ordered_jobs.h"

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"

namespace ql {

struct WorkerThreads::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> waiting;
  bool ending = false;
  std::vector<std::thread> threads;

  void work() {
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return ending || !waiting.empty(); });
      if (ending) return;
      std::function<void()> next = std::move(waiting.front());
      waiting.pop_front();
      lock.unlock();
      next();
      next = nullptr;  // what it holds is given back outside the lock
      lock.lock();
    }
  }

  void end() {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      ending = true;
    }
    changed.notify_all();
    for (std::thread& thread : threads) thread.join();
  }
};

WorkerThreads::WorkerThreads(int threads) : state_(std::make_unique<State>()) {
  try {
    for (int i = 0; i < threads; ++i) {
      state_->threads.emplace_back([state = state_.get()] { state->work(); });
    }
  } catch (const std::system_error&) {
    // The system grants no more threads: those that run do the same work, only slower.
    if (state_->threads.empty()) {
      throw Error("threads", "the system grants no more", "give --threads 1");
    }
  }
}

WorkerThreads::~WorkerThreads() { state_->end(); }

void WorkerThreads::run(std::function<void()> work) {
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->waiting.push_back(std::move(work));
  }
  state_->changed.notify_one();
}

}  // namespace ql
