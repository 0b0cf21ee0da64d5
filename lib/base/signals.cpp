#include "base/signals.h"

#include <atomic>
#include <csignal>

#include "base/error.h"

namespace ql {

namespace {

std::atomic<int> requested_stop{0};
static_assert(std::atomic<int>::is_always_lock_free, "the signal handler must not lock");

extern "C" void ql_on_stop_signal(int signal_number) {
  int none = 0;
  if (requested_stop.compare_exchange_strong(none, signal_number)) return;
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action = {};
  action.sa_handler = ql_on_stop_signal;
  sigemptyset(&action.sa_mask);
  // Without SA_RESTART a waiting read() returns and can look at stop_signal().
  action.sa_flags = 0;
  for (const int signal_number : {SIGINT, SIGTERM}) {
    struct sigaction before = {};
    sigaction(signal_number, nullptr, &before);
    // nohup and background jobs of a script ignore signals on purpose.
    if (before.sa_handler != SIG_IGN) sigaction(signal_number, &action, nullptr);
  }
}

int stop_signal() { return requested_stop; }

void check_for_stop() {
  if (const int signal_number = stop_signal(); signal_number != 0) throw Interrupted(signal_number);
}

}  // namespace ql
