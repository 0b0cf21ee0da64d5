// Work on several threads whose results come in the order in which it was given out: what is made
// of them never depends on the number of threads.
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

// Threads that run what they are given, first come, first served.
class WorkerThreads {
 public:
  explicit WorkerThreads(int threads);
  // Waits for what is running and forgets what has not begun.
  ~WorkerThreads();
  WorkerThreads(const WorkerThreads&) = delete;
  WorkerThreads& operator=(const WorkerThreads&) = delete;
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

// while (more work) {
//   jobs.add(work);
//   while (jobs.full()) use(jobs.take());
// }
// while (!jobs.empty()) use(jobs.take());
//
// All that the jobs refer to must outlive this object. One thread adds and takes.
template <typename Result>
class OrderedJobs {
 public:
  // Below 2 threads the caller's own thread does each job when its result is taken.
  explicit OrderedJobs(int threads)
      : most_pending_(threads > 1 ? kJobsPerThread * static_cast<std::size_t>(threads) : 1),
        workers_(threads > 1 ? std::make_unique<WorkerThreads>(threads) : nullptr) {}

  // `bytes`: what the job holds, where that may be much.
  void add(std::function<Result()> job, std::size_t bytes = 0) {
    auto task = std::make_shared<std::packaged_task<Result()>>(std::move(job));
    pending_.push_back({task, task->get_future(), bytes});
    pending_bytes_ += bytes;
    if (workers_) workers_->run([task = std::move(task)] { (*task)(); });
  }
  bool empty() const { return pending_.empty(); }
  // So many jobs are given out that no thread will wait for one, or they hold so much: time to take
  // a result. This bounds the memory.
  bool full() const {
    return pending_.size() >= most_pending_ || pending_bytes_ > kMostPendingBytes;
  }
  // The result of the oldest job, or what that job threw. Waits for it.
  Result take() {
    Pending first = std::move(pending_.front());
    pending_.pop_front();
    pending_bytes_ -= first.bytes;
    if (!workers_) (*first.task)();
    first.task.reset();
    return first.result.get();
  }

 private:
  // One to work on and one to go on with.
  static constexpr std::size_t kJobsPerThread = 2;
  static constexpr std::size_t kMostPendingBytes = std::size_t{64} << 20;
  struct Pending {
    std::shared_ptr<std::packaged_task<Result()>> task;
    std::future<Result> result;
    std::size_t bytes;
  };

  std::size_t most_pending_, pending_bytes_ = 0;
  std::deque<Pending> pending_;
  std::unique_ptr<WorkerThreads> workers_;  // the first to go: its threads use the tasks
};

}  // namespace ql
