#include "base/signals.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>

#include "base/error.h"

namespace ql {

namespace {

std::atomic<int> requested_stop{0};
std::atomic<int> requests{0};
static_assert(std::atomic<int>::is_always_lock_free, "the signal handler must not lock");

// A signal that comes just before a read or a write begins does not interrupt it. So from the first
// one on an alarm does, every second.
extern "C" void ql_on_alarm(int /*signal_number*/) { ::alarm(1); }

extern "C" void ql_on_stop_signal(int signal_number, siginfo_t* info, void* /*context*/) {
  int none = 0;
  const bool first = requested_stop.compare_exchange_strong(none, signal_number);
  if (first) ::alarm(1);
  // The system repeats SIGXCPU with every further second of processor time.
  if (!first && signal_number == SIGXCPU && info->si_code == SI_KERNEL) return;
  if (++requests == 1) return;
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

// Without SA_RESTART a waiting read() returns and can look at stop_signal().
void install_stop_handler(int signal_number) {
  struct sigaction action = {};
  action.sa_sigaction = ql_on_stop_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_SIGINFO;
  sigaction(signal_number, &action, nullptr);
}

struct sigaction current_action(int signal_number) {
  struct sigaction action = {};
  sigaction(signal_number, nullptr, &action);
  return action;
}

bool has_stop_handler(int signal_number) {
  const struct sigaction action = current_action(signal_number);
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == ql_on_stop_signal;
}

sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal_number : kStopSignals) sigaddset(&signals, signal_number);
  return signals;
}

}  // namespace

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

HeldStopSignals::HeldStopSignals() {
  const sigset_t signals = stop_signals();
  ::pthread_sigmask(SIG_BLOCK, &signals, &before_);
}

HeldStopSignals::~HeldStopSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

void remove_signal_handlers() {
  std::signal(SIGALRM, SIG_DFL);
  for (const int signal_number : kStopSignals) {
    if (has_stop_handler(signal_number)) std::signal(signal_number, SIG_DFL);
  }
}

StopAtOnce::StopAtOnce() {
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
    // Signals that a parent ignores stay ignored, and handlers of others stay.
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
