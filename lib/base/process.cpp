// Handles signals that ask the process to stop, and starts child processes with posix_spawn.

#include "base/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/stream.h"

namespace ql {

static std::atomic<int> requested_stop{0};
static std::atomic<int> requests{0};
static_assert(std::atomic<int>::is_always_lock_free, "the signal handler must not lock");

extern "C" {

// A signal that comes just before a read or a write begins does not interrupt the call. After the
// first signal an alarm every second therefore interrupts such calls.
static void ql_on_alarm(int /*signal_number*/) { ::alarm(1); }

static void ql_on_stop_signal(int signal_number, siginfo_t* info, void* /*context*/) {
  int none = 0;
  const bool first = requested_stop.compare_exchange_strong(none, signal_number);
  if (first) ::alarm(1);
  // The system repeats SIGXCPU with every further second of processor time. A repetition is not
  // another request to stop.
  if (!first && signal_number == SIGXCPU && info->si_code == SI_KERNEL) return;
  if (++requests == 1) return;
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

}  // extern "C"

// Without SA_RESTART a waiting read() returns, and its caller can look at stop_signal().
static void install_stop_handler(int signal_number) {
  struct sigaction action = {};
  action.sa_sigaction = ql_on_stop_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_SIGINFO;
  sigaction(signal_number, &action, nullptr);
}

static struct sigaction current_action(int signal_number) {
  struct sigaction action = {};
  sigaction(signal_number, nullptr, &action);
  return action;
}

static bool has_stop_handler(int signal_number) {
  const struct sigaction action = current_action(signal_number);
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == ql_on_stop_signal;
}

sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal_number : kStopSignals) sigaddset(&signals, signal_number);
  return signals;
}

std::string signal_name(int signal_number) {
  const char* name = ::sigabbrev_np(signal_number);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal_number);
}

void install_signal_handlers() {
  struct sigaction alarm = {};
  alarm.sa_handler = ql_on_alarm;
  sigemptyset(&alarm.sa_mask);
  sigaction(SIGALRM, &alarm, nullptr);
  for (const int signal_number : kStopSignals) {
    if (current_action(signal_number).sa_handler != SIG_IGN) install_stop_handler(signal_number);
  }
  const sigset_t signals = stop_signals();
  ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

void remove_signal_handlers() {
  std::signal(SIGALRM, SIG_DFL);
  for (const int signal_number : kStopSignals) {
    if (has_stop_handler(signal_number)) std::signal(signal_number, SIG_DFL);
  }
}

StopAtOnce::StopAtOnce() {
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
    // A signal that the parent ignores stays ignored, and another library's handler stays.
    replaced_[i] = has_stop_handler(kStopSignals[i]);
    if (replaced_[i]) std::signal(kStopSignals[i], SIG_DFL);
  }
  if (stop_signal() == 0) return;
  restore();
  check_for_stop();
}

StopAtOnce::~StopAtOnce() { restore(); }

void StopAtOnce::restore() {
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
    if (replaced_[i]) install_stop_handler(kStopSignals[i]);
  }
}

int stop_signal() { return requested_stop; }

void check_for_stop() {
  if (const int signal_number = stop_signal(); signal_number != 0) throw Interrupted(signal_number);
}

}  // namespace ql

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX leaves it to the program

namespace ql {

// Starts a program with our environment, our standard error and an empty standard input. `output`
// becomes the read end of a pipe from its standard output. Throws SystemError.
static pid_t spawn(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                   Descriptor& output) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw SystemError(program.string(), "open a pipe", errno);
  }
  output = Descriptor(ends[0]);
  const Descriptor write_end(ends[1]);
  std::vector<std::string> words{program.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, write_end, STDOUT_FILENO);
  // run_tool() ignores these signals, and exec would keep that. This restores the default action.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  sigaddset(&defaults, SIGXFSZ);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);

  pid_t child = 0;
  const int problem =
      ::posix_spawn(&child, program.c_str(), &actions, &attributes, pointers.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (problem != 0) throw SystemError(program.string(), "start this program", problem);
  return child;
}

// Waits for a child and returns its status. Calls on_signal() whenever a signal interrupts the
// wait. Throws SystemError where SIGCHLD is ignored, because the system then forgets how a child
// has ended.
static int status_of(pid_t child, const std::filesystem::path& program,
                     const std::function<void()>& on_signal) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) {
      throw SystemError(program.string(), "find out how this program ended", errno);
    }
    on_signal();
  }
  return status;
}

std::filesystem::path program_folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

void exec_program(const std::filesystem::path& program, char** arguments) {
  const sigset_t signals = stop_signals();
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, &signals, &before);
  if (stop_signal() == 0) ::execv(program.c_str(), arguments);
  const int problem = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  check_for_stop();
  throw SystemError(program.string(), "start this program", problem);
}

std::string output_of(const std::filesystem::path& program,
                      const std::vector<std::string>& arguments) {
  Descriptor read_end;
  const pid_t child = spawn(program, arguments, read_end);
  // The signal is passed on only once: any further one would end the child at once.
  bool passed_on = false;
  const auto pass_on = [&] {
    if (stop_signal() != 0 && !std::exchange(passed_on, true)) ::kill(child, stop_signal());
  };
  InputFile output(read_end, program.filename().string(), pass_on);
  std::string text;
  std::array<char, 4096> block{};
  try {
    while (const std::size_t count = output.read(block.data(), block.size())) {
      text.append(block.data(), count);
    }
  } catch (const std::exception&) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    throw;
  }
  const int status = status_of(child, program, pass_on);
  if (WIFSIGNALED(status)) {
    // The child may have had no handler yet for the stop signal that we passed on, so that the
    // signal ended the child.
    if (WTERMSIG(status) == stop_signal()) check_for_stop();
    if (WTERMSIG(status) == SIGPIPE) throw AlreadyReported(128 + SIGPIPE);  // as a shell sees it
    throw Error(program.filename().string(),
                fmt::format("this program was ended by signal {} ({})", WTERMSIG(status),
                            ::strsignal(WTERMSIG(status))),
                WTERMSIG(status) == SIGKILL
                    ? fmt::format("the usual reason is that memory ran out: {}", kMemoryRemedy)
                    : "");
  }
  if (const int code = WEXITSTATUS(status); code != 0) throw AlreadyReported(code);
  return text;
}

}  // namespace ql
