// Owns open files, sockets and ends of pipes, and repeats system calls that a signal interrupts
// before they have done anything.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>

namespace ql {

// Makes the call again for as long as it fails with EINTR. close() must not be called so.
template <typename Call>
auto uninterrupted(const Call& call) -> decltype(call()) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

// Closes what it stands for at its end; a negative number stands for nothing.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  // Opens a file that children do not inherit. Throws SystemError(where, action, errno).
  Descriptor(const std::filesystem::path& path, int flags, const std::string& where,
             const std::string& action = "open");
  // A class with a descriptor in it cannot move, because others may point into it.
  Descriptor(Descriptor&&) = delete;
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { close(); }
  operator int() const { return number_; }
  // Writes everything or throws SystemError(where, "write", errno).
  void write(const void* data, std::size_t size, const std::string& where) const;
  // Returns false, with errno, when what was written may not have arrived. On Linux close() has
  // closed the descriptor even when it was interrupted.
  bool close() {
    const int number = std::exchange(number_, -1);
    return number < 0 || ::close(number) == 0 || errno == EINTR;
  }

 private:
  int number_;
};

}  // namespace ql
