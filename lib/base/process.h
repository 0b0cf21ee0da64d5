// Runs child processes and reads their output, and handles signals that ask this process to stop.
#pragma once

#include <array>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

namespace ql {

// These signals ask a program to stop. The first signal asks the program to finish in good order,
// and the second one ends the process at once.

// A user sends SIGINT, and a closed terminal sends SIGHUP. Schedulers send SIGTERM, SIGUSR1,
// SIGUSR2 or SIGXCPU some time before they kill a job, and the system sends SIGXCPU when ulimit -t
// is used up. A signal that was ignored when the program started (nohup, background jobs of a
// script) stays ignored.
inline constexpr std::array<int, 6> kStopSignals{SIGHUP,  SIGINT,  SIGUSR1,
                                                 SIGUSR2, SIGXCPU, SIGTERM};
// Returns these signals as a set.
sigset_t stop_signals();

// Returns "SIGTERM" and the like.
std::string signal_name(int signal_number);

// Installs the handlers, and unblocks stop signals that exec_program() has blocked. After the first
// signal the tool throws Interrupted, and the destructors of AtomicFile and AtomicFolder remove
// their temporary files. After a second signal these files remain under their temporary names.
void install_signal_handlers();

// Gives SIGALRM, and the stop signals that have our handler, their default actions again.
void remove_signal_handlers();

// Returns the signal that asked us to stop, or 0.
int stop_signal();

// Throws Interrupted when a stop was asked for. Long loops call it once per block or step.
void check_for_stop();

// While a StopAtOnce exists, the first stop signal ends the process at once, because long calls of
// other libraries cannot check stop_signal(). Temporary files then remain, as after a second
// signal. The constructor throws Interrupted when a stop was requested already.
class StopAtOnce {
 public:
  StopAtOnce();
  ~StopAtOnce();
  StopAtOnce(StopAtOnce&&) = delete;

 private:
  void restore();
  std::array<bool, kStopSignals.size()> replaced_{};
};

// Returns the folder of the running program's file, with links resolved.
std::filesystem::path program_folder();

// Replaces this process by `program` (a path: PATH is not searched) with `arguments`, which end
// with a null pointer, and with our environment. Does not return. Throws SystemError, or
// Interrupted when a stop was requested. Stop signals stay blocked until the new program calls
// install_signal_handlers(), so that a signal during the loading of libraries is not lost, and does
// not end the program silently.
[[noreturn]] void exec_program(const std::filesystem::path& program, char** arguments);

// Runs `program` (a path: PATH is not searched) with these arguments, without a shell and with our
// environment, and returns its output. Its standard input is empty, and its standard error is ours.
// A signal that asks us to stop is passed on to the program. Throws SystemError when the program
// cannot be started, AlreadyReported when it has failed or SIGPIPE has ended it, Interrupted when
// the signal passed on has ended it, and Error when another signal has ended it.
std::string output_of(const std::filesystem::path& program,
                      const std::vector<std::string>& arguments);

}  // namespace ql
