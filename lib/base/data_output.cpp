#include "base/data_output.h"

#include <fmt/format.h>

namespace ql {

namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

}  // namespace

DataOutput::DataOutput(const std::string& path, bool binary) {
  if (path == "-") {
    stream_.emplace(binary);
  } else {
    // No file can appear there, but what is written to standard output may go there.
    file_.emplace(path, path == "/dev/stdout" ? "use -o -" : fmt::format("use -o - >{}", path));
  }
}

void DataOutput::write(const void* data, std::size_t size) {
  if (stream_) {
    stream_->write(data, size);
    return;
  }
  buffer_.append(static_cast<const char*>(data), size);
  if (buffer_.size() >= kBufferBytes) write_buffer();
}

void DataOutput::flush() {
  if (stream_) stream_->flush();
}

void DataOutput::close() {
  if (stream_) {
    stream_->close();
    return;
  }
  write_buffer();
  file_->commit();
}

void DataOutput::write_buffer() {
  file_->write(buffer_);
  buffer_.clear();
}

}  // namespace ql
