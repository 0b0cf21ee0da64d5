// A rule tells where documents begin in a text.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <regex>
#include <string>
#include <string_view>

#include "text/words.h"

namespace ql::text {

// The rules look at the first bytes of a line only, so that they never depend on how a long line
// was cut into blocks, and no regular expression has to walk through megabytes.
constexpr std::size_t kLineHead = 1024;

// True when the first kLineHead bytes of a line are blank. `line` as begins_at() takes it.
bool has_blank_head(std::string_view line, Blanks blanks = Blanks::kAscii);

// Remembers of the lines before a line what the rules ask.
struct LineHistory {
  bool any = false;          // there was one
  bool any_text = false;     // one of them was not blank
  bool after_blank = false;  // the last of them was blank
  void add(bool blank) {
    any = true;
    any_text = any_text || !blank;
    after_blank = blank;
  }
};

class DocumentRule {
 public:
  // "blank"  the first line with text behind a blank line begins a document
  // "file"   every file is one
  // "line"   every line is one
  // "none"   all files together are one
  // anything else is an ECMAScript regular expression, searched in every line (without its line
  //          end, by bytes) of at most kLineHead bytes: a line where it is found begins a document
  // Blank lines before the first text belong to the first document (but not for "line").
  // Throws UsageError for a regular expression that is none.
  explicit DocumentRule(const std::string& rule);

  bool at_files() const { return kind_ == Kind::kFile; }
  // `line` is a complete line, or its first kLineHead bytes and some more, without a byte order
  // mark. `blanks` says which lines are blank. Safe from several threads.
  bool begins_at(std::string_view line, const LineHistory& before,
                 Blanks blanks = Blanks::kAscii) const;

 private:
  enum class Kind { kBlank, kFile, kLine, kNone, kPattern };
  friend constexpr auto names_of(Kind) { return std::array{"blank", "file", "line", "none"}; }
  Kind kind_;
  std::shared_ptr<const std::regex> pattern_;
  bool anchored_ = false;
};

}  // namespace ql::text
