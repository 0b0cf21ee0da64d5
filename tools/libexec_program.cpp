#include "libexec_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>

#include "base/child.h"
#include "base/error.h"

namespace {

// Threads that wait for each other spin for this long, and then give their cores away. Serial work
// between two pieces of a step is mostly shorter, and waking a thread takes 40 microseconds.
constexpr double kSpinMicroseconds = 800;

void spin(int times, const std::atomic<int>& changes) {
  for (int i = 0; i < times && changes.load(std::memory_order_acquire) == 0; ++i) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
  }
}

// GNU OpenMP counts its spins, and one takes 10 to 60 nanoseconds. Left alone it spins for several
// milliseconds, which other programs would pay for, and then so do we: a thread that has spun for
// all of its time waits for its next turn when there is work.
void bound_spinning() {
  // A user's choice stays.
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  using Clock = std::chrono::steady_clock;
  constexpr int kSpins = 500;
  const std::atomic<int> changes{0};
  std::chrono::duration<double, std::micro> fastest(kSpinMicroseconds);
  for (int repeat = 0; repeat < 3; ++repeat) {  // another program may take the core meanwhile
    const Clock::time_point start = Clock::now();
    spin(kSpins, changes);
    fastest = std::min<std::chrono::duration<double, std::micro>>(fastest, Clock::now() - start);
  }
  const double spins = kSpins * kSpinMicroseconds / std::max(fastest.count(), 0.1);
  ::setenv("GOMP_SPINCOUNT", fmt::format("{:.0f}", spins).c_str(), 0);
}

}  // namespace

std::filesystem::path libexec_program(const std::string& name) {
  // QL_LIBEXEC is relative to the folder of the tools.
  bound_spinning();
  std::filesystem::path path = (ql::program_folder() / QL_LIBEXEC / name).lexically_normal();
  if (std::filesystem::exists(path)) return path;
  throw ql::Error(path.string(), "is not there",
                  "this needs an installation that was built with LibTorch (QL_TORCH=ON); move bin "
                  "and libexec together");
}
