#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <climits>
#include <new>

#include "base/error.h"
#include "shard/zstd_frame_internal.h"
#include "text/decompressor_internal.h"

namespace ql::text {
namespace {

// The third byte is the only method that gzip has.
constexpr std::string_view kGzipMagic = "\x1F\x8B\x08";
constexpr std::string_view kZstdMagic = "\x28\xB5\x2F\xFD";

[[noreturn]] void fail(const std::string& name, const char* format, const char* reason) {
  throw FormatError(name, fmt::format("the {} data is damaged ({})", format, reason),
                    fmt::format("test it with {} -t, and copy or make it again", format));
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

  std::size_t unpack(std::string_view& packed, char* text, std::size_t size) override {
    std::size_t done = 0;
    for (;;) {
      if (whole_ && packed.empty()) return done;
      if (whole_) ::inflateReset(&stream_);
      whole_ = false;
      const std::size_t taken = std::min<std::size_t>(packed.size(), UINT_MAX);
      const std::size_t room = std::min<std::size_t>(size - done, UINT_MAX);
      // zlib only reads there.
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
      stream_.avail_in = static_cast<uInt>(taken);
      stream_.next_out = reinterpret_cast<Bytef*>(text + done);
      stream_.avail_out = static_cast<uInt>(room);
      const int result = ::inflate(&stream_, Z_NO_FLUSH);
      packed.remove_prefix(taken - stream_.avail_in);
      done += room - stream_.avail_out;
      if (result == Z_MEM_ERROR) throw std::bad_alloc();
      whole_ = result == Z_STREAM_END;
      // zlib says Z_BUF_ERROR when it had nothing to do.
      if (!whole_ && result != Z_OK && result != Z_BUF_ERROR) {
        fail(name_, format(), stream_.msg != nullptr ? stream_.msg : "no reason given");
      }
      if (done == size || (!whole_ && packed.empty())) return done;
    }
  }
  bool whole() const override { return whole_; }
  const char* format() const override { return "gzip"; }

 private:
  std::string name_;
  z_stream stream_ = {};
  bool whole_ = false;
};

class Zstd : public Decompressor {
 public:
  explicit Zstd(std::string name) : name_(std::move(name)), context_(ZSTD_createDCtx()) {
    if (!context_) throw std::bad_alloc();
  }

  std::size_t unpack(std::string_view& packed, char* text, std::size_t size) override {
    ZSTD_inBuffer in = {packed.data(), packed.size(), 0};
    ZSTD_outBuffer out = {text, size, 0};
    do {
      // Behind a frame zstd would wait for the next one, which need not come.
      if (whole_ && in.pos == in.size) break;
      const std::size_t result = ZSTD_decompressStream(context_.get(), &out, &in);
      if (ZSTD_isError(result) != 0) fail_with(result);
      whole_ = result == 0;
    } while (out.pos < out.size && in.pos < in.size);
    packed.remove_prefix(in.pos);
    return out.pos;
  }
  bool whole() const override { return whole_; }
  const char* format() const override { return "zstd"; }

 private:
  [[noreturn]] void fail_with(std::size_t result) const {
    if (ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge) {
      throw FormatError(name_, "the zstd data needs a window of more than 128 MiB",
                        "give it through a pipe: zstd -dc --long=31 FILE | qltok ... -");
    }
    fail(name_, format(), ZSTD_getErrorName(result));
  }

  std::string name_;
  std::unique_ptr<ZSTD_DCtx, shard::FreeContext> context_;
  bool whole_ = false;
};

// True when one of the two is the beginning of the other.
bool agree(std::string_view head, std::string_view magic) {
  const std::size_t size = std::min(head.size(), magic.size());
  return head.substr(0, size) == magic.substr(0, size);
}

}  // namespace

bool may_be_compressed(std::string_view head) {
  return agree(head, kGzipMagic) || agree(head, kZstdMagic);
}

std::unique_ptr<Decompressor> make_decompressor(std::string_view head, const std::string& name) {
  if (head.size() >= kGzipMagic.size() && agree(head, kGzipMagic)) {
    return std::make_unique<Gzip>(name);
  }
  if (head.size() >= kZstdMagic.size() && agree(head, kZstdMagic)) {
    return std::make_unique<Zstd>(name);
  }
  return nullptr;
}

}  // namespace ql::text
