// Cuts text into blocks, and finds where documents begin.

#include "text/text_reader.h"

#include <system_error>

#include "base/log.h"
#include "base/process.h"

namespace ql::text {

bool has_blank_head(std::string_view line, Blanks blanks) {
  const std::size_t end = std::min(line.size(), kLineHead);
  for (std::size_t i = 0; i < end;) {
    // Most lines begin with a visible ASCII character, and then the loop ends here.
    if (const auto byte = static_cast<unsigned char>(line[i]); byte > ' ' && byte < 0x7F) {
      return false;
    }
    const std::size_t length = blank_at(line, i, blanks);
    if (length == 0) return false;
    i += length;
  }
  return true;
}

// Returns the pattern in a form whose searches need no more than polynomial time, where there is
// one: some patterns would search a line for years otherwise. A pattern with a back-reference has
// no such form, and sets `may_take_long`.
static std::shared_ptr<const std::regex> compiled(const std::string& pattern, bool& may_take_long) {
  constexpr auto kFlags = std::regex::ECMAScript | std::regex::optimize;
#ifdef __GLIBCXX__
  try {
    return std::make_shared<const std::regex>(pattern, kFlags | std::regex_constants::__polynomial);
  } catch (const std::regex_error& error) {
    if (error.code() != std::regex_constants::error_complexity) throw;
  }
#endif
  may_take_long = true;
  return std::make_shared<const std::regex>(pattern, kFlags);
}

DocumentRule::DocumentRule(const std::string& rule)
    : kind_(find_named<Kind>(rule).value_or(Kind::kPattern)) {
  if (kind_ != Kind::kPattern) return;
  if (rule.empty()) {
    throw UsageError("--document", "the rule is empty",
                     "give 'blank', 'file', 'line', 'none' or a pattern");
  }
  // The library compiles a pattern recursively, and a long one would take all of the stack.
  constexpr std::size_t kLongestPattern = 8192;
  if (rule.size() > kLongestPattern) {
    throw UsageError("--document",
                     fmt::format("the pattern has {} bytes, expected at most {}",
                                 with_thousands(static_cast<std::int64_t>(rule.size())),
                                 with_thousands(kLongestPattern)),
                     "give a shorter pattern, such as '^Chapter '");
  }
  try {
    pattern_ = compiled(rule, may_take_long_);
  } catch (const std::regex_error& error) {
    throw UsageError(
        "--document",
        fmt::format("'{}' cannot be used as a regular expression ({})", rule, error.what()),
        "give 'blank', 'file', 'line', 'none' or an ECMAScript pattern");
  }
  // A pattern that can only match at the beginning need not be tried anywhere else.
  anchored_ = rule.front() == '^' && rule.find('|') == std::string::npos;
}

bool DocumentRule::begins_at(std::string_view line, const LineHistory& before,
                             Blanks blanks) const {
  if (kind_ == Kind::kLine) return true;
  if (!before.any_text) return false;
  if (kind_ == Kind::kBlank) return before.after_blank && !has_blank_head(line, blanks);
  if (kind_ != Kind::kPattern || line.size() > kLineHead) return false;
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  const auto flags =
      anchored_ ? std::regex_constants::match_continuous : std::regex_constants::match_default;
  return std::regex_search(line.begin(), line.end(), *pattern_, flags);
}

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
  // Opening a named pipe may have to wait for its writer, so the result is true only for a regular
  // file.
  std::error_code ignored;
  return files_[next_file_] != "-" && fs::is_regular_file(files_[next_file_], ignored);
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

// Reads until the buffer can be cut, and returns the offset of the cut. The buffer can always be
// cut at the end of the file.
std::size_t TextReader::read_until_cut() {
  for (std::size_t line_ends_searched = 0, blanks_searched = 0;;) {
    check_for_stop();
    const std::size_t old_size = buffer_.size();
    const std::size_t more = old_size < block_bytes_ ? block_bytes_ - old_size : block_bytes_;
    buffer_.resize(old_size + more);
    const std::size_t got = input_->read_what_comes(buffer_.data() + old_size, more);
    buffer_.resize(old_size + got);
    input_ended_ = got == 0 || (got < more && !input_->is_pipe());
    // The signal that stops this program may have ended the writer of a pipe before.
    if (input_ended_) check_for_stop();
    if (input_ended_) return buffer_.size();
    if (const std::size_t cut = line_end(line_ends_searched); cut > 0) return cut;
    line_ends_searched = buffer_.size();
    // A pipe may deliver the rest of an incomplete line later, so the line is not cut before the
    // buffer has the size of a block.
    if (buffer_.size() >= block_bytes_) {
      if (const std::size_t cut = cut_inside_line(blanks_searched); cut > 0) return cut;
      blanks_searched = buffer_.size();
    }
    if (buffer_.size() > longest_unit_) {
      throw Error(fmt::format("{}: line {}", place_.file, place_.line),
                  fmt::format("a {} is longer than {}", cut_ == LineCut::kNever ? "line" : "word",
                              human_bytes(static_cast<std::int64_t>(longest_unit_))),
                  "insert line ends");
    }
  }
}

// Returns the end of the last complete line, or 0 if none ends after `searched`.
std::size_t TextReader::line_end(std::size_t searched) const {
  const std::size_t newline = std::string_view(buffer_).substr(searched).rfind('\n');
  return newline == std::string_view::npos ? 0 : searched + newline + 1;
}

// Returns the last position at which the incomplete line in the buffer can be cut, or 0 if there is
// none. An earlier call has found no such position up to `searched`.
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
  // The first line of a file may begin with a byte order mark.
  return place_.continues_line || cut > kLineHead + kByteOrderMark.size() ? cut : 0;
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
