// Files of text in blocks of whole lines, unpacked where they are compressed. A line that is longer
// than a block comes in pieces, so that memory does not grow with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/data_input.h"
#include "base/utf8.h"
#include "text/document_rule.h"

namespace ql::text {

// A block begins at such a place.
struct TextPlace {
  std::string file;         // its name for messages
  std::int64_t line = 1;    // number of the line in the file
  std::int64_t offset = 0;  // in the text of the file, in bytes
  bool starts_file = true;
  bool continues_line = false;  // inside a line
  bool continues_word = false;  // and the byte before it is not a blank
  bool head_blank = true;       // the continued line has a blank head
  Blanks blanks = Blanks::kAscii;
  LineHistory lines_before;  // in all files, without the continued line

  // Returns the text of the place without the byte order mark that may begin a file.
  std::string_view without_mark(std::string_view text) const {
    const bool begins_file = offset == 0 && line == 1 && !continues_line;
    return begins_file && begins_with_mark(text) ? text.substr(kByteOrderMark.size()) : text;
  }

  // Passes a line, or the rest or a piece of one when no line feed follows.
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

// A line that is longer than a block may be cut at these places.
enum class LineCut {
  kAtBlank,         // after a blank: words and the context of lower-casing stay whole
  kAtUnicodeBlank,  // the same, and Blanks::kUnicode says what a blank is
  kAtCodePoint,     // between code points
  kAnywhere,        // between bytes
  kNever,           // whole lines only
};

class TextReader {
 public:
  static constexpr std::size_t kBlockBytes = std::size_t{256} * 1024;
  // The most that is kept together: a word (kAtBlank) or a line (kNever) above it is an Error.
  static constexpr std::size_t kLongestUnit = std::size_t{256} << 20;

  // `files` as on a command line: "-" is standard input, none at all means standard input, too.
  // `content` is kText, or kAnything for files that are read as they are.
  TextReader(std::vector<std::string> files, LineCut cut, std::size_t block_bytes = kBlockBytes,
             std::size_t longest_unit = kLongestUnit, Content content = Content::kText);

  // The next block, of about block_bytes or less where the text can be cut so. Blocks never span
  // files; an empty file gives one empty block. False behind the last file. Blocks of files depend
  // on the text alone; what a pipe delivers slowly comes in shorter ones, of whole lines. The first
  // kLineHead bytes of a line stay together.
  bool next(TextBlock& block);
  // False when next() may have to wait: for what a pipe delivers, or for its writer.
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
  std::string buffer_;  // read, not yet given out
  TextPlace place_;     // of the buffer
};

}  // namespace ql::text
