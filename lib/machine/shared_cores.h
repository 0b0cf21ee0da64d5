// Leaves cores to other programs that want them.
//
// Threads that wait for each other after every product lose more by a busy core than the core is
// worth: all wait for the one that has to share it. With a thread less nobody waits. Use it for
// work whose bits do not depend on the number of threads. A BLAS's products are not such work.
#pragma once

namespace ql::machine {

// Decides how many threads compute.
class CoreSharing {
 public:
  // `most`: where no other program wants the cores.
  explicit CoreSharing(int most) : most_(most), threads_(most) {}

  int threads() const { return threads_; }
  // Says that in the last `seconds` the threads were ready but without a core for `waited` seconds,
  // all together. One thread less computes while that is much. One more is tried after a time that
  // doubles with every try in vain.
  void note(double seconds, double waited);

 private:
  int most_, threads_;
  double calm_ = 0;  // seconds since threads waited, or since the last change
  double patience_ = kLeastPatience;

  static constexpr double kLeastPatience = 1, kMostPatience = 16;  // seconds
};

// Does what set_up_threads() of machine/threads.h does. Where `threads` is 0, give_way() changes
// the number from now on, up to the one that was found. It leaves a number that a user has chosen.
void set_up_shared_threads(int threads);

// Call it between pieces of work in the thread that computes. It looks four times a second. Without
// set_up_shared_threads(), and where the system does not tell how long threads wait, it does
// nothing.
void give_way();

}  // namespace ql::machine
