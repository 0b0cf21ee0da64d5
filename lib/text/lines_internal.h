// The lines of a text that is in memory.
#pragma once

#include <string_view>

namespace ql::text {

// for (LineSplitter lines(text); lines.next();) use(lines.line());
// An empty text has no line; what stands behind the last line feed is a line when it is not empty.
class LineSplitter {
 public:
  explicit LineSplitter(std::string_view text) : rest_(text) {}
  bool next() {
    if (rest_.empty()) return false;
    const std::size_t feed = rest_.find('\n');
    ended_ = feed != std::string_view::npos;
    line_ = rest_.substr(0, feed);
    rest_.remove_prefix(ended_ ? feed + 1 : rest_.size());
    return true;
  }
  // The line comes without its line feed.
  std::string_view line() const { return line_; }
  // False when the text ended without a line feed.
  bool ended() const { return ended_; }

 private:
  std::string_view rest_, line_;
  bool ended_ = false;
};

}  // namespace ql::text
