#include <doctest/doctest.h>
#include <signal.h>

#include "base/error.h"
#include "base/signals.h"
#include "unit/scratch.h"

namespace ql {

using test::in_child;

TEST_CASE("no signal, no stop") {
  CHECK(stop_signal() == 0);
  CHECK_NOTHROW(check_for_stop());
}

TEST_CASE("the first signal asks, the second ends") {
  for (const int number : {SIGINT, SIGTERM}) {
    const auto first = in_child([&] {
      install_signal_handlers();
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
      install_signal_handlers();
      ::raise(SIGINT);
      ::raise(number);
      return 0;
    });
    CHECK(second.signal == number);
  }
}

TEST_CASE("a call that cannot ask is ended by the first signal") {
  const auto during = in_child([] {
    install_signal_handlers();
    const StopAtOnce unheard;
    ::raise(SIGTERM);
    return 0;
  });
  CHECK(during.signal == SIGTERM);
  const auto after = in_child([] {
    install_signal_handlers();
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

TEST_CASE("a signal that the parent ignores stays ignored") {
  const auto ending = in_child([] {
    ::signal(SIGINT, SIG_IGN);
    install_signal_handlers();
    ::raise(SIGINT);
    ::raise(SIGINT);
    return stop_signal();
  });
  CHECK(ending.exit_code == 0);
}

}  // namespace ql
