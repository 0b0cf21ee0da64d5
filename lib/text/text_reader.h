// Reads files of text in blocks of complete lines, finds where documents begin, and lets several
// threads work on the blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/data_input.h"
#include "base/error.h"
#include "base/jobs.h"
#include "base/strings.h"
#include "text/words.h"

namespace ql::text {

// Splits a text in memory into lines:
//   for (LineSplitter lines(text); lines.next();) use(lines.line());
// An empty text has no line. Text after the last line feed is a line when it is not empty.
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
  // Returns the line without its line feed.
  std::string_view line() const { return line_; }
  // Returns true if a line feed ended the line, and false if the text ended first.
  bool ended() const { return ended_; }

 private:
  std::string_view rest_, line_;
  bool ended_ = false;
};

// DocumentRule decides where documents begin in a text.

// DocumentRule looks only at the first kLineHead bytes of a line. So its result does not depend on
// how a long line is cut into blocks, and no regular expression has to search megabytes.
constexpr std::size_t kLineHead = 1024;

// Returns true when the first kLineHead bytes of a line are whitespace. `line` is complete, or has
// more than kLineHead bytes.
bool has_blank_head(std::string_view line, Blanks blanks = Blanks::kAscii);

// Describes the lines before a line: DocumentRule needs this to decide where documents begin.
struct LineHistory {
  bool any = false;          // there was a line
  bool any_text = false;     // there was a line that was not blank
  bool after_blank = false;  // the last line was blank
  void add(bool blank) {
    any = true;
    any_text = any_text || !blank;
    after_blank = blank;
  }
};

class DocumentRule {
 public:
  // "blank"  the first line with text after a blank line begins a document
  // "file"   every file is a document
  // "line"   every line is a document
  // "none"   all files together are one document
  // Any other rule is an ECMAScript regular expression over bytes. A document begins at each line
  // in which the expression is found. The line end is not searched, and a line of more than
  // kLineHead bytes never matches. Except with "file" and "line", blank lines before the first
  // text belong to the first document. Throws UsageError for an empty rule and for an invalid
  // regular expression.
  explicit DocumentRule(const std::string& rule);

  bool at_files() const { return kind_ == Kind::kFile; }
  bool is_expression() const { return kind_ == Kind::kPattern; }
  // Returns true for a regular expression with which begins_at() may need exponential time.
  bool may_take_long() const { return may_take_long_; }
  // Returns true when a document begins at the line. `line` is the complete line, or a beginning of
  // it with more than kLineHead bytes. The caller must remove a byte order mark. `blanks` decides
  // which lines are blank. Several threads may call this function at once.
  bool begins_at(std::string_view line, const LineHistory& before,
                 Blanks blanks = Blanks::kAscii) const;

 private:
  enum class Kind { kBlank, kFile, kLine, kNone, kPattern };
  friend constexpr auto names_of(Kind) { return std::array{"blank", "file", "line", "none"}; }
  Kind kind_;
  std::shared_ptr<const std::regex> pattern_;
  bool anchored_ = false, may_take_long_ = false;
};

// Files of text are decompressed where necessary, and come in blocks of complete lines. A line that
// is longer than a block may come in parts (see LineCut), so that memory does not grow with the
// line.

// Says where a block begins.
struct TextPlace {
  std::string file;         // the file's name for messages
  std::int64_t line = 1;    // number of the line in the file, from 1
  std::int64_t offset = 0;  // in the text of the file, in bytes
  bool starts_file = true;
  bool continues_line = false;  // the block begins inside a line
  bool continues_word = false;  // the block begins inside or right after a word
  bool head_blank = true;       // has_blank_head() of the line that continues in the block
  Blanks blanks = Blanks::kAscii;
  LineHistory lines_before;  // of all lines that end before this place, also in earlier files

  // Returns `text`, which begins at this place, without the byte order mark that may begin a file.
  std::string_view without_mark(std::string_view text) const {
    const bool begins_file = offset == 0 && line == 1 && !continues_line;
    return begins_file && begins_with_mark(text) ? text.substr(kByteOrderMark.size()) : text;
  }

  // Moves the place past `text`: a line, or a part of a line if `ended` is false. The offset stays.
  void pass(std::string_view text, bool ended) {
    if (!continues_line) head_blank = has_blank_head(without_mark(text), blanks);
    continues_line = !ended;
    if (!ended) return;
    lines_before.add(head_blank);
    ++line;
  }
};

struct TextBlock {
  TextPlace place;
  std::string text;
  bool ends_file = false;
};

// LineCut names the places where a line that is longer than a block may be cut.
enum class LineCut {
  kAtBlank,         // after whitespace: cuts no word, and no context that lower-casing needs
  kAtUnicodeBlank,  // after whitespace as in Blanks::kUnicode
  kAtCodePoint,     // between code points
  kAnywhere,        // between bytes
  kNever,           // nowhere: complete lines only
};

class TextReader {
 public:
  static constexpr std::size_t kBlockBytes = std::size_t{256} * 1024;
  // This is the most text that is kept together: next() throws Error for a longer word (kAtBlank,
  // kAtUnicodeBlank) or line (kNever).
  static constexpr std::size_t kLongestUnit = std::size_t{256} << 20;

  // `files` are names as on a command line: "-" is standard input, and no names mean standard
  // input, too. `content` is kText, or kAnything for files that are passed on unchanged.
  TextReader(std::vector<std::string> files, LineCut cut, std::size_t block_bytes = kBlockBytes,
             std::size_t longest_unit = kLongestUnit, Content content = Content::kText);

  // Reads the next block. The block has at most block_bytes, or more if LineCut allows no cut in
  // that many bytes. Blocks never span files; an empty file gives one empty block. Returns false
  // after the last file. The blocks of a regular file depend only on its text. A slow pipe gives
  // shorter blocks of complete lines. The first kLineHead bytes of a line stay together.
  bool next(TextBlock& block);
  // Returns false when next() may have to wait for a pipe: for its data, or for its writer.
  bool has_more() const;

 private:
  bool open_next_file();
  std::size_t read_until_cut();
  std::size_t line_end(std::size_t searched) const;
  std::size_t cut_inside_line(std::size_t searched) const;
  void advance(const TextBlock& block);

  std::vector<std::string> files_;
  LineCut cut_;
  std::size_t block_bytes_, longest_unit_;
  Content content_;
  std::size_t next_file_ = 0;
  std::unique_ptr<DataInput> input_;
  bool input_ended_ = false;
  std::string buffer_;  // read, but not returned yet
  TextPlace place_;     // where the buffer begins
};

// Calls use(work(block)) for all blocks in their order: `work` on `threads` threads, `use` on the
// calling thread. An error of the input is thrown after all earlier blocks have been used.
template <typename Work, typename Use>
void work_on_blocks(TextReader& reader, int threads, const Work& work, const Use& use) {
  OrderedJobs<std::invoke_result_t<const Work&, TextBlock>> jobs(threads);
  std::exception_ptr error;
  const auto next = [&]() -> std::optional<TextBlock> {
    try {
      TextBlock block;
      if (reader.next(block)) return block;
    } catch (const Error&) {
      error = std::current_exception();
    }
    return std::nullopt;
  };
  while (std::optional<TextBlock> block = next()) {
    const std::size_t bytes = block->text.size();
    jobs.add([&work, text = std::move(*block)]() mutable { return work(std::move(text)); }, bytes);
    while (jobs.full()) use(jobs.take());
    // While the reader waits for more text, the results of all earlier blocks are used, and their
    // errors are thrown.
    while (!reader.has_more() && !jobs.empty()) use(jobs.take());
  }
  while (!jobs.empty()) use(jobs.take());
  if (error) std::rethrow_exception(error);
}

}  // namespace ql::text
