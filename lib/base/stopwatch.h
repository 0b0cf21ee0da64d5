// Measures wall time, and reads the clock.
#pragma once

#include <chrono>

namespace ql {

// Runs from its construction on. `before` is added to the time: the seconds of earlier runs.
class Stopwatch {
 public:
  explicit Stopwatch(double before = 0) : before_(before), start_(Clock::now()) {}
  double seconds() const {
    return before_ + std::chrono::duration<double>(Clock::now() - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  double before_;
  Clock::time_point start_;
};

// Returns the seconds since 1970 by the system's clock.
inline double system_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace ql
