// Shared by the fuzz targets. A target is one function that gives arbitrary bytes to one parser.
// libFuzzer calls it with bytes that it makes, replay.cpp with the content of files.
//
// A parser may only throw ql::Error. Every other exception passes through the target and ends the
// program, as a failed require() does: both are findings.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

// Every target defines this function. Its name is libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace ql::fuzz {

// Returns true when work() threw no Error.
template <typename Work>
bool accepted(const Work& work) {
  try {
    work();
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Targets count here how often a parser accepted an input. A replay in which that never happens
// would test nothing but refusals.
inline std::size_t taken_inputs = 0;

// Reports a finding unless `holds`. The condition must be true for everything that a parser
// accepts.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "finding: this does not hold: %s\n", what);
  std::abort();
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// An input whose first byte decides how the rest is used: unchanged, with repaired checksums, ...
struct Input {
  unsigned mode = 0;
  std::string_view bytes;
};
inline Input input_of(const std::uint8_t* data, std::size_t size) {
  return size == 0 ? Input() : Input{data[0], text_of(data + 1, size - 1)};
}

// Removes the first `count` bytes, or fewer if there are fewer, from `bytes` and returns them.
inline std::string_view take(std::string_view& bytes, std::size_t count) {
  const std::string_view taken = bytes.substr(0, count);
  bytes.remove_prefix(taken.size());
  return taken;
}

// Splits "a\0b" into {"a", "b"}: arguments and names, which cannot hold a NUL.
inline std::vector<std::string> split_at_nul(std::string_view bytes) {
  std::vector<std::string> parts;
  while (!bytes.empty()) {
    parts.emplace_back(take(bytes, bytes.find('\0')));
    take(bytes, 1);
  }
  return parts;
}

// A file in memory, for readers that need a name.
class MemoryFile {
 public:
  MemoryFile()
      : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)),
        name_("/proc/self/fd/" + std::to_string(descriptor_)) {
    if (descriptor_ < 0) throw std::runtime_error("memfd_create failed");
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  // Replaces the content.
  void put(std::string_view bytes) {
    if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) !=
                                                static_cast<ssize_t>(bytes.size())) {
      throw std::runtime_error("cannot write to memory");
    }
  }
  const std::string& name() const { return name_; }

 private:
  int descriptor_;
  std::string name_;
};

}  // namespace ql::fuzz
