#include "machine/shared_cores.h"

#include <sched.h>

#include <chrono>
#include <thread>

#include "base/resources.h"
#include "torch_doctest.h"

namespace ql::machine {
namespace {

// Runs `seconds` in which the threads wait for a core for this part of the time whenever more than
// `free` of them compute. Returns the seconds that they did.
double run(CoreSharing& sharing, double seconds, int free, double part) {
  double crowded = 0;
  for (double time = 0; time < seconds; time += 0.25) {
    const bool waits = sharing.threads() > free;
    crowded += waits ? 0.25 : 0;
    sharing.note(0.25, waits ? 0.25 * part : 0);
  }
  return crowded;
}

}  // namespace

TEST_CASE("threads leave the cores that others keep busy, and come back when these are gone") {
  CoreSharing sharing(4);
  run(sharing, 60, 4, 0.5);
  CHECK(sharing.threads() == 4);
  run(sharing, 0.5, 2, 0.5);
  CHECK(sharing.threads() == 2);
  // While the others stay, few tries are in vain.
  CHECK(run(sharing, 120, 2, 0.5) < 4);
  run(sharing, 60, 4, 0.5);
  CHECK(sharing.threads() == 4);
}

TEST_CASE("one thread stays, and short waiting changes nothing") {
  CoreSharing sharing(2);
  run(sharing, 10, 0, 1);
  CHECK(sharing.threads() == 1);
  CoreSharing calm(2);
  run(calm, 60, 0, 0.1);
  CHECK(calm.threads() == 2);
}

TEST_CASE(
    "after a long time without others the first one that comes is not held against the next") {
  CoreSharing sharing(2);
  run(sharing, 120, 1, 0.5);
  run(sharing, 60, 2, 0.5);
  run(sharing, 0.25, 1, 0.5);
  CHECK(sharing.threads() == 1);
  run(sharing, 1.25, 2, 0.5);
  CHECK(sharing.threads() == 2);
}

TEST_CASE("the time without a core is that of threads that share one") {
  const std::optional<double> before = seconds_without_core();
  if (!before) return;  // a system that does not tell
  cpu_set_t all, one;
  REQUIRE(::sched_getaffinity(0, sizeof all, &all) == 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  }
  const auto spin = [&one] {
    ::sched_setaffinity(0, sizeof one, &one);
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(600);
    while (std::chrono::steady_clock::now() < end) {
    }
  };
  // A thread that has ended is not counted any more, so the sum is read before that.
  std::thread other(spin);
  spin();
  const double waited = *seconds_without_core() - *before;
  other.join();
  ::sched_setaffinity(0, sizeof all, &all);
  CHECK(waited > 0.2);
}

}  // namespace ql::machine
