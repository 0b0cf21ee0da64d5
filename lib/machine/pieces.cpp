#include "machine/pieces.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "machine/library_symbol_internal.h"
#include "machine/product_precision.h"
#include "machine/threads.h"

namespace ql::machine {
namespace {

thread_local bool inside = false;

// oneDNN plans a product for as many threads as OpenMP would give it, and in a thread of a parallel
// region OpenMP gives one. So it has to be told.
struct Inside {
  Inside() : before(inside) {
    inside = true;
    auto* set_openmp_threads = library_symbol<void(int)>("omp_set_num_threads");
    if (set_openmp_threads != nullptr && at::in_parallel_region()) set_openmp_threads(1);
  }
  ~Inside() { inside = before; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  bool before;
};

}  // namespace

void for_pieces(std::int64_t rows, std::int64_t size,
                const std::function<void(std::int64_t first, std::int64_t count)>& work) {
  // In a thread of a parallel region the BLAS has one thread anyway, and its number of threads is
  // every thread's.
  std::optional<OneThreadProducts> one_thread;
  if (!at::in_parallel_region()) one_thread.emplace();
  const bool with_gradients = at::GradMode::is_enabled();
  ProductPrecision* const precision = current_product_precision();
  std::atomic<std::int64_t> next{0};
  // A single task would not begin a parallel region, and LibTorch and the BLAS would divide the
  // work of a piece.
  const std::int64_t takers = std::max(2, at::get_num_threads());
  at::parallel_for(0, takers, 1, [&](std::int64_t, std::int64_t) {
    // Threads do not inherit these.
    const at::AutoGradMode mode(with_gradients);
    const SharedProductPrecision products(precision);
    const Inside now;
    for (std::int64_t first = next.fetch_add(size); first < rows; first = next.fetch_add(size)) {
      work(first, std::min(size, rows - first));
    }
  });
}

bool in_piece() { return inside; }

}  // namespace ql::machine
