#include "text/text_input.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/signals.h"
#include "text/decompressor_internal.h"

namespace ql::text {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{128} << 10;

}  // namespace

TextInput::TextInput(const std::string& path) : file_(path) {}
TextInput::~TextInput() = default;

std::size_t TextInput::read_what_comes(void* data, std::size_t size) {
  if (!opened_) look_at_head();
  char* text = static_cast<char*>(data);
  return decompressor_ ? unpack(text, size) : read_plain(text, size);
}

bool TextInput::has_more() const { return more_inside_ || !left_.empty() || file_.has_more(); }

// A pipe may bring the head byte by byte; plain text is told by the first that does not fit.
void TextInput::look_at_head() {
  buffer_.resize(kMagicBytes);
  std::size_t size = 0;
  while (size < kMagicBytes && may_be_compressed({buffer_.data(), size})) {
    const std::size_t got = file_.read(buffer_.data() + size, kMagicBytes - size);
    if (got == 0) break;
    size += got;
  }
  buffer_.resize(size);
  left_ = buffer_;
  decompressor_ = make_decompressor(left_, name());
  opened_ = true;
}

std::size_t TextInput::read_plain(char* text, std::size_t size) {
  const std::size_t head = std::min(size, left_.size());
  std::copy_n(left_.data(), head, text);
  left_.remove_prefix(head);
  if (head == size || (head > 0 && !file_.has_more())) return head;
  return head + file_.read_what_comes(text + head, size - head);
}

std::size_t TextInput::unpack(char* text, std::size_t size) {
  for (std::size_t done = 0;;) {
    done += decompressor_->unpack(left_, text + done, size - done);
    more_inside_ = done == size;
    if (more_inside_ || (done > 0 && !file_.has_more())) return done;
    if (load()) continue;
    if (!decompressor_->whole()) {
      throw FormatError(name(), fmt::format("the {} data does not end", decompressor_->format()),
                        "it is cut off: copy or make it again");
    }
    return done;
  }
}

bool TextInput::load() {
  check_for_stop();
  buffer_.resize(kBufferBytes);
  buffer_.resize(file_.read_what_comes(buffer_.data(), buffer_.size()));
  left_ = buffer_;
  return !buffer_.empty();
}

}  // namespace ql::text
