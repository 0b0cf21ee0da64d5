#include "base/data_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/decompressor_internal.h"
#include "base/error.h"
#include "base/random_access_file.h"
#include "base/signals.h"

namespace ql {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{128} << 10;

// Shards are zstd files that end with a seek table. A pipe does not show its end.
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

// A pipe may bring the head byte by byte. Text that pauses is passed on as it is: what waits for an
// answer must not be held back for a page that may follow.
void DataInput::look() {
  head_.resize(kHeadBytes);
  std::size_t size = 0;
  while (size < kHeadBytes) {
    const std::size_t got = file_.read_what_comes(head_.data() + size, kHeadBytes - size);
    size += got;
    const Outlook more = outlook({head_.data(), size});
    if (got == 0 || more == Outlook::kFinal || (more == Outlook::kText && !file_.has_more())) break;
  }
  head_.resize(size);
  head_left_ = head_;
  looked_ = true;
  if (expected_ == Content::kAnything) return;
  decompressor_ = make_decompressor(file_kind(head_), name());
  if (decompressor_) look_inside();
  if (decompressor_ && expected_ == Content::kText && head_.find('\0') != std::string::npos &&
      ends_like_shard(name())) {
    throw FormatError(name(), "this is a shard of packed data, not text",
                      "name its folder: qlbin cat FOLDER | qltok decode");
  }
  check_kind(head_, expected_, name(),
             decompressor_ ? fmt::format("{} -dc", decompressor_->format()) : "");
}

// The head becomes that of the unpacked content.
void DataInput::look_inside() {
  packed_ = std::move(head_);
  packed_left_ = packed_;
  head_.resize(kHeadBytes);
  head_left_ = {};
  std::size_t size = 0;
  while (size < kHeadBytes) {
    const std::size_t got = unpack(head_.data() + size, kHeadBytes - size);
    size += got;
    if (got == 0 || outlook({head_.data(), size}) == Outlook::kFinal) break;
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
  return decompressor_ ? unpack(bytes, size) : file_.read(bytes, size);
}

std::size_t DataInput::read_fully(void* data, std::size_t size) {
  char* const bytes = static_cast<char*>(data);
  std::size_t done = 0;
  while (done < size) {
    const std::size_t got = read(bytes + done, size - done);
    if (got == 0) break;
    done += got;
  }
  return done;
}

std::size_t DataInput::read_what_comes(void* data, std::size_t size) {
  if (!looked_) look();
  char* const bytes = static_cast<char*>(data);
  const std::size_t taken = take_head(bytes, size);
  if (taken == size || (taken > 0 && !has_more())) return taken;
  return taken + (decompressor_ ? unpack(bytes + taken, size - taken)
                                : file_.read_what_comes(bytes + taken, size - taken));
}

bool DataInput::has_more() const {
  return more_inside_ || !head_left_.empty() || !packed_left_.empty() || file_.has_more();
}

// Returns at least 1, and 0 only at the end of the content.
std::size_t DataInput::unpack(char* data, std::size_t size) {
  for (std::size_t done = 0;;) {
    done += decompressor_->unpack(packed_left_, data + done, size - done);
    more_inside_ = done == size;
    if (more_inside_ || (done > 0 && !file_.has_more())) return done;
    if (load()) continue;
    if (!decompressor_->complete()) {
      throw FormatError(name(), fmt::format("the {} data does not end", decompressor_->format()),
                        "it is cut off: copy or make it again");
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
    content.resize(before + input.read_fully(content.data() + before, kPiece));
    if (static_cast<std::int64_t>(content.size()) > limit) {
      throw Error(path, fmt::format("the file is larger than {} bytes", limit),
                  "is it the right file?");
    }
    if (content.size() < before + kPiece) return content;
  }
}

}  // namespace ql
