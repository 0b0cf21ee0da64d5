// Replaces the system's fsync(), so that tests can act, or make it fail, while files are written to
// the disk. For one source of a test program.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <utility>

namespace ql::test {

// fsync() calls this with the descriptor, and fails with the error number that it returns, if that
// is not 0.
inline std::function<int(int)> before_fsync;

// Sets before_fsync while it lives.
class BeforeFsync {
 public:
  explicit BeforeFsync(std::function<int(int)> call) { before_fsync = std::move(call); }
  ~BeforeFsync() { before_fsync = nullptr; }
  BeforeFsync(const BeforeFsync&) = delete;
  BeforeFsync& operator=(const BeforeFsync&) = delete;
};

}  // namespace ql::test

extern "C" int fsync(int descriptor) {
  const int error = ql::test::before_fsync ? ql::test::before_fsync(descriptor) : 0;
  if (error == 0) return static_cast<int>(::syscall(SYS_fsync, descriptor));
  errno = error;
  return -1;
}
