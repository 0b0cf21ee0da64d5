// Numbers that stand one after the other in a file, read or written through a small buffer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "base/little_endian.h"
#include "base/random_access_file.h"
#include "base/signals.h"

namespace ql::foreign {

// Little-endian numbers, from front to back.
template <typename Number>
class NumberArray {
 public:
  NumberArray() = default;
  // `count` numbers from byte `offset` of the file, which must outlive this object.
  NumberArray(const RandomAccessFile& file, std::int64_t offset, std::int64_t count)
      : file_(&file), offset_(offset), left_(count) {}
  // Must not be called more than `count` times.
  Number next() {
    if (at_ == buffer_.size()) fill();
    at_ += sizeof(Number);
    return load_little_endian<Number>(&buffer_[at_ - sizeof(Number)]);
  }

 private:
  void fill() {
    check_for_stop();
    constexpr std::int64_t kAtOnce = 8192;
    const std::int64_t count = std::min(left_, kAtOnce);
    if (count == 0) throw std::logic_error("more numbers asked for than the file has");
    buffer_.resize(static_cast<std::size_t>(count) * sizeof(Number));
    file_->read(offset_, buffer_.data(), buffer_.size());
    offset_ += static_cast<std::int64_t>(buffer_.size());
    left_ -= count;
    at_ = 0;
  }

  const RandomAccessFile* file_ = nullptr;
  std::int64_t offset_ = 0, left_ = 0;
  std::string buffer_;
  std::size_t at_ = 0;
};

// NewFile for many small pieces.
class BufferedFile {
 public:
  explicit BufferedFile(std::unique_ptr<NewFile> file) : file_(std::move(file)) {}
  void write(std::string_view bytes) {
    buffer_ += bytes;
    if (buffer_.size() >= kBufferBytes) flush();
  }
  template <typename Number>
  void write_number(Number number) {
    char bytes[sizeof(Number)];
    store_little_endian(bytes, number);
    write({bytes, sizeof bytes});
  }
  // Call it at the end of good work.
  void close() {
    flush();
    file_->close();
  }

 private:
  static constexpr std::size_t kBufferBytes = std::size_t{256} << 10;
  void flush() {
    file_->write(buffer_.data(), buffer_.size());
    buffer_.clear();
  }
  std::unique_ptr<NewFile> file_;
  std::string buffer_;
};

}  // namespace ql::foreign
