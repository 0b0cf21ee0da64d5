#include "base/signals.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>

#include "base/error.h"

namespace ql {

namespace {

std::atomic<int> requested_stop{0};
static_assert(std::atomic<int>::is_always_lock_free, "the signal handler must not lock");

constexpr std::array<int, 2> kStopSignals{SIGINT, SIGTERM};

// A signal that comes just before a read or a write begins does not interrupt it. So from the first
// one on an alarm does, every second.
extern "C" void ql_on_alarm(int /*signal_number*/) { ::alarm(1); }

extern "C" void ql_on_stop_signal(int signal_number) {
  int none = 0;
  if (requested_stop.compare_exchange_strong(none, signal_number)) {
    ::alarm(1);
    return;
  }
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

void install_handler(int signal_number, void (*handler)(int) = ql_on_stop_signal) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  // Without SA_RESTART a waiting read() returns and can look at stop_signal().
  action.sa_flags = 0;
  sigaction(signal_number, &action, nullptr);
}

}  // namespace

void install_signal_handlers() {
  install_handler(SIGALRM, ql_on_alarm);
  for (const int signal_number : kStopSignals) {
    struct sigaction before = {};
    sigaction(signal_number, nullptr, &before);
    // nohup and background jobs of a script ignore signals on purpose.
    if (before.sa_handler != SIG_IGN) install_handler(signal_number);
  }
}

StopAtOnce::StopAtOnce() {
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
    struct sigaction action = {};
    sigaction(kStopSignals[i], nullptr, &action);
    // Signals that a parent ignores stay ignored, and handlers of others stay.
    replaced_[i] = action.sa_handler == ql_on_stop_signal;
    if (replaced_[i]) std::signal(kStopSignals[i], SIG_DFL);
  }
  if (stop_signal() == 0) return;
  restore();
  check_for_stop();
}

StopAtOnce::~StopAtOnce() { restore(); }

void StopAtOnce::restore() {
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
    if (replaced_[i]) install_handler(kStopSignals[i]);
  }
}

int stop_signal() { return requested_stop; }

void check_for_stop() {
  if (const int signal_number = stop_signal(); signal_number != 0) throw Interrupted(signal_number);
}

}  // namespace ql
