// Tests how work on the CPU is divided: every row is computed once, and nothing inside a piece is
// divided among threads.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "machine/threads.h"
#include "unit/thread_count.h"
#include "unit/torch_doctest.h"

namespace ql::machine {
using test::WithThreads;

TEST_CASE("for_pieces: pieces have every row once, for any number of threads") {
  for (const int threads : {1, 2, 5}) {
    const WithThreads with_threads(threads);
    for (const std::int64_t rows : {0, 1, 7, 8, 9}) {
      for (const std::int64_t size : {1, 4, 100}) {
        std::vector<int> seen(static_cast<std::size_t>(rows), 0);
        std::mutex mutex;
        for_pieces(rows, size, [&](std::int64_t first, std::int64_t count) {
          const std::lock_guard lock(mutex);
          CHECK(first % size == 0);
          CHECK(count == std::min(size, rows - first));
          for (std::int64_t row = first; row < first + count; ++row) {
            ++seen[static_cast<std::size_t>(row)];
          }
        });
        CHECK(seen == std::vector<int>(static_cast<std::size_t>(rows), 1));
      }
    }
  }
}

TEST_CASE("threads_that_pay: a thread is woken if it has work that pays") {
  struct Case {
    double parts;  // of the work that pays for one thread
    int threads, expected;
  };
  for (const Case& expect : std::vector<Case>{{0, 2, 1},
                                              {0.5, 2, 1},
                                              {1, 2, 1},
                                              {1.9, 2, 1},
                                              {2, 2, 2},
                                              {2, 1, 1},
                                              {2.5, 16, 2},
                                              {7.5, 16, 7},
                                              {1e12, 16, 16},
                                              {1e12, 1, 1}}) {
    CAPTURE(expect.parts);
    CAPTURE(expect.threads);
    CHECK(threads_that_pay(expect.parts * kPayingMicroseconds, expect.threads) == expect.expected);
  }
}

TEST_CASE("microseconds_of: grows with products and with bytes") {
  CHECK(microseconds_of(0, 0) == 0);
  for (const double more : {1.0, 10.0, 1000.0}) {
    CHECK(microseconds_of(more * 1e6, 1) == doctest::Approx(more * microseconds_of(1e6, 1)));
    CHECK(microseconds_of(1, more * 1e6) == doctest::Approx(more * microseconds_of(1, 1e6)));
  }
}

TEST_CASE("for_parts: small work stays in its thread, and nothing inside is divided") {
  const WithThreads four(4);
  const std::thread::id own = std::this_thread::get_id();
  const auto check = [&](std::int64_t begin, std::int64_t count) {
    CHECK(std::this_thread::get_id() == own);
    CHECK(at::get_num_threads() == 1);
    int calls = 0;
    at::parallel_for(begin, begin + 1000 * count, 1, [&](std::int64_t, std::int64_t) { ++calls; });
    CHECK(calls == 1);
  };
  const double little = 1.5 * kPayingMicroseconds;
  for_pieces(9, 2, check, little);
  for_parts(9, little, [&](std::int64_t begin, std::int64_t end) { check(begin, end - begin); });
  CHECK_THROWS_AS(
      for_parts(1, little, [](std::int64_t, std::int64_t) { throw std::runtime_error("it"); }),
      std::runtime_error);
  CHECK(at::get_num_threads() == 4);
}

TEST_CASE("for_parts: parts have everything once, one for each thread that pays") {
  // Returns the number of parts.
  const auto divide = [](std::int64_t count, double microseconds) {
    std::vector<int> seen(static_cast<std::size_t>(count), 0);
    std::int64_t parts = 0;
    std::mutex mutex;
    for_parts(count, microseconds, [&](std::int64_t begin, std::int64_t end) {
      const std::lock_guard lock(mutex);
      ++parts;
      for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
    });
    CHECK(seen == std::vector<int>(static_cast<std::size_t>(count), 1));
    return parts;
  };
  for (const int threads : {1, 2, 5}) {
    const WithThreads with_threads(threads);
    CHECK(divide(0, kLongWork) == 0);
    CHECK(divide(1, kLongWork) == 1);
    CHECK(divide(7, kLongWork) <= threads);
    // A build without OpenMP has one part.
    const std::int64_t most = divide(1000, kLongWork);
    CHECK((most == threads || most == 1));
    for (const int paid : {1, 2, 3, 100}) {
      CHECK(divide(1000, paid * kPayingMicroseconds) == std::min<std::int64_t>(paid, most));
    }
  }
}

TEST_CASE("for_pieces: one thread computes a piece, in the caller's mode of gradients") {
  const WithThreads three(3);
  CHECK_FALSE(in_piece());
  for (const bool with_gradients : {false, true}) {
    const at::AutoGradMode mode(with_gradients);
    std::vector<int> as_expected(6, 0);
    const auto is_as_expected = [&] {
      int calls = 0;
      at::parallel_for(0, 1000, 1, [&](std::int64_t, std::int64_t) { ++calls; });
      return in_piece() && calls == 1 && at::GradMode::is_enabled() == with_gradients ? 1 : 0;
    };
    for_pieces(6, 1, [&](std::int64_t piece, std::int64_t) {
      as_expected[static_cast<std::size_t>(piece)] = is_as_expected();
    });
    CHECK(as_expected == std::vector<int>(6, 1));
    // The same holds for a part.
    for_parts(6, kLongWork, [&](std::int64_t begin, std::int64_t end) {
      for (; begin < end; ++begin) as_expected[static_cast<std::size_t>(begin)] += is_as_expected();
    });
    CHECK(as_expected == std::vector<int>(6, 2));
  }
  CHECK_FALSE(in_piece());
}

TEST_CASE("for_pieces: a product in pieces has the same bits for any number of threads" *
          doctest::test_suite("numeric")) {
  at::manual_seed(1);
  const at::Tensor states = at::randn({500, 96}), weight = at::randn({96, 70});
  const auto product = [&](int threads) {
    const WithThreads with_threads(threads);
    at::Tensor result = at::empty({500, 70});
    for_pieces(500, 130, [&](std::int64_t first, std::int64_t count) {
      at::Tensor rows = result.narrow(0, first, count);
      at::mm_out(rows, states.narrow(0, first, count), weight);
    });
    return result;
  };
  const at::Tensor by_one = product(1);
  CHECK(at::equal(product(2), by_one));
  CHECK(at::equal(product(3), by_one));
}

TEST_CASE("for_pieces: an exception of a piece is rethrown") {
  const WithThreads two(2);
  CHECK_THROWS_WITH_AS(for_pieces(5, 1,
                                  [](std::int64_t first, std::int64_t) {
                                    if (first == 3) throw std::runtime_error("the fourth");
                                  }),
                       "the fourth", std::runtime_error);
  CHECK_FALSE(in_piece());
}

}  // namespace ql::machine
