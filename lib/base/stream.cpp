// Reads data so that a signal can stop the reading. Writes data through a buffer, and throws when a
// write fails.

#include "base/stream.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/process.h"

namespace ql {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
// Larger writes bypass the buffer: for them the copy would cost more than the system call.
constexpr std::size_t kLargeWrite = std::size_t{64} << 10;
// A pipe of this size seldom makes the two tools at its ends wait for each other.
constexpr int kPipeBytes = 1 << 20;
constexpr std::chrono::milliseconds kPoll{250};

// read_what_comes() returns when no input comes for kSilence: a busy producer would have written
// again by then. Without such a pause it returns after kTrickle. A person notices neither delay.
constexpr std::chrono::milliseconds kSilence{20}, kTrickle{50};

// Waits for at most `time`. Returns true when input, or its end, has come.
static bool comes_within(int descriptor, std::chrono::milliseconds time) {
  pollfd event = {descriptor, POLLIN, 0};
  return ::poll(&event, 1, static_cast<int>(time.count())) > 0;
}

InputFile::InputFile(const std::string& path) : name_(path == "-" ? "standard input" : path) {
  if (path != "-") {
    // Without O_NONBLOCK, opening a named pipe would wait for its writer, even after a signal that
    // came just before. With it, only read() waits.
    file_ = Descriptor(path, O_RDONLY | O_NONBLOCK, name_);
    ::fcntl(file_, F_SETFL, O_RDONLY);
    descriptor_ = file_;
  }
  look_at_file();
}

InputFile::InputFile(int descriptor, std::string name, std::function<void()> on_stop)
    : name_(std::move(name)), descriptor_(descriptor), on_stop_(std::move(on_stop)) {
  look_at_file();
}

void InputFile::look_at_file() {
  struct stat status = {};
  if (::fstat(descriptor_, &status) != 0) throw SystemError(name_, "open", errno);
  if (S_ISDIR(status.st_mode)) throw SystemError(name_, "open", EISDIR);
  waits_ = !S_ISREG(status.st_mode);
  size_ = status.st_size;
  changed_ = status.st_mtim;
}

// Called at the end of a regular file. A file that another program appends to is read up to its
// present end, but one that has become shorter, or was written over, may never have had the content
// that was read.
void InputFile::check_unchanged() {
  struct stat status = {};
  if (waits_ || ::fstat(descriptor_, &status) != 0) return;
  if (status.st_size < size_) {
    throw Error(name_,
                fmt::format("the file became shorter while it was read: it had {} bytes, and has "
                            "{} now",
                            size_, status.st_size),
                "run the command again when no other program writes this file");
  }
  const bool other_time =
      status.st_mtim.tv_sec != changed_.tv_sec || status.st_mtim.tv_nsec != changed_.tv_nsec;
  if (status.st_size == size_ && other_time) {
    log_warning("{}: another program wrote to this file while it was read", name_);
    changed_ = status.st_mtim;  // one warning is enough
  }
}

void InputFile::look_for_stop() {
  if (!on_stop_) check_for_stop();
  if (stop_signal() == 0 || !on_stop_) return;
  on_stop_();
  on_stop_ = [] {};
}

std::size_t InputFile::read(void* data, std::size_t size) {
  // One call of ::read() transfers less than 2 GiB anyway.
  size = std::min(size, std::size_t{1} << 30);
  for (;;) {
    // The signal may have gone to any thread, and nothing else checks for it while input is always
    // ready.
    if (on_stop_) look_for_stop();
    while (waits_ && !comes_within(descriptor_, kPoll)) look_for_stop();
    const ssize_t got = ::read(descriptor_, data, size);
    if (got == 0 && size > 0) check_unchanged();
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR && errno != EAGAIN) throw SystemError(name_, "read", errno);
    look_for_stop();
  }
}

std::size_t InputFile::read_what_comes(void* data, std::size_t size) {
  if (!waits_) return read_fully(*this, data, size);
  char* bytes = static_cast<char*>(data);
  std::size_t done = read(bytes, size);
  if (done == 0) return 0;
  const auto deadline = Clock::now() + kTrickle;
  while (done < size) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0 || !comes_within(descriptor_, std::min(left, kSilence))) break;
    const std::size_t got = read(bytes + done, size - done);
    if (got == 0) break;
    done += got;
  }
  return done;
}

bool InputFile::has_more(std::chrono::milliseconds wait) const {
  return !waits_ || comes_within(descriptor_, wait);
}

OutputStream::OutputStream(const std::string& path, bool binary, const std::string& option) {
  if (path != "-") {
    // A file cannot replace a device, but standard output may be redirected to the device.
    file_.emplace(path, option.empty()          ? "choose another name"
                        : path == "/dev/stdout" ? fmt::format("use {} -", option)
                                                : fmt::format("use {} - >{}", option, path));
    return;
  }
  if (binary && ::isatty(STDOUT_FILENO) == 1) {
    throw UsageError("standard output", "binary data would go to the terminal",
                     "redirect it to a file or pipe it into the next tool");
  }
  buffer_.reserve(kBufferBytes);
  // This code has no effect where standard output is not a pipe, or when the user has many pipes
  // already.
  if (const int bytes = ::fcntl(STDOUT_FILENO, F_GETPIPE_SZ); bytes >= 0 && bytes < kPipeBytes) {
    ::fcntl(STDOUT_FILENO, F_SETPIPE_SZ, kPipeBytes);
  }
}

OutputStream::~OutputStream() {
  try {
    flush();
  } catch (...) {
    // A successful run calls close(), which reports errors. If flush() fails here, the run is
    // failing already.
  }
}

void OutputStream::write(const void* data, std::size_t size) {
  if (buffer_.size() + size > kBufferBytes || size >= kLargeWrite) write_buffer();
  if (size < kLargeWrite) {
    buffer_.append(static_cast<const char*>(data), size);
    return;
  }
  write_through(data, size);
}

void OutputStream::flush() {
  if (!file_) write_buffer();
}

void OutputStream::write_buffer() {
  // The buffer is emptied first: after an error the destructor must not write the same bytes again.
  std::string pending;
  pending.swap(buffer_);
  write_through(pending.data(), pending.size());
  pending.clear();
  buffer_.swap(pending);
}

void OutputStream::write_through(const void* data, std::size_t size) {
  if (file_) {
    file_->write(data, size);
    return;
  }
  const char* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(STDOUT_FILENO, bytes, size);
    if (written < 0) {
      if (errno == EPIPE) throw BrokenPipe();
      if (errno == EAGAIN) {
        pollfd event = {STDOUT_FILENO, POLLOUT, 0};
        ::poll(&event, 1, static_cast<int>(kPoll.count()));
      } else if (errno != EINTR) {
        throw SystemError("standard output", "write", errno);
      }
      check_for_stop();
      continue;
    }
    bytes += written;
    size -= static_cast<std::size_t>(written);
    // A signal makes a waiting write() return the number of bytes that the pipe has taken, without
    // EINTR.
    if (size > 0) check_for_stop();
  }
}

void OutputStream::close() {
  write_buffer();
  if (file_) {
    file_->commit();
    return;
  }
  // Closing a copy of the descriptor makes network file systems report data that they could not
  // store, and leaves the original open for other users.
  Descriptor copy(::dup(STDOUT_FILENO));
  if (copy < 0 || !copy.close()) throw SystemError("standard output", "close", errno);
}

}  // namespace ql
