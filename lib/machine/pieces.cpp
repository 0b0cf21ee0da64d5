#include "machine/pieces.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>

#include "machine/library_symbol_internal.h"
#include "machine/product_precision.h"
#include "machine/threads.h"

namespace ql::machine {
namespace {

// The rates of one core of an AMD EPYC (Zen 3): small matrix products in float32, and what lies in
// its third-level cache.
constexpr double kProductsPerMicrosecond = 20'000;
constexpr double kBytesPerMicrosecond = 20'000;

thread_local bool inside = false;

// Looking a function up among hundreds of libraries takes microseconds and a lock.
using SetThreads = void(int);
SetThreads* set_openmp_threads() {
  static SetThreads* const set = library_symbol<SetThreads>("omp_set_num_threads");
  return set;
}

struct Inside {
  Inside() : before(inside) { inside = true; }
  ~Inside() { inside = before; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  bool before;
};

// While it lives, LibTorch, OpenMP's libraries and MKL have one thread in this one, as they have in
// a parallel region, and no region is begun.
class OneThread {
 public:
  OneThread() : before_(at::get_num_threads()) {
    set_openmp_threads()(1);
    if (set_mkl_threads() != nullptr) before_in_mkl_ = set_mkl_threads()(1);
  }
  ~OneThread() {
    set_openmp_threads()(before_);
    if (set_mkl_threads() != nullptr) set_mkl_threads()(before_in_mkl_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

  static bool is_possible() {
    return set_openmp_threads() != nullptr && (!at::hasMKL() || set_mkl_threads() != nullptr);
  }

 private:
  using SetMklThreads = int(int);  // returns the number before
  static SetMklThreads* set_mkl_threads() {
    static SetMklThreads* const set = library_symbol<SetMklThreads>("MKL_Set_Num_Threads_Local");
    return set;
  }
  int before_, before_in_mkl_ = 0;
};

// Calls work(begin, end) for one part of [0, count) a thread. Nothing inside is divided.
void share(std::int64_t count, int threads,
           const std::function<void(std::int64_t begin, std::int64_t end)>& work) {
  if (count <= 0) return;
  if (at::in_parallel_region() || at::get_num_threads() == 1) {
    work(0, count);
    return;
  }
  const OneThreadProducts one_thread_products;
  if (threads > 1 && count > 1) {
    at::parallel_for(0, count, (count + threads - 1) / threads, work);
  } else if (OneThread::is_possible()) {
    const OneThread one_thread;
    work(0, count);
  } else {
    // A single task would not begin a parallel region.
    at::parallel_for(0, 2, 1, [&](std::int64_t begin, std::int64_t) {
      if (begin == 0) work(0, count);
    });
  }
}

}  // namespace

double microseconds_of(double products, double bytes) {
  return std::max(products / kProductsPerMicrosecond, bytes / kBytesPerMicrosecond);
}

int threads_that_pay(double microseconds, int threads) {
  const double most = std::max(1.0, static_cast<double>(threads));
  return static_cast<int>(std::clamp(microseconds / kPayingMicroseconds, 1.0, most));
}

void let_libraries_divide(double microseconds, const std::function<void()>& work) {
  if (microseconds >= kLibrariesPayingMicroseconds) {
    work();
  } else {
    share(1, 1, [&work](std::int64_t, std::int64_t) { work(); });
  }
}

void for_parts(std::int64_t count, double microseconds,
               const std::function<void(std::int64_t begin, std::int64_t end)>& work) {
  share(count, threads_that_pay(microseconds, at::get_num_threads()), work);
}

void for_pieces(std::int64_t rows, std::int64_t size,
                const std::function<void(std::int64_t first, std::int64_t count)>& work,
                double microseconds) {
  const bool with_gradients = at::GradMode::is_enabled();
  ProductPrecision* const precision = current_product_precision();
  std::atomic<std::int64_t> next{0};
  const std::int64_t pieces = (rows + size - 1) / size;
  const std::int64_t takers =
      std::min<std::int64_t>(pieces, threads_that_pay(microseconds, at::get_num_threads()));
  share(takers, static_cast<int>(takers), [&](std::int64_t, std::int64_t) {
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
