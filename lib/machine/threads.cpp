// Sets up threads and BLAS, and divides work among threads.

#include "machine/threads.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Logging.h>

#include <atomic>
#include <filesystem>
#include <sstream>

#include "base/launched_process.h"
#include "base/log.h"
#include "base/resources.h"
#include "base/stopwatch.h"
#include "machine/process_group.h"
#include "machine/tensor_memory.h"

namespace ql::machine {

constexpr const char* kVariable = "OPENBLAS_CORETYPE";

// OpenBLAS 0.3.21 chooses these kernels for unknown processors of Intel, AMD and other makers
// (dynamic.c).
constexpr std::array<const char*, 4> kLastResorts{"Prescott", "Barcelona", "Opteron_SSE3",
                                                  "Nehalem"};

std::string better_openblas_kernels(const std::string& taken, VectorVersion widest) {
  if (std::find(kLastResorts.begin(), kLastResorts.end(), taken) == kLastResorts.end()) return "";
  return widest == VectorVersion::kAvx512 ? "SkylakeX"
         : widest == VectorVersion::kAvx2 ? "Haswell"
                                          : "";
}

namespace {

struct OpenblasKernels {
  std::string taken, own;  // ThreadSetup::own_kernels
};

// Makes OpenBLAS use better_openblas_kernels() in this process and in processes that it starts,
// unless OPENBLAS_CORETYPE names other kernels. Returns empty names if they are unknown. Call this
// function while no matrix product is running.
OpenblasKernels take_better_openblas_kernels() {
  auto* name = library_symbol<char*()>("openblas_get_corename");
  if (name == nullptr) return {};
  // When OpenBLAS is loaded, it calls the first function to choose its kernels. When it is
  // unloaded, it calls the second function to forget them. A build for one kind of processor has
  // neither function.
  auto* choose = library_symbol<void()>("gotoblas_dynamic_init");
  auto* forget = library_symbol<void()>("gotoblas_dynamic_quit");
  if (choose == nullptr || forget == nullptr) return {name(), ""};
  const auto choose_again = [&] {
    forget();
    choose();
    return std::string(name());
  };
  const auto better = [&] {
    return better_openblas_kernels(name(), choose_vector_version(nullptr));
  };
  const char* wanted = std::getenv(kVariable);
  if (wanted == nullptr) {
    if (!better().empty()) {
      ::setenv(kVariable, better().c_str(), 1);
      choose_again();
    }
    return {name(), ""};
  }
  const std::string named = wanted;
  ::unsetenv(kVariable);
  std::string own = choose_again();
  if (!better().empty()) own = better();
  ::setenv(kVariable, named.c_str(), 1);
  const std::string taken = choose_again();
  return {taken, taken == own ? "" : own};
}

constexpr int kMostThreads = 1024;
// This limit is in GFLOP/s per thread. The reference BLAS uses one thread, and stays below the
// limit. A tuned BLAS is far above the limit.
constexpr double kSlowGflops = 10;

struct Blas {
  std::string name;
  bool tuned = false;  // known to be fast
  bool openblas = false;
};

// Libraries such as LAPACK may also export OpenBLAS's symbols, so the BLAS is identified by the
// file that defines sgemm_.
Blas find_blas() {
  if (at::hasMKL()) return {"MKL", true, false};
  Dl_info info{};
  void* product = ::dlsym(RTLD_DEFAULT, "sgemm_");
  if (product == nullptr || ::dladdr(product, &info) == 0) return {"an unknown BLAS", false, false};
  std::error_code error;
  const auto file = std::filesystem::canonical(info.dli_fname, error);
  const std::string path = error ? std::string(info.dli_fname) : file.string();
  auto* config = library_symbol<char*()>("openblas_get_config");
  if (path.find("openblas") == std::string::npos || config == nullptr) return {path, false, false};
  // The configuration begins with name and version: "OpenBLAS 0.3.21 NO_AFFINITY USE_OPENMP ...".
  std::istringstream words(config());
  std::string name, version;
  words >> name >> version;
  return {name + " " + version, true, true};
}

// Looking up a function among hundreds of libraries takes microseconds and a lock, so each function
// is looked up once.
using SetThreads = void(int);
SetThreads* set_openblas_threads() {
  static SetThreads* const set = library_symbol<SetThreads>("openblas_set_num_threads");
  return set;
}
SetThreads* set_openmp_threads() {
  static SetThreads* const set = library_symbol<SetThreads>("omp_set_num_threads");
  return set;
}

// Returns true if OpenBLAS was built with its own POSIX threads: openblas_get_parallel() returns 1
// for these, and 2 for OpenMP's threads, which LibTorch shares.
bool has_own_threads() {
  static auto* const threading = library_symbol<int()>("openblas_get_parallel");
  return threading != nullptr && threading() == 1;
}

double measured_gflops() {
  constexpr std::int64_t kSize = 512;
  const at::Tensor a = at::ones({kSize, kSize}, at::kFloat);
  double best = 0;
  for (int repeat = 0; repeat < 4; ++repeat) {  // the first one starts the threads
    const Stopwatch watch;
    at::mm(a, a);
    best = std::max(best, 2e-9 * kSize * kSize * kSize / watch.seconds());
  }
  return best;
}

}  // namespace

void set_threads(int threads) {
  at::set_num_threads(threads);
  if (find_blas().openblas && set_openblas_threads() != nullptr) set_openblas_threads()(threads);
}

ThreadSetup set_up_threads(int threads) { return set_up_threads(threads, ProcessGroup::single()); }

ThreadSetup set_up_threads(int threads, const ProcessGroup& group) {
  if (threads > kMostThreads) {
    throw UsageError("--threads",
                     fmt::format("expected at most {}, found {}", kMostThreads, threads));
  }
  keep_freed_memory();
  // An error of LibTorch records a stack trace, which no message shows. When memory has run out,
  // recording fails, and LibTorch 1.13 ends the process. So an empty trace is recorded.
  c10::SetStackTraceFetcher([] { return std::string(); });
  ThreadSetup setup;
  const std::optional<LaunchedProcess> process = find_launched_process();
  const int sharing = !group.is_single() ? group.local_size() : process ? process->local_size : 1;
  setup.threads = threads > 0 ? threads : std::max(1, usable_cores() / sharing);
  const Blas blas = find_blas();
  setup.blas = blas.name;
  if (blas.openblas) {
    const OpenblasKernels kernels = take_better_openblas_kernels();
    setup.blas += " " + kernels.taken;
    setup.own_kernels = kernels.own;
  }
  set_threads(setup.threads);
  setup.gflops = measured_gflops();
  if (!blas.tuned && setup.gflops < kSlowGflops * setup.threads) {
    log_warning("matrix products run at only {:.1f} GFLOP/s with {}: install libopenblas0-openmp",
                setup.gflops, blas.name);
  }
  if (blas.openblas && has_own_threads() && setup.threads > 1) {
    log_warning(
        "{} has threads of its own that compete with LibTorch's: install libopenblas0-openmp "
        "instead of libopenblas0-pthread",
        blas.name);
  }
  return setup;
}

namespace {

// These are the rates of one core of an AMD EPYC (Zen 3): multiply-adds of small float32 matrix
// products, and bytes read from its third-level cache.
constexpr double kProductsPerMicrosecond = 20'000;
constexpr double kBytesPerMicrosecond = 20'000;

thread_local bool inside = false;

struct Inside {
  Inside() : before(inside) { inside = true; }
  ~Inside() { inside = before; }
  Inside(Inside&&) = delete;
  bool before;
};

// While an object lives, matrix products that several threads begin at the same time use one thread
// each. OpenBLAS with its own POSIX threads would queue such products on its own pool; other BLAS
// libraries avoid this themselves.
class OneThreadProducts {
 public:
  OneThreadProducts() {
    static auto* const get = library_symbol<int()>("openblas_get_num_threads");
    if (has_own_threads() && get != nullptr && set_openblas_threads() != nullptr) {
      before_ = get();
      set_openblas_threads()(1);
    }
  }
  ~OneThreadProducts() {
    if (before_ > 0) set_openblas_threads()(before_);
  }
  OneThreadProducts(OneThreadProducts&&) = delete;

 private:
  int before_ = 0;  // previous number of threads; 0: unchanged
};

// While an object lives, LibTorch, MKL and libraries that use OpenMP do the work that this thread
// gives them on this thread alone.
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
  OneThread(OneThread&&) = delete;

  static bool is_possible() {
    return set_openmp_threads() != nullptr && (!at::hasMKL() || set_mkl_threads() != nullptr);
  }

 private:
  using SetMklThreads = int(int);  // returns the previous number
  static SetMklThreads* set_mkl_threads() {
    static SetMklThreads* const set = library_symbol<SetMklThreads>("MKL_Set_Num_Threads_Local");
    return set;
  }
  int before_, before_in_mkl_ = 0;
};

// Divides [0, count) into at most `threads` parts, and calls work(begin, end) for each part. Each
// part is computed by one thread: libraries that work() calls do not use further threads.
void share(std::int64_t count, int threads,
           const std::function<void(std::int64_t begin, std::int64_t end)>& work) {
  if (count <= 0) return;
  const bool with_gradients = at::GradMode::is_enabled();
  const auto run = [&](std::int64_t begin, std::int64_t end) {
    const at::AutoGradMode mode(with_gradients);  // threads do not inherit this mode
    const Inside now;
    work(begin, end);
  };
  if (at::in_parallel_region() || at::get_num_threads() == 1) {
    run(0, count);
    return;
  }
  const OneThreadProducts one_thread_products;
  if (threads > 1 && count > 1) {
    at::parallel_for(0, count, (count + threads - 1) / threads, run);
  } else if (OneThread::is_possible()) {
    const OneThread one_thread;
    run(0, count);
  } else {
    // Inside a parallel region libraries use one thread. A single task would not begin a region, so
    // a second, empty task is added.
    at::parallel_for(0, 2, 1, [&](std::int64_t begin, std::int64_t) {
      if (begin == 0) run(0, count);
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

void for_parts(std::int64_t count, double microseconds,
               const std::function<void(std::int64_t begin, std::int64_t end)>& work) {
  share(count, threads_that_pay(microseconds, at::get_num_threads()), work);
}

void for_pieces(std::int64_t rows, std::int64_t size,
                const std::function<void(std::int64_t first, std::int64_t count)>& work,
                double microseconds) {
  std::atomic<std::int64_t> next{0};
  const std::int64_t pieces = (rows + size - 1) / size;
  const std::int64_t takers =
      std::min<std::int64_t>(pieces, threads_that_pay(microseconds, at::get_num_threads()));
  share(takers, static_cast<int>(takers), [&](std::int64_t, std::int64_t) {
    for (std::int64_t first = next.fetch_add(size); first < rows; first = next.fetch_add(size)) {
      work(first, std::min(size, rows - first));
    }
  });
}

bool in_piece() { return inside; }

}  // namespace ql::machine
