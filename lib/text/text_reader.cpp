#include "text/text_reader.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/number.h"
#include "base/signals.h"
#include "base/utf8.h"
#include "text/lines_internal.h"

namespace ql::text {

TextReader::TextReader(std::vector<std::string> files, LineCut cut, std::size_t block_bytes,
                       std::size_t longest_unit, Content content)
    : files_(std::move(files)),
      cut_(cut),
      block_bytes_(block_bytes),
      longest_unit_(longest_unit),
      content_(content) {
  if (files_.empty()) files_.emplace_back("-");
}

bool TextReader::next(TextBlock& block) {
  if (!input_ && !open_next_file()) return false;
  const std::size_t cut = read_until_cut();
  std::string rest(buffer_, cut);
  buffer_.resize(cut);
  block.text = std::move(buffer_);
  buffer_ = std::move(rest);
  block.place = place_;
  block.ends_file = input_ended_;
  advance(block);
  if (input_ended_) input_.reset();
  return true;
}

bool TextReader::has_more() const {
  if (input_) return input_->has_more();
  if (next_file_ == files_.size()) return true;
  // Opening a named pipe waits for its writer.
  std::error_code cannot_tell;
  return files_[next_file_] != "-" && fs::is_regular_file(files_[next_file_], cannot_tell);
}

bool TextReader::open_next_file() {
  if (next_file_ == files_.size()) return false;
  input_ = std::make_unique<DataInput>(files_[next_file_++], content_);
  input_ended_ = false;
  const LineHistory history = place_.lines_before;
  place_ = TextPlace();
  place_.lines_before = history;
  if (cut_ == LineCut::kAtUnicodeBlank) place_.blanks = Blanks::kUnicode;
  place_.file = input_->name();
  log_debug("reading {}", place_.file);
  return true;
}

// Reads until the buffer can be cut; returns where. The end of the file is a place to cut.
std::size_t TextReader::read_until_cut() {
  for (std::size_t line_ends_searched = 0, blanks_searched = 0;;) {
    check_for_stop();
    const std::size_t old_size = buffer_.size();
    const std::size_t more = old_size < block_bytes_ ? block_bytes_ - old_size : block_bytes_;
    buffer_.resize(old_size + more);
    const std::size_t got = input_->read_what_comes(buffer_.data() + old_size, more);
    buffer_.resize(old_size + got);
    input_ended_ = got == 0 || (got < more && !input_->is_pipe());
    if (input_ended_) return buffer_.size();
    if (const std::size_t cut = line_end(line_ends_searched); cut > 0) return cut;
    line_ends_searched = buffer_.size();
    // The rest of a line that a pipe has not delivered yet will come: less than a block is left
    // together.
    if (buffer_.size() >= block_bytes_) {
      if (const std::size_t cut = cut_inside_line(blanks_searched); cut > 0) return cut;
      blanks_searched = buffer_.size();
    }
    if (buffer_.size() > longest_unit_) {
      throw Error(fmt::format("{}: line {}", place_.file, place_.line),
                  fmt::format("a {} of more than {}", cut_ == LineCut::kNever ? "line" : "word",
                              human_bytes(static_cast<std::int64_t>(longest_unit_))),
                  "break it with line ends");
    }
  }
}

// The end of the last whole line, 0 if there is none behind `searched`.
std::size_t TextReader::line_end(std::size_t searched) const {
  const std::size_t newline = std::string_view(buffer_).substr(searched).rfind('\n');
  return newline == std::string_view::npos ? 0 : searched + newline + 1;
}

// Returns where the line that the buffer holds can be cut, 0 for nowhere. Up to `searched` there is
// no such place.
std::size_t TextReader::cut_inside_line(std::size_t searched) const {
  std::size_t cut = buffer_.size();
  switch (cut_) {
    case LineCut::kNever:
      return 0;
    case LineCut::kAnywhere:
      break;
    case LineCut::kAtCodePoint:
      cut -= incomplete_suffix(buffer_);
      break;
    case LineCut::kAtBlank:
    case LineCut::kAtUnicodeBlank:
      while (cut > searched &&
             !ends_with_blank(std::string_view(buffer_).substr(0, cut), place_.blanks)) {
        --cut;
      }
      if (cut == searched) return 0;
      break;
  }
  return place_.continues_line || cut > kLineHead ? cut : 0;
}

void TextReader::advance(const TextBlock& block) {
  place_.starts_file = false;
  for (LineSplitter lines(block.text); lines.next();) place_.pass(lines.line(), lines.ended());
  place_.offset += static_cast<std::int64_t>(block.text.size());
  if (place_.continues_line && block.ends_file) place_.lines_before.add(place_.head_blank);
  if (!block.text.empty()) {
    place_.continues_word = place_.continues_line && !ends_with_blank(block.text, place_.blanks);
  }
}

}  // namespace ql::text
