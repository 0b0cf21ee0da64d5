// Finds installed programs and presets, and limits how long waiting threads spin.

#include "installed.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>

#include "base/error.h"
#include "base/process.h"
#include "base/strings.h"

// Threads that wait for each other spin for this long, and then release their cores. Most serial
// work between two parallel sections of a step takes less time. So threads seldom need to be woken,
// which takes 40 microseconds.
constexpr double kSpinMicroseconds = 800;

static void spin(int times, const std::atomic<int>& changes) {
  for (int i = 0; i < times && changes.load(std::memory_order_acquire) == 0; ++i) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
  }
}

// Sets the number of spins of GNU OpenMP; one spin takes 10 to 60 nanoseconds. By default threads
// spin for several milliseconds. That slows other programs down. It also slows this program down:
// after a thread has used up its time slice by spinning, the system makes it wait for the next
// slice.
static void bound_spinning() {
  // The user's own setting takes precedence.
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  using Clock = std::chrono::steady_clock;
  constexpr int kSpins = 500;
  const std::atomic<int> changes{0};
  std::chrono::duration<double, std::micro> fastest(kSpinMicroseconds);
  for (int repeat = 0; repeat < 3; ++repeat) {  // another program may interrupt a measurement
    const Clock::time_point start = Clock::now();
    spin(kSpins, changes);
    fastest = std::min<std::chrono::duration<double, std::micro>>(fastest, Clock::now() - start);
  }
  const double spins = kSpins * kSpinMicroseconds / std::max(fastest.count(), 0.1);
  ::setenv("GOMP_SPINCOUNT", fmt::format("{:.0f}", spins).c_str(), 0);
}

// Throws Error if a limit of this process is too small for loading LibTorch. The dynamic loader
// would then end the program with its own message, or OpenBLAS would ask for memory in an endless
// loop before main() begins.
static void require_room_for_libtorch() {
  struct Need {
    int resource;
    const char* limit;
    std::int64_t bytes;
  };
  // With LibTorch 1.13 on two cores, an evaluation of a tiny network needs more than 977 MiB and at
  // most 1172 MiB of address space, and more than 391 MiB and at most 586 MiB of data.
  for (const Need& need : {Need{RLIMIT_AS, "ulimit -v", std::int64_t{1200} << 20},
                           Need{RLIMIT_DATA, "ulimit -d", std::int64_t{600} << 20}}) {
    rlimit limit = {};
    if (::getrlimit(static_cast<__rlimit_resource>(need.resource), &limit) != 0) continue;
    if (limit.rlim_cur >= static_cast<rlim_t>(need.bytes)) continue;
    throw ql::Error(
        need.limit,
        fmt::format("the limit is {}, but LibTorch needs {} before it computes anything",
                    ql::human_bytes(static_cast<std::int64_t>(limit.rlim_cur)),
                    ql::human_bytes(need.bytes)),
        "raise the limit, or limit memory by a control group");
  }
}

std::filesystem::path libexec_program(const std::string& name) {
  require_room_for_libtorch();
  bound_spinning();
  // LibTorch of Debian 13 loads UCX, which installs its debugger as the handler of SIGHUP. Then
  // main() cannot see that this signal was ignored at the start, as under nohup(1). The user's own
  // setting takes precedence.
  ::setenv("UCX_DEBUG_SIGNO", "0", 0);
  // QL_LIBEXEC is relative to the program's folder.
  std::filesystem::path path = (ql::program_folder() / QL_LIBEXEC / name).lexically_normal();
  if (std::filesystem::exists(path)) return path;
  throw ql::Error(
      path.string(), "is missing",
      "install a build with LibTorch (QL_TORCH=ON), and keep the folders bin and libexec together");
}

namespace fs = std::filesystem;

static std::vector<fs::path> preset_folders() {
  std::vector<fs::path> folders;
  if (const char* own = std::getenv("QL_PRESETS")) {
    for (const std::string& folder : ql::split(own, ':')) {
      if (!folder.empty()) folders.emplace_back(folder);
    }
  }
  // QL_PRESETS_FOLDER is relative to the program's folder.
  folders.push_back((ql::program_folder() / QL_PRESETS_FOLDER).lexically_normal());
  return folders;
}

std::vector<std::string> preset_names() {
  std::error_code unknown;
  std::vector<std::string> names;
  for (const fs::path& folder : preset_folders()) {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, unknown)) {
      if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

fs::path preset_file(const std::string& text) {
  std::error_code unknown;
  const bool is_path = text.find('/') != std::string::npos || fs::exists(text, unknown);
  const bool is_run = fs::path(text).filename() == text && fs::is_directory(text, unknown) &&
                      !fs::exists(fs::path(text) / "model.json", unknown);
  if (is_path && !is_run) return text;
  std::vector<std::string> folders;
  for (const fs::path& folder : preset_folders()) {
    for (const fs::path& file : {folder / text, folder / (text + ".json")}) {
      if (fs::is_regular_file(file, unknown)) return file;
    }
    folders.push_back(folder.string());
  }
  if (is_path) return text;
  const std::string near = ql::nearest(text, preset_names());
  throw ql::Error(text, "no such file, and no preset has this name",
                  near.empty() ? fmt::format("presets are in {}", fmt::join(folders, ", "))
                               : fmt::format("did you mean '{}'?", near));
}
