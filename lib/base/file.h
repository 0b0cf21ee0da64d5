// Files that are whole or absent, and reads that check everything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/descriptor.h"

namespace ql {

namespace fs = std::filesystem;

// Reads a whole file. Throws SystemError; a file above `limit` bytes is an Error.
std::string read_file(const fs::path& path, std::int64_t limit = INT64_MAX);

// Claims the name of base/temporary_name.h that a file or folder has until it is complete.
struct TemporaryPath {
  // Removes what dead processes of this machine left there for the same `final_path`, and what a
  // former process with our number left. Throws Error when there is no such folder.
  explicit TemporaryPath(const fs::path& final_path);
  ~TemporaryPath() { release(); }
  TemporaryPath(const TemporaryPath&) = delete;
  TemporaryPath& operator=(const TemporaryPath&) = delete;
  // Removes what has the name still, and lets others of this process have it.
  void release() noexcept;

  fs::path path;  // empty after release()
};

// Writes under a temporary name in the same folder; commit() fsyncs, renames and fsyncs the folder.
// Without commit() the destructor removes the temporary file: nothing half-written is ever seen
// under the final name. Symbolic links are followed. Every error is a SystemError that names the
// final path; a device, a pipe or an open file (/dev/stdout) is an Error that advises
// `device_advice`.
class AtomicFile {
 public:
  explicit AtomicFile(const fs::path& path,
                      const std::string& device_advice = "choose another name");
  void write(const void* data, std::size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  std::int64_t size() const { return size_; }
  void commit();

 private:
  fs::path path_;
  TemporaryPath temporary_;
  Descriptor descriptor_;
  std::int64_t size_ = 0;
};

void write_file_atomically(const fs::path& path, std::string_view text);

// A folder that appears whole: fill temporary(), then commit() fsyncs every file in it and swaps it
// into place. Without commit() the destructor removes temporary().
class AtomicFolder {
 public:
  explicit AtomicFolder(const fs::path& path);
  const fs::path& temporary() const { return temporary_.path; }
  // The fsyncs of commit(), which may take minutes: for those who want to look at the final name
  // once more right before they commit. No file may be written after it.
  void sync();
  // An existing folder of that name is replaced in one rename and then removed. Without `replace`
  // it is an Error that there is one, unless it is empty, whenever it came there. On any error the
  // old folder stays.
  void commit(bool replace = true);

 private:
  void take_back(bool replaced);

  fs::path path_;
  TemporaryPath temporary_;
  bool synced_ = false, committed_ = false;
};

// A read-only memory map of a whole file. An empty file maps to an empty view.
class MappedFile {
 public:
  explicit MappedFile(const fs::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  const unsigned char* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::string_view view() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  const unsigned char* data_ = nullptr;
  std::size_t size_ = 0;
};

// Sequential input: a file, or standard input for "-".
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  // Reads from the `descriptor`, which must stay open. `name` is for messages. A signal that asks
  // us to stop calls `on_stop` once, and reading goes on to the end.
  InputFile(int descriptor, std::string name, std::function<void()> on_stop);
  // Reads up to `size` bytes; 0 only at the end. Throws SystemError, and Interrupted when a signal
  // asks us to stop while it waits for a pipe.
  std::size_t read(void* data, std::size_t size);
  // Reads exactly `size` bytes or returns how many there were before the end.
  std::size_t read_fully(void* data, std::size_t size);
  // Does the same for a regular file. From a pipe it takes what has come, once nothing more comes
  // for a moment, or little by little for longer: the reader need not wait for a full buffer.
  // Returns at least 1, and 0 only at the end.
  std::size_t read_what_comes(void* data, std::size_t size);
  // True when more has come already, or the end; always of a regular file.
  bool has_more() const;
  // True for what is no regular file: reading may have to wait.
  bool is_pipe() const { return waits_; }
  // "train.txt" or "standard input": for error messages.
  const std::string& name() const { return name_; }

 private:
  void look_at_file();
  void look_for_stop();

  std::string name_;
  Descriptor file_;  // none for standard input
  int descriptor_ = STDIN_FILENO;
  bool waits_ = false;
  std::function<void()> on_stop_;
};

// Standard output for data: buffered, checked, BrokenPipe on EPIPE. Refuses a terminal when
// `binary` (UsageError with advice).
class OutputStream {
 public:
  explicit OutputStream(bool binary);
  ~OutputStream();
  OutputStream(const OutputStream&) = delete;
  OutputStream& operator=(const OutputStream&) = delete;
  void write(const void* data, std::size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void flush();
  // flush() and check; call at the end of a successful run. (The destructor flushes, too, but has
  // to keep errors for itself.)
  void close();

 private:
  void write_through(const void* data, std::size_t size);

  std::string buffer_;
};

// True when `path` is relative and stays inside its folder (no "..", no root): the rule for every
// path found inside a file.
bool is_inside_path(const fs::path& path);

}  // namespace ql
