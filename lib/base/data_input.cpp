// Examines the first bytes of an input, and decompresses gzip and zstd data with zlib and libzstd.

#include "base/data_input.h"

#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <climits>
#include <new>

#include "base/error.h"
#include "base/process.h"

namespace ql {

// When a pipe pauses for this long after some text, the file's kind is decided by the text so far.
constexpr std::chrono::milliseconds kPatience{1000};

// A decompressor joins the contents of consecutive members or frames, as the programs gzip and zstd
// do.
class Decompressor {
 public:
  virtual ~Decompressor() = default;
  // Writes up to `size` bytes to `content` and removes the consumed bytes from `packed`. Returns
  // the number of bytes written. If these are fewer than `size`, `packed` is used up and the
  // decompressor holds no more content. Throws FormatError.
  virtual std::size_t unpack(std::string_view& packed, char* content, std::size_t size) = 0;
  // Returns true where the content may end: after a complete member or frame.
  virtual bool complete() const = 0;
  // Returns "gzip" or "zstd".
  virtual const char* format() const = 0;
};

namespace {

[[noreturn]] void fail(const std::string& name, const char* format, const char* reason) {
  throw FormatError(name, fmt::format("the {} data is damaged ({})", format, reason),
                    fmt::format("test the file with {} -t, and copy or make it again", format));
}

[[noreturn]] void fail_in_trailing_data(const std::string& name, const char* format) {
  throw FormatError(
      name, fmt::format("trailing data: the {} data ends before the file does", format),
      fmt::format("copy or make the file again, or save the readable part: {} -dc FILE > OTHER",
                  format));
}

class Gzip : public Decompressor {
 public:
  explicit Gzip(std::string name) : name_(std::move(name)) {
    // With the sum of these, zlib accepts only gzip data and verifies its checksums.
    constexpr int kLargestWindow = 15, kGzipOnly = 16;
    if (::inflateInit2(&stream_, kLargestWindow + kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~Gzip() override { ::inflateEnd(&stream_); }
  Gzip(Gzip&&) = delete;

  std::size_t unpack(std::string_view& packed, char* content, std::size_t size) override {
    for (std::size_t done = 0;;) {
      if (complete_ && !begins_member(packed)) return done;
      const std::size_t taken = std::min<std::size_t>(packed.size(), UINT_MAX);
      const std::size_t room = std::min<std::size_t>(size - done, UINT_MAX);
      // zlib does not write to next_in, although the type of next_in is not const.
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
      stream_.avail_in = static_cast<uInt>(taken);
      stream_.next_out = reinterpret_cast<Bytef*>(content + done);
      stream_.avail_out = static_cast<uInt>(room);
      const int result = ::inflate(&stream_, Z_NO_FLUSH);
      packed.remove_prefix(taken - stream_.avail_in);
      done += room - stream_.avail_out;
      if (result == Z_MEM_ERROR) throw std::bad_alloc();
      complete_ = result == Z_STREAM_END;
      // Z_BUF_ERROR is harmless: zlib had no input or no room for output.
      if (!complete_ && result != Z_OK && result != Z_BUF_ERROR) fail_inside();
      if (done == size || (!complete_ && packed.empty())) return done;
    }
  }
  bool complete() const override { return complete_; }
  const char* format() const override { return "gzip"; }

 private:
  // Returns true when another member follows. Skips zeros, which must reach up to the end of the
  // file: tapes and block devices pad files with zeros, and gzip accepts such files.
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
  int members_ = 0;  // gzip members that ended before the current one
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
      // After a complete frame zstd would wait for another one, which need not come.
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
                        "decompress it to a file or a pipe: zstd -dc --long=31 FILE");
    }
    if (code == ZSTD_error_prefix_unknown && any_frame_) fail_in_trailing_data(name_, format());
    fail(name_, format(), ZSTD_getErrorName(result));
  }

  std::string name_;
  std::unique_ptr<ZSTD_DCtx, Free> context_;
  bool complete_ = false, any_frame_ = false;
};

constexpr std::size_t kBufferBytes = std::size_t{128} << 10;

// Returns true for a shard: a zstd file that ends with a seek table. Returns false for a pipe,
// because its end cannot be examined.
bool ends_like_shard(const std::string& path) {
  constexpr std::string_view kSeekTableMagic = "\xB1\xEA\x92\x8F";
  std::error_code unknown;
  if (!fs::is_regular_file(path, unknown)) return false;
  const RandomAccessFile file(path);
  const auto size = static_cast<std::int64_t>(kSeekTableMagic.size());
  if (file.size() < size) return false;
  std::string end(kSeekTableMagic.size(), '\0');
  file.read(file.size() - size, end.data(), end.size());
  return end == kSeekTableMagic;
}

}  // namespace

DataInput::DataInput(const std::string& path, Content expected)
    : own_(std::make_unique<InputFile>(path)), file_(*own_), expected_(expected) {}
DataInput::DataInput(InputFile& file, Content expected) : file_(file), expected_(expected) {}
DataInput::~DataInput() = default;

std::string_view DataInput::head() {
  if (!looked_) look();
  return head_left_;
}

void DataInput::look() {
  fill_head();
  looked_ = true;
  if (expected_ == Content::kAnything) return;
  const FileKind kind = file_kind(head_);
  if (kind == FileKind::kGzip) decompressor_ = std::make_unique<Gzip>(name());
  if (kind == FileKind::kZstd) decompressor_ = std::make_unique<Zstd>(name());
  if (decompressor_) {
    // From here on the head is the beginning of the decompressed content.
    packed_ = std::exchange(head_, {});
    packed_left_ = packed_;
    fill_head();
  }
  if (decompressor_ && expected_ == Content::kText && head_.find('\0') != std::string::npos &&
      ends_like_shard(name())) {
    throw FormatError(name(), "this is a shard of packed data, not text",
                      "get the text of its folder with qlbin cat FOLDER | qltok decode");
  }
  check_kind(head_, expected_, name(),
             decompressor_ ? fmt::format("{} -dc", decompressor_->format()) : "");
}

// A pipe may bring the head byte by byte. If the writer pauses after a first line of text, that
// line is passed on, because the writer may be waiting for an answer.
void DataInput::fill_head() {
  head_.resize(kHeadBytes);
  head_left_ = {};
  std::size_t size = 0;
  while (size < kHeadBytes) {
    const std::size_t got = next_bytes(head_.data() + size, kHeadBytes - size);
    size += got;
    const Outlook more = outlook({head_.data(), size});
    if (got == 0 || more == Outlook::kFinal) break;
    // A complete line of JSON may be a question, whose answer the writer waits for.
    if (expected_ == Content::kJson && head_[0] == '{' && head_.find('\n') < size) break;
    // The head is text, but its kind is still open. The loop waits for more, because a program may
    // write in pieces. It does not wait forever, because a person may have typed only a blank line.
    if (more == Outlook::kText && !decompressor_ && !file_.has_more(kPatience)) break;
  }
  head_.resize(size);
  head_left_ = head_;
}

std::size_t DataInput::take_head(char* data, std::size_t size) {
  const std::size_t taken = std::min(size, head_left_.size());
  std::copy_n(head_left_.data(), taken, data);
  head_left_.remove_prefix(taken);
  return taken;
}

std::size_t DataInput::read(void* data, std::size_t size) {
  if (!looked_) look();
  char* const bytes = static_cast<char*>(data);
  if (const std::size_t taken = take_head(bytes, size); taken > 0 || size == 0) return taken;
  return decompressor_ ? next_bytes(bytes, size) : file_.read(bytes, size);
}

std::size_t DataInput::read_what_comes(void* data, std::size_t size) {
  if (!looked_) look();
  char* const bytes = static_cast<char*>(data);
  const std::size_t taken = take_head(bytes, size);
  if (taken == size || (taken > 0 && !has_more())) return taken;
  return taken + next_bytes(bytes + taken, size - taken);
}

bool DataInput::has_more() const {
  return more_inside_ || !head_left_.empty() || !packed_left_.empty() || file_.has_more();
}

// Returns the number of bytes read, which is 0 only at the end of the content.
std::size_t DataInput::next_bytes(char* data, std::size_t size) {
  if (!decompressor_) return file_.read_what_comes(data, size);
  for (std::size_t done = 0;;) {
    done += decompressor_->unpack(packed_left_, data + done, size - done);
    more_inside_ = done == size;
    if (more_inside_ || (done > 0 && !file_.has_more())) return done;
    if (load()) continue;
    if (!decompressor_->complete()) {
      throw FormatError(name(), fmt::format("the {} data ends too early", decompressor_->format()),
                        "the file is cut off: copy or make it again");
    }
    return done;
  }
}

bool DataInput::load() {
  check_for_stop();
  packed_.resize(kBufferBytes);
  packed_.resize(file_.read_what_comes(packed_.data(), packed_.size()));
  packed_left_ = packed_;
  return !packed_.empty();
}

std::string read_content(const std::string& path, Content expected, std::int64_t limit) {
  DataInput input(path, expected);
  constexpr std::size_t kPiece = std::size_t{64} << 10;
  std::string content;
  for (;;) {
    const std::size_t before = content.size();
    content.resize(before + kPiece);
    content.resize(before + read_fully(input, content.data() + before, kPiece));
    if (static_cast<std::int64_t>(content.size()) > limit) {
      throw Error(input.name(), fmt::format("the content is larger than {} bytes", limit),
                  "is it the right file?");
    }
    if (content.size() < before + kPiece) return content;
  }
}

}  // namespace ql
