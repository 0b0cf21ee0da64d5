// Tests stop signals, each in a process of its own.

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/process.h"
#include "unit/scratch.h"

namespace ql {

using test::in_child;

// Installs the handlers where no signal is ignored. Under nohup, or in the background of a script,
// this test begins with ignored signals, which would stay ignored.
static void install_own_handlers() {
  for (const int number : kStopSignals) ::signal(number, SIG_DFL);
  install_signal_handlers();
}

TEST_CASE("check_for_stop: no signal, no stop") {
  CHECK(stop_signal() == 0);
  CHECK_NOTHROW(check_for_stop());
}

TEST_CASE("kStopSignals: the signals that ask for a stop, and their names") {
  const std::pair<int, const char*> signals[] = {
      {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},   {SIGTERM, "SIGTERM"},
      {SIGUSR1, "SIGUSR1"}, {SIGUSR2, "SIGUSR2"}, {SIGXCPU, "SIGXCPU"},
  };
  CHECK(std::size(signals) == kStopSignals.size());
  for (const auto& [number, name] : signals) {
    CHECK(std::count(kStopSignals.begin(), kStopSignals.end(), number) == 1);
    CHECK(signal_name(number) == name);
    CHECK(Interrupted(number).what() == std::string("stopped by ") + name);
  }
  CHECK(Interrupted(SIGUSR1, "after step 7").what() ==
        std::string("stopped by SIGUSR1 after step 7"));
}

TEST_CASE("install_signal_handlers: the first signal asks, the second ends") {
  for (const int number : kStopSignals) {
    const auto first = in_child([&] {
      install_own_handlers();
      ::raise(number);
      if (stop_signal() != number) return 1;
      try {
        check_for_stop();
      } catch (const Interrupted& stop) {
        return stop.signal_number() == number ? 0 : 2;
      }
      return 3;
    });
    CHECK(first.exit_code == 0);
    const auto second = in_child([&] {
      install_own_handlers();
      ::raise(SIGINT);
      ::raise(number);
      return 0;
    });
    CHECK(second.signal == number);
  }
}

TEST_CASE("StopAtOnce: a call that cannot check for a stop is ended by the first signal") {
  const auto during = in_child([] {
    install_own_handlers();
    const StopAtOnce unheard;
    ::raise(SIGTERM);
    return 0;
  });
  CHECK(during.signal == SIGTERM);
  const auto after = in_child([] {
    install_own_handlers();
    { const StopAtOnce unheard; }
    ::raise(SIGTERM);
    try {
      const StopAtOnce too_late;
    } catch (const Interrupted&) {
      return stop_signal() == SIGTERM ? 0 : 1;
    }
    return 2;
  });
  CHECK(after.exit_code == 0);
}

TEST_CASE("install_signal_handlers: a signal that the parent ignores stays ignored") {
  for (const int number : kStopSignals) {
    const auto ending = in_child([number] {
      ::signal(number, SIG_IGN);
      install_signal_handlers();
      { const StopAtOnce unheard; }
      remove_signal_handlers();
      ::raise(number);
      ::raise(number);
      return stop_signal();
    });
    CHECK(ending.exit_code == 0);
  }
}

TEST_CASE("remove_signal_handlers: without the handlers a signal ends the process at once") {
  for (const int number : kStopSignals) {
    const auto ending = in_child([number] {
      install_own_handlers();
      remove_signal_handlers();
      ::raise(number);
      return 0;
    });
    CHECK(ending.signal == number);
  }
}

// A program that uses up its processor time is asked to stop once. The system repeats the signal
// every second, which may be sooner than a checkpoint is written.
TEST_CASE("install_signal_handlers: SIGXCPU of the system counts once") {
  const auto ending = in_child([] {
    install_own_handlers();
    struct rlimit limit {};
    ::getrlimit(RLIMIT_CPU, &limit);
    limit.rlim_cur = 1;
    ::setrlimit(RLIMIT_CPU, &limit);
    const auto used = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
    const double begin = used();
    while (used() < begin + 3.5) {
    }
    if (stop_signal() != SIGXCPU) return 1;
    ::raise(SIGTERM);
    return 2;
  });
  CHECK(ending.signal == SIGTERM);
}

}  // namespace ql
