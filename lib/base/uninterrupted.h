// System calls that a signal may interrupt before they have done anything.
#pragma once

#include <unistd.h>

#include <cerrno>

namespace ql {

// Makes the call again for as long as it fails with EINTR. Not for close().
template <typename Call>
auto uninterrupted(const Call& call) -> decltype(call()) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

// close(), which has closed the descriptor on Linux even when it was interrupted.
inline int close_descriptor(int descriptor) {
  const int result = ::close(descriptor);
  return result != 0 && errno == EINTR ? 0 : result;
}

}  // namespace ql
