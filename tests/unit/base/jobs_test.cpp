// Tests ordered jobs and of the pool of objects.

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/jobs.h"
#include "base/resources.h"

namespace ql {

TEST_CASE("OrderedJobs: results come in the order of the jobs") {
  for (const int threads : {0, 1, 2, 3, 8}) {
    CAPTURE(threads);
    std::vector<int> results, expected;
    OrderedJobs<int> jobs(threads);
    for (int i = 0; i < 200; ++i) {
      expected.push_back(i);
      jobs.add([i] {
        // Later jobs overtake this one.
        if (i % 7 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return i;
      });
      if (jobs.full()) results.push_back(jobs.take());
      CHECK_FALSE(jobs.full());
    }
    while (!jobs.empty()) results.push_back(jobs.take());
    CHECK(results == expected);
  }
}

TEST_CASE("OrderedJobs: take() throws a job's exception in the job's place") {
  for (const int threads : {1, 3}) {
    OrderedJobs<int> jobs(threads);
    for (int i = 0; i < 5; ++i) {
      jobs.add([i] {
        if (i == 1 || i == 3) throw std::runtime_error(std::to_string(i));
        return i;
      });
    }
    CHECK(jobs.take() == 0);
    CHECK_THROWS_WITH(jobs.take(), "1");
    CHECK(jobs.take() == 2);
    CHECK_THROWS_WITH(jobs.take(), "3");
    CHECK(jobs.take() == 4);
    CHECK(jobs.empty());
  }
}

TEST_CASE("OrderedJobs: jobs without a taker do not outlive the objects that they refer to") {
  for (const int threads : {1, 2}) {
    // All jobs would take seconds, so some remain even if a busy machine ends the scope late.
    constexpr int kJobs = 5000;
    std::atomic<int> begun{0}, ended{0};
    {
      OrderedJobs<int> jobs(threads);
      for (int i = 0; i < kJobs; ++i) {
        jobs.add([&] {
          ++begun;
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          ++ended;
          return 0;
        });
      }
    }
    CHECK(begun == ended);
    CHECK(begun < kJobs);
  }
}

TEST_CASE("ObjectPool: a pool makes no more objects than are lent at once") {
  ObjectPool<std::string> pool;
  const auto empty = [] { return std::make_unique<std::string>(); };
  auto first = pool.take(empty);
  *first = "kept";
  pool.give_back(std::move(first));
  auto again = pool.take(empty);
  CHECK(*again == "kept");
  const auto second = pool.take([] { return std::make_unique<std::string>("made"); });
  CHECK(*second == "made");
  pool.give_back(std::move(again));
  CHECK(pool.idle().size() == 1);
}

TEST_CASE("usable_cores: at least one") { CHECK(usable_cores() >= 1); }

}  // namespace ql
