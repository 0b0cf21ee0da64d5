// Reads and writes data in sequence: files, pipes, standard input and standard output.
#pragma once

#include <time.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/atomic_file.h"
#include "base/file.h"

namespace ql {

// Calls input.read() until `size` bytes are read or the input ends. Returns the number of bytes
// read.
template <typename Input>
std::size_t read_fully(Input& input, void* data, std::size_t size) {
  char* const bytes = static_cast<char*>(data);
  std::size_t done = 0;
  while (done < size) {
    const std::size_t got = input.read(bytes + done, size - done);
    if (got == 0) break;
    done += got;
  }
  return done;
}

// Reads a file, or standard input for "-".
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  // Reads from `descriptor`, which must stay open. `name` is for messages. When a signal asks us to
  // stop, `on_stop` is called once, and reading continues to the end.
  InputFile(int descriptor, std::string name, std::function<void()> on_stop);
  // Reads up to `size` bytes and returns their number, which is 0 only at the end. Throws
  // SystemError, and Error at the end of a regular file that has become shorter since it was
  // opened. Warns if such a file was written over. Without `on_stop`, throws Interrupted when a
  // signal asks us to stop while read() waits for a pipe.
  std::size_t read(void* data, std::size_t size);
  // Reads a regular file like read_fully(). For a pipe this function returns when nothing more
  // comes for 20 ms, and at the latest 50 ms after the first bytes. So the caller need not wait for
  // a full buffer. Returns the number of bytes read, which is 0 only at the end.
  std::size_t read_what_comes(void* data, std::size_t size);
  // Returns true when more data or the end has come already, or comes within `wait`; always true
  // for a regular file.
  bool has_more(std::chrono::milliseconds wait = {}) const;
  // Returns true for everything except a regular file: reading may have to wait.
  bool is_pipe() const { return waits_; }
  // Returns "train.txt" or "standard input", for error messages.
  const std::string& name() const { return name_; }

 private:
  void look_at_file();
  void look_for_stop();
  void check_unchanged();

  std::string name_;
  Descriptor file_;  // none for standard input
  int descriptor_ = STDIN_FILENO;
  bool waits_ = false;
  std::int64_t size_ = 0;  // when the file was opened, like `changed_`
  timespec changed_ = {};
  std::function<void()> on_stop_;
};

// Writes the data of a tool to standard output, or to a file that an option names, buffered and
// checked. Throws BrokenPipe on EPIPE.
class OutputStream {
 public:
  // "-" is standard output. Throws UsageError if `binary` data would go to a terminal there. Any
  // other file appears when close() returns, and never without close(). `option` is the
  // command-line option that set `path`, or "" if that option does not accept "-". Throws Error for
  // a device, with advice to give "-" to `option`.
  OutputStream(const std::string& path, bool binary, const std::string& option = "-o");
  ~OutputStream();
  OutputStream(OutputStream&&) = delete;
  void write(const void* data, std::size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  // Passes the written data on to the reader of standard output. Does nothing for a file, which has
  // no reader yet.
  void flush();
  // Writes the buffered data and gives a file its final name. Throws if that fails. Call it at the
  // end of a successful run. The destructor only calls flush(), and cannot report errors.
  void close();

 private:
  void write_buffer();
  void write_through(const void* data, std::size_t size);

  std::optional<AtomicFile> file_;
  std::string buffer_;
};

}  // namespace ql
