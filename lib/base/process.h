// Runs child processes and reads their output, and handles signals that ask this process to stop.
#pragma once

#include <array>
#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ql {

// Signals that ask a program to stop: the first one asks it to finish in good order, the second one
// ends the process at once.

// A user sends SIGINT and a closed terminal SIGHUP. Schedulers send SIGTERM, SIGUSR1, SIGUSR2 or
// SIGXCPU some time before they kill, and the system sends SIGXCPU when ulimit -t is used up. A
// signal that was ignored when the program started (nohup, background jobs of a script) stays
// ignored.
inline constexpr std::array<int, 6> kStopSignals{SIGHUP,  SIGINT,  SIGUSR1,
                                                 SIGUSR2, SIGXCPU, SIGTERM};

// Returns "SIGTERM" and the like.
std::string signal_name(int signal_number);

// Installs the handlers, and unblocks stop signals that were held back until now. Temporary files
// of AtomicFile and AtomicFolder are removed by their destructors when the tool unwinds; after a
// second signal they remain under their temporary names.
void install_signal_handlers();

// Gives the stop signals and SIGALRM their default actions again, except those that are ignored.
void remove_signal_handlers();

// Returns the signal that asked us to stop, or 0.
int stop_signal();

// Throws Interrupted when a stop was asked for. Long loops call it once per block or step.
void check_for_stop();

// While it lives, the first signal ends the process at once: long calls of other libraries cannot
// check stop_signal(). Temporary names remain, as after a second signal. Throws Interrupted when a
// stop was requested already.
class StopAtOnce {
 public:
  StopAtOnce();
  ~StopAtOnce();
  StopAtOnce(StopAtOnce&&) = delete;

 private:
  void restore();
  std::array<bool, kStopSignals.size()> replaced_{};
};

// These start other programs.

class InputFile;

// Returns the folder of the running program's file, with links resolved.
std::filesystem::path program_folder();

// Replaces this process by `program` (a path: PATH is not searched) with the arguments, the last
// one null, and our environment. Returns only by throwing: SystemError, or Interrupted when a stop
// was requested. Stop signals are held back until the new program calls install_signal_handlers():
// one that comes while its libraries load is not lost, and does not end it silently.
[[noreturn]] void exec_program(const std::filesystem::path& program, char** arguments);

struct ChildResult {
  int exit_code = 0;   // 128 + n when signal n ended it
  std::string output;  // its complete standard output
};

// Runs `program` (a path: PATH is not searched) with these arguments, without a shell and with our
// environment, and waits for its end. Its standard input is empty, its standard error is ours.
// Throws SystemError when it cannot be started. When we are asked to stop, the program is stopped,
// too, and Interrupted is thrown.
ChildResult run_child(const std::filesystem::path& program,
                      const std::vector<std::string>& arguments);

// Runs `program` in the same way, with `input` as its standard input, and calls read() with its
// output as it comes. A stop that we are asked for is passed on to the program, once, and read()
// gets the output that follows. Returns when the program has ended with exit code 0. Throws
// AlreadyReported when it has failed, and Error when a signal ended it. An exception of read()
// closes the program's output and is thrown again.
void run_filter(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                std::string_view input, const std::function<void(InputFile& output)>& read);

}  // namespace ql
