#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <climits>
#include <new>

#include "base/decompressor_internal.h"
#include "base/error.h"
#include "base/provenance.h"

namespace ql {
namespace {

[[noreturn]] void fail(const std::string& name, const char* format, const char* reason) {
  throw FormatError(name, fmt::format("the {} data is damaged ({})", format, reason),
                    fmt::format("test it with {} -t, and copy or make it again", format));
}

[[noreturn]] void fail_in_trailing_data(const std::string& name, const char* format) {
  throw FormatError(
      name, fmt::format("trailing data: the {} data ends before the file does", format),
      fmt::format("{} -dc FILE writes what it holds; copy or make the file again", format));
}

class Gzip : public Decompressor {
 public:
  explicit Gzip(std::string name) : name_(std::move(name)) {
    // Accepts gzip alone, whose checksums zlib compares then.
    constexpr int kLargestWindow = 15, kGzipOnly = 16;
    if (::inflateInit2(&stream_, kLargestWindow + kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~Gzip() override { ::inflateEnd(&stream_); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  std::size_t unpack(std::string_view& packed, char* content, std::size_t size) override {
    for (std::size_t done = 0;;) {
      if (complete_ && !begins_member(packed)) return done;
      const std::size_t taken = std::min<std::size_t>(packed.size(), UINT_MAX);
      const std::size_t room = std::min<std::size_t>(size - done, UINT_MAX);
      // zlib only reads there.
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
      stream_.avail_in = static_cast<uInt>(taken);
      stream_.next_out = reinterpret_cast<Bytef*>(content + done);
      stream_.avail_out = static_cast<uInt>(room);
      const int result = ::inflate(&stream_, Z_NO_FLUSH);
      packed.remove_prefix(taken - stream_.avail_in);
      done += room - stream_.avail_out;
      if (result == Z_MEM_ERROR) throw std::bad_alloc();
      complete_ = result == Z_STREAM_END;
      // zlib returns Z_BUF_ERROR when it had nothing to do.
      if (!complete_ && result != Z_OK && result != Z_BUF_ERROR) fail_inside();
      if (done == size || (!complete_ && packed.empty())) return done;
    }
  }
  bool complete() const override { return complete_; }
  const char* format() const override { return "gzip"; }

 private:
  // Another member may follow one, or zeros up to the end of the file: tapes and block devices pad
  // with them, and gzip accepts it.
  bool begins_member(std::string_view& packed) {
    const std::size_t zeros = std::min(packed.find_first_not_of('\0'), packed.size());
    padded_ = padded_ || zeros > 0;
    packed.remove_prefix(zeros);
    if (packed.empty()) return false;
    constexpr char kFirstByte = '\x1F';
    if (padded_ || packed.front() != kFirstByte) fail_in_trailing_data(name_, format());
    ::inflateReset(&stream_);
    complete_ = false;
    ++members_;
    return true;
  }

  [[noreturn]] void fail_inside() const {
    const std::string_view reason = stream_.msg != nullptr ? stream_.msg : "no reason given";
    if (members_ > 0 && reason == "incorrect header check") fail_in_trailing_data(name_, format());
    fail(name_, format(), reason.data());
  }

  std::string name_;
  z_stream stream_ = {};
  bool complete_ = false, padded_ = false;
  int members_ = 0;  // before this one
};

class Zstd : public Decompressor {
 public:
  explicit Zstd(std::string name) : name_(std::move(name)), context_(ZSTD_createDCtx()) {
    if (!context_) throw std::bad_alloc();
  }

  std::size_t unpack(std::string_view& packed, char* content, std::size_t size) override {
    ZSTD_inBuffer in = {packed.data(), packed.size(), 0};
    ZSTD_outBuffer out = {content, size, 0};
    do {
      // After a frame zstd would wait for the next one, which need not come.
      if (complete_ && in.pos == in.size) break;
      const std::size_t result = ZSTD_decompressStream(context_.get(), &out, &in);
      if (ZSTD_isError(result) != 0) fail_with(result);
      complete_ = result == 0;
      any_frame_ = any_frame_ || complete_;
    } while (out.pos < out.size && in.pos < in.size);
    packed.remove_prefix(in.pos);
    return out.pos;
  }
  bool complete() const override { return complete_; }
  const char* format() const override { return "zstd"; }

 private:
  struct Free {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };

  [[noreturn]] void fail_with(std::size_t result) const {
    const ZSTD_ErrorCode code = ZSTD_getErrorCode(result);
    if (code == ZSTD_error_frameParameter_windowTooLarge) {
      throw FormatError(name_, "the zstd data needs a window of more than 128 MiB",
                        fmt::format("give it through a pipe: zstd -dc --long=31 FILE | {} ... -",
                                    invoked_tool().empty() ? "PROGRAM" : invoked_tool()));
    }
    if (code == ZSTD_error_prefix_unknown && any_frame_) fail_in_trailing_data(name_, format());
    fail(name_, format(), ZSTD_getErrorName(result));
  }

  std::string name_;
  std::unique_ptr<ZSTD_DCtx, Free> context_;
  bool complete_ = false, any_frame_ = false;
};

}  // namespace

std::unique_ptr<Decompressor> make_decompressor(FileKind kind, const std::string& name) {
  if (kind == FileKind::kGzip) return std::make_unique<Gzip>(name);
  if (kind == FileKind::kZstd) return std::make_unique<Zstd>(name);
  return nullptr;
}

}  // namespace ql
