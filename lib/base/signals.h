// SIGINT and SIGTERM: the first asks to stop in good order, the second ends the process at once.
#pragma once

#include <array>

namespace ql {

// Installs the handlers. Temporary files of AtomicFile and AtomicFolder are removed by their
// destructors when the tool unwinds; a second signal leaves only temporary names behind.
void install_signal_handlers();

// The signal that asked us to stop, or 0.
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
  std::array<bool, 2> replaced_{};  // SIGINT, SIGTERM
};

}  // namespace ql
