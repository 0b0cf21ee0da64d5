// The pieces of work on the CPU: every row once, and nothing inside is divided among threads.
#include "machine/pieces.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "so_many_threads.h"
#include "torch_doctest.h"

namespace ql::machine {
using test::SoManyThreads;

TEST_CASE("pieces have every row once, for any number of threads") {
  for (const int threads : {1, 2, 5}) {
    const SoManyThreads so_many(threads);
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

TEST_CASE("a piece is computed by one thread, in the caller's mode of gradients") {
  const SoManyThreads three(3);
  CHECK_FALSE(in_piece());
  for (const bool with_gradients : {false, true}) {
    const at::AutoGradMode mode(with_gradients);
    std::vector<int> as_expected(6, 0);
    for_pieces(6, 1, [&](std::int64_t piece, std::int64_t) {
      int calls = 0;
      at::parallel_for(0, 1000, 1, [&](std::int64_t, std::int64_t) { ++calls; });
      as_expected[static_cast<std::size_t>(piece)] =
          in_piece() && calls == 1 && at::GradMode::is_enabled() == with_gradients ? 1 : 0;
    });
    CHECK(as_expected == std::vector<int>(6, 1));
  }
  CHECK_FALSE(in_piece());
}

TEST_CASE("a product in pieces has the same bits for any number of threads" *
          doctest::test_suite("numeric")) {
  at::manual_seed(1);
  const at::Tensor states = at::randn({500, 96}), weight = at::randn({96, 70});
  const auto product = [&](int threads) {
    const SoManyThreads so_many(threads);
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

TEST_CASE("what a piece throws comes out") {
  const SoManyThreads two(2);
  CHECK_THROWS_WITH_AS(for_pieces(5, 1,
                                  [](std::int64_t first, std::int64_t) {
                                    if (first == 3) throw std::runtime_error("the fourth");
                                  }),
                       "the fourth", std::runtime_error);
  CHECK_FALSE(in_piece());
}

}  // namespace ql::machine
