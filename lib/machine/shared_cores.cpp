#include "machine/shared_cores.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/resources.h"
#include "machine/threads.h"

namespace ql::machine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kInterval{250};
// Of one core. A loop of another program takes half of the core that it shares with a thread.
constexpr double kMuchWaiting = 0.2;

struct Watch {
  CoreSharing sharing;
  Clock::time_point time;
  double waited;
};

std::optional<Watch>& watch() {
  static std::optional<Watch> only;
  return only;
}

}  // namespace

void CoreSharing::note(double seconds, double waited) {
  if (waited > kMuchWaiting * seconds) {
    // The first threads that have to go are no try in vain.
    if (threads_ < most_) patience_ = std::min(kMostPatience, 2 * patience_);
    threads_ = std::max(1, threads_ - 1);
    calm_ = 0;
    return;
  }
  calm_ += seconds;
  if (threads_ == most_) {
    if (calm_ > kMostPatience) patience_ = kLeastPatience;
  } else if (calm_ >= patience_) {
    ++threads_;
    calm_ = 0;
  }
}

void set_up_shared_threads(int threads) {
  const int most = set_up_threads(threads).threads;
  const std::optional<double> waited = seconds_without_core();
  watch().reset();
  if (threads == 0 && waited) watch().emplace(Watch{CoreSharing(most), Clock::now(), *waited});
}

void give_way() {
  if (!watch()) return;
  const Clock::time_point now = Clock::now();
  if (now - watch()->time < kInterval) return;
  const double waited = seconds_without_core().value_or(watch()->waited);
  CoreSharing& sharing = watch()->sharing;
  const int before = sharing.threads();
  sharing.note(std::chrono::duration<double>(now - watch()->time).count(),
               waited - watch()->waited);
  if (sharing.threads() != before) set_threads(sharing.threads());
  watch()->time = now;
  // Threads that have ended are not counted any more.
  watch()->waited = seconds_without_core().value_or(waited);
}

}  // namespace ql::machine
