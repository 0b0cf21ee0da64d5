// Runs jobs on several threads and hands out their results in order. A pool lends objects that are
// expensive to make.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace ql {

// Lends objects that are expensive to make, each to one user at a time. Several threads may use a
// pool at once. A pool makes a new object only when all others are lent.
template <typename Object>
class ObjectPool {
 public:
  // If no object is free, `take` returns the result of make().
  template <typename Make>
  std::unique_ptr<Object> take(const Make& make) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (idle_.empty()) {
      lock.unlock();
      return make();
    }
    std::unique_ptr<Object> object = std::move(idle_.back());
    idle_.pop_back();
    return object;
  }
  void give_back(std::unique_ptr<Object> object) {
    const std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(std::move(object));
  }
  // Returns the objects that are not lent. Call it while no thread calls take() or give_back().
  const std::vector<std::unique_ptr<Object>>& idle() const { return idle_; }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Object>> idle_;
};

// Runs the given work on threads, first come, first served.
class WorkerThreads {
 public:
  explicit WorkerThreads(int threads);
  // Waits for running work and drops work that has not begun.
  ~WorkerThreads();
  WorkerThreads(WorkerThreads&&) = delete;
  // `work` must not throw.
  void run(std::function<void()> work);

 private:
  void serve();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

// Runs jobs in parallel. A caller uses this class like this:
//
//   while (more work) {
//     jobs.add(work);
//     while (jobs.full()) use(jobs.take());
//   }
//   while (!jobs.empty()) use(jobs.take());
//
// The results come in the order in which the jobs were added, so their order never depends on the
// number of threads. Everything that jobs refer to must outlive this object. Only one thread may
// call add() and take().
template <typename Result>
class OrderedJobs {
 public:
  // With fewer than 2 threads, take() does the job on the caller's own thread.
  explicit OrderedJobs(int threads)
      : most_pending_(threads > 1 ? kJobsPerThread * static_cast<std::size_t>(threads) : 1),
        workers_(threads > 1 ? std::make_unique<WorkerThreads>(threads) : nullptr) {}

  // `bytes` is the size of the job's data. It may be 0 for small data.
  void add(std::function<Result()> job, std::size_t bytes = 0) {
    auto task = std::make_shared<std::packaged_task<Result()>>(std::move(job));
    pending_.push_back({task, task->get_future(), bytes});
    pending_bytes_ += bytes;
    if (workers_) workers_->run([task = std::move(task)] { (*task)(); });
  }
  bool empty() const { return pending_.empty(); }
  // Returns true when enough jobs are pending to keep every thread busy, or when their data is
  // large. The caller must then take a result before it adds a job, which bounds the memory.
  bool full() const {
    return pending_.size() >= most_pending_ || pending_bytes_ > kMostPendingBytes;
  }
  // Waits for the oldest job and returns its result, or throws what the job threw.
  Result take() {
    Pending first = std::move(pending_.front());
    pending_.pop_front();
    pending_bytes_ -= first.bytes;
    if (!workers_) (*first.task)();
    first.task.reset();
    return first.result.get();
  }

 private:
  // Each thread works on one job while the next one waits.
  static constexpr std::size_t kJobsPerThread = 2;
  static constexpr std::size_t kMostPendingBytes = std::size_t{64} << 20;
  struct Pending {
    std::shared_ptr<std::packaged_task<Result()>> task;
    std::future<Result> result;
    std::size_t bytes;
  };

  std::size_t most_pending_, pending_bytes_ = 0;
  std::deque<Pending> pending_;
  std::unique_ptr<WorkerThreads> workers_;  // destroyed first: its threads use the tasks
};

}  // namespace ql
