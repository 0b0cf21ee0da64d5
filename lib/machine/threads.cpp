#include "machine/threads.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/Logging.h>
#include <dlfcn.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "base/launched_process.h"
#include "base/log.h"
#include "base/resources.h"
#include "machine/library_symbol_internal.h"
#include "machine/openblas_kernels_internal.h"

namespace ql::machine {
namespace {

constexpr int kMostThreads = 1024;
// Per thread. The reference BLAS, which has one thread, stays below; a tuned one is far above.
constexpr double kSlowGflops = 10;

struct Blas {
  std::string name;
  bool tuned = false;  // known to be fast
  bool openblas = false;
};

// Libraries beside the one in use may have OpenBLAS's symbols, too (LAPACK): what counts is the
// file that the matrix product itself comes from.
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
  // "OpenBLAS 0.3.21 NO_AFFINITY USE_OPENMP ...": name and version
  std::istringstream words(config());
  std::string name, version;
  words >> name >> version;
  return {name + " " + version, true, true};
}

// Tells whether OpenBLAS was built with POSIX threads of its own (1), and not with OpenMP's (2),
// which LibTorch shares.
bool has_own_threads() {
  static auto* const threading = library_symbol<int()>("openblas_get_parallel");
  return threading != nullptr && threading() == 1;
}

double measured_gflops() {
  constexpr std::int64_t kSize = 512;
  const at::Tensor a = at::ones({kSize, kSize}, at::kFloat);
  double best = 0;
  for (int repeat = 0; repeat < 4; ++repeat) {  // the first one starts the threads
    const auto start = std::chrono::steady_clock::now();
    at::mm(a, a);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, 2e-9 * kSize * kSize * kSize / seconds.count());
  }
  return best;
}

}  // namespace

void keep_freed_memory() {
#if defined(__GLIBC__)
  // glibc allows no larger threshold.
  constexpr int kLargestThreshold = 32 << 20;
  ::mallopt(M_MMAP_THRESHOLD, kLargestThreshold);
  ::mallopt(M_TRIM_THRESHOLD, 16 * kLargestThreshold);
  // Threads that compute slices would each have an arena, and theirs give pages back all the time.
  ::mallopt(M_ARENA_MAX, 1);
#endif
}

void set_threads(int threads) {
  at::set_num_threads(threads);
  auto* set_openblas_threads = library_symbol<void(int)>("openblas_set_num_threads");
  if (find_blas().openblas && set_openblas_threads != nullptr) set_openblas_threads(threads);
}

ThreadSetup set_up_threads(int threads, const ProcessGroup* group) {
  if (threads > kMostThreads) {
    throw UsageError("--threads", fmt::format("{} is more than {}", threads, kMostThreads));
  }
  keep_freed_memory();
  // An error of LibTorch has the calls that led to it, which no message shows. Where memory has run
  // out there is none to collect them, and LibTorch 1.13 ends the process.
  c10::SetStackTraceFetcher([] { return std::string(); });
  ThreadSetup setup;
  const std::optional<LaunchedProcess> process = find_launched_process();
  const int sharing = group != nullptr ? group->local_size() : process ? process->local_size : 1;
  setup.threads = threads > 0 ? threads : std::max(1, usable_cores() / sharing);
  const Blas blas = find_blas();
  setup.blas = blas.name;
  if (blas.openblas) setup.blas += " " + take_better_openblas_kernels();
  set_threads(setup.threads);
  setup.gflops = measured_gflops();
  if (!blas.tuned && setup.gflops < kSlowGflops * setup.threads) {
    log_warning("matrix products run at only {:.1f} GFLOP/s ({}): install libopenblas0-openmp",
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

OneThreadProducts::OneThreadProducts() {
  // Looking a function up among hundreds of libraries takes microseconds and a lock.
  static auto* const get = library_symbol<int()>("openblas_get_num_threads");
  static auto* const set = library_symbol<void(int)>("openblas_set_num_threads");
  if (has_own_threads() && get != nullptr && set != nullptr) {
    before_ = get();
    set(1);
  }
}

OneThreadProducts::~OneThreadProducts() {
  if (before_ > 0) library_symbol<void(int)>("openblas_set_num_threads")(before_);
}

}  // namespace ql::machine
