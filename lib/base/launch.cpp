#include "base/launch.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/launched_process.h"
#include "base/log.h"
#include "base/number.h"
#include "base/signals.h"
#include "base/spawn_internal.h"

namespace ql {

namespace {

using Clock = std::chrono::steady_clock;

// Holds the process number of the one that started us.
constexpr const char* kLauncher = "QL_LAUNCHER";
// Holds the number of an open file, which all processes share: the errors that were told, each
// with a NUL byte behind.
constexpr const char* kToldErrors = "QL_TOLD_ERRORS";
// Once one process has failed, the others get this time to end by themselves.
constexpr std::chrono::seconds kGrace{5};

// A port that nobody uses now. Another program may take it before our first process does, which
// then says so; no launcher can rule that out.
int free_port() {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket < 0) throw SystemError("--processes", "open a socket", errno);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket, any, size) != 0 || ::getsockname(socket, any, &size) != 0) {
    throw SystemError("--processes", "find a free port", errno);
  }
  return ntohs(address.sin_port);
}

// Locks a file for this process. Where that fails, an error is told twice, and nothing worse.
void set_lock(int file, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  uninterrupted([&] { return ::fcntl(file, F_SETLKW, &lock); });
}

std::string told_errors(int file) {
  struct stat status = {};
  if (::fstat(file, &status) != 0) return "";
  std::string errors(static_cast<std::size_t>(status.st_size), '\0');
  const ssize_t size = ::pread(file, errors.data(), errors.size(), 0);
  errors.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  return errors;
}

class Processes {
 public:
  explicit Processes(int count)
      : pids_(static_cast<std::size_t>(count)), told_(::memfd_create("told errors", 0)) {
    internal::Spawn request;
    request.program = fs::read_symlink("/proc/self/exe").string();
    // A NUL byte ends each argument; the first is the program's name.
    const std::vector<std::string> words = split(read_file("/proc/self/cmdline"), '\0');
    if (words.size() < 2) throw Error("--processes", "the system hides this program's arguments");
    request.arguments.assign(words.begin() + 1, words.end() - 1);
    std::vector<std::string> common = common_variables(count);
    common.push_back(fmt::format("{}={}", kToldErrors, static_cast<int>(told_)));
    request.group = 0;
    for (int rank = 0; rank < count; ++rank) {
      request.environment = common;
      for (const char* name : {"RANK", "LOCAL_RANK"}) {
        request.environment.push_back(fmt::format("{}={}", name, rank));
      }
      pids_[static_cast<std::size_t>(rank)] = start(request);
      // A group of their own, so that a key pressed in the terminal reaches them through us alone,
      // once.
      if (rank == 0) request.group = pids_.front();
    }
  }

  int wait() {
    while (running_ > 0) {
      look_for_ends();
      pass_on_signal();
      if (deadline_ && Clock::now() > *deadline_) {
        signal_all(SIGKILL);
        deadline_.reset();
      }
      ::poll(nullptr, 0, kPatience);
    }
    return exit_code_;
  }

 private:
  static constexpr int kPatience = 10;  // milliseconds until the next look

  static std::vector<std::string> common_variables(int count) {
    static const std::array<std::string, 9> kOurs{
        "RANK=",        "WORLD_SIZE=",  "LOCAL_RANK=",  "LOCAL_WORLD_SIZE=", "MASTER_ADDR=",
        "MASTER_PORT=", "TORCHELASTIC", "QL_LAUNCHER=", "QL_TOLD_ERRORS="};
    std::vector<std::string> variables;
    for (std::string& variable : internal::environment()) {
      const bool ours = std::any_of(kOurs.begin(), kOurs.end(), [&](const std::string& start) {
        return variable.compare(0, start.size(), start) == 0;
      });
      if (!ours) variables.push_back(std::move(variable));
    }
    for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) {
      variables.push_back(fmt::format("{}={}", name, count));
    }
    variables.emplace_back("MASTER_ADDR=127.0.0.1");
    variables.push_back(fmt::format("MASTER_PORT={}", free_port()));
    variables.push_back(fmt::format("{}={}", kLauncher, ::getpid()));
    return variables;
  }

  pid_t start(const internal::Spawn& request) {
    try {
      const pid_t pid = internal::spawn(request);
      ++running_;
      return pid;
    } catch (...) {
      signal_all(SIGKILL);
      throw;
    }
  }

  void look_for_ends() {
    for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
      int status = 0;
      if (pids_[rank] == 0 || ::waitpid(pids_[rank], &status, WNOHANG) != pids_[rank]) continue;
      pids_[rank] = 0;
      --running_;
      if (const int code = internal::exit_code_of(status); code != 0 && exit_code_ == 0) {
        exit_code_ = code;
        report(static_cast<int>(rank), status);
      }
    }
  }

  // The first that failed; the others only follow.
  void report(int rank, int status) {
    const int asked = stop_signal();
    if (asked != 0 && exit_code_ == 128 + asked) return;
    const std::string name = process_name(rank, static_cast<int>(pids_.size()));
    const std::string end = WIFSIGNALED(status)
                                ? fmt::format("was ended by signal {} ({})", WTERMSIG(status),
                                              ::strsignal(WTERMSIG(status)))
                                : fmt::format("ended with exit code {}", WEXITSTATUS(status));
    // A process that a signal has stopped in good order has reported it.
    const bool stopped =
        WIFEXITED(status) && std::find(kStopSignals.begin(), kStopSignals.end(),
                                       WEXITSTATUS(status) - 128) != kStopSignals.end();
    if (WIFSIGNALED(status) || (!stopped && told_errors(told_).empty())) {
      log_line(LogLevel::kQuiet, fmt::format("error: {} {}; the others are ended, too", name, end));
    }
    signal_all(SIGTERM);
    deadline_ = Clock::now() + kGrace;
  }

  void pass_on_signal() {
    if (passed_on_ || stop_signal() == 0) return;
    signal_all(stop_signal());
    passed_on_ = true;
  }

  void signal_all(int number) const {
    for (const pid_t pid : pids_) {
      if (pid > 0) ::kill(pid, number);
    }
  }

  std::vector<pid_t> pids_;  // by rank; 0: ended
  Descriptor told_;          // the file of kToldErrors
  int running_ = 0;
  int exit_code_ = 0;
  bool passed_on_ = false;
  std::optional<Clock::time_point> deadline_;
};

}  // namespace

bool run_processes(int count) {
  // A launcher's shell for one process (srun --pty) has its variables, too.
  if (const std::optional<LaunchedProcess> process = find_launched_process();
      process && process->size > 1) {
    if (count > 1 && count != process->size) {
      throw UsageError("--processes",
                       fmt::format("{}, but the launcher has started {}", count, process->size),
                       "leave it out: the launcher says how many there are");
    }
    return false;
  }
  if (count <= 1) return false;
  const int code = Processes(count).wait();
  if (const int asked = stop_signal(); asked != 0 && code == 128 + asked) throw Interrupted(asked);
  if (code != 0) throw AlreadyReported(code);
  return true;
}

bool told_by_another(const std::string& words) {
  const char* number = std::getenv(kToldErrors);
  if (number == nullptr) return false;
  const auto file = static_cast<int>(parse_integer(number).value_or(-1));
  set_lock(file, F_WRLCK);
  const std::string before = told_errors(file), entry = words + '\0';
  const bool told = before.rfind(entry, 0) == 0 || before.find('\0' + entry) != std::string::npos;
  // A write that fails leaves the error to be told again.
  if (!told && ::pwrite(file, entry.data(), entry.size(), static_cast<off_t>(before.size())) < 0) {
    errno = 0;
  }
  set_lock(file, F_UNLCK);
  return told;
}

void join_launcher() {
  const char* launcher = std::getenv(kLauncher);
  if (launcher == nullptr) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // It may have ended before the line above.
  if (parse_integer(launcher) != std::int64_t{::getppid()}) std::_Exit(128 + SIGKILL);
  set_signal_launcher(::getppid());
}

}  // namespace ql
