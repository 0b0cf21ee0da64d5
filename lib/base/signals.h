// Signals that ask a program to stop: the first one asks to stop in good order, the second one ends
// the process at once.
#pragma once

#include <array>
#include <csignal>
#include <string>

namespace ql {

// A user sends SIGINT, a closed terminal SIGHUP; schedulers send SIGTERM, SIGUSR1, SIGUSR2 or
// SIGXCPU some time before they kill. The system sends SIGXCPU when ulimit -t is used up. A signal
// that was ignored when the program started (nohup, jobs in the background of a script) stays
// ignored.
inline constexpr std::array<int, 6> kStopSignals{SIGHUP,  SIGINT,  SIGUSR1,
                                                 SIGUSR2, SIGXCPU, SIGTERM};

// Returns "SIGTERM" and the like.
std::string signal_name(int signal_number);

// Installs the handlers, and lets stop signals through that were held back until now. Temporary
// files of AtomicFile and AtomicFolder are removed by their destructors when the tool unwinds; a
// second signal leaves only temporary names after it.
void install_signal_handlers();

// While it lives, stop signals wait. A program that replaces this one by exec inherits that, until
// its install_signal_handlers(): so a signal that comes while its libraries load is not lost, and
// does not end it without a word.
class HeldStopSignals {
 public:
  HeldStopSignals();
  ~HeldStopSignals();
  HeldStopSignals(const HeldStopSignals&) = delete;
  HeldStopSignals& operator=(const HeldStopSignals&) = delete;

 private:
  sigset_t before_{};
};

// Gives the stop signals and SIGALRM their default actions again, except those that are ignored.
void remove_signal_handlers();

// Returns the signal that asked us to stop, or 0.
int stop_signal();

// Throws Interrupted when a stop was asked for. Long loops call it once per block or step.
void check_for_stop();

// While it lives, the first signal ends the process at once: for long calls of other libraries,
// which cannot ask stop_signal(). Like a second signal it leaves temporary names behind. Throws
// Interrupted when a stop was asked for already.
class StopAtOnce {
 public:
  StopAtOnce();
  ~StopAtOnce();
  StopAtOnce(const StopAtOnce&) = delete;
  StopAtOnce& operator=(const StopAtOnce&) = delete;

 private:
  void restore();
  std::array<bool, kStopSignals.size()> replaced_{};
};

}  // namespace ql
