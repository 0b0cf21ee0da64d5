// Tests text in blocks, compared with the definition.

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "text/text_reader.h"
#include "text/words.h"
#include "unit/text_support.h"

namespace ql::text {
namespace {

using test::complaint;
using testing::contains;
using testing::TextFiles;

std::vector<TextBlock> read_blocks(const TextFiles& files, LineCut cut, std::size_t block_bytes) {
  TextReader reader(files.names(), cut, block_bytes);
  std::vector<TextBlock> blocks;
  for (TextBlock block; reader.next(block);) blocks.push_back(block);
  return blocks;
}

// Returns the history before each position of each text, as the documentation defines it.
std::vector<std::vector<LineHistory>> histories(const std::vector<std::string>& texts,
                                                Blanks blanks) {
  std::vector<std::vector<LineHistory>> all;
  LineHistory history;
  for (const std::string& text : texts) {
    all.emplace_back();
    std::string line;
    bool first = true;
    const auto is_blank_line = [&] {
      if (std::exchange(first, false) && begins_with_mark(line)) line.erase(0, 3);
      return testing::naive_blank_head(line, kLineHead, blanks);
    };
    for (const char c : text) {
      all.back().push_back(history);
      line.push_back(c);
      if (c != '\n') continue;
      history.add(is_blank_line());
      line.clear();
    }
    all.back().push_back(history);
    if (!line.empty()) history.add(is_blank_line());
  }
  return all;
}

void check_cut(const std::string& before, LineCut cut) {
  if (before.empty() || before.back() == '\n') return;
  const std::size_t line_begin = before.rfind('\n') + 1;
  CHECK(before.size() - line_begin > kLineHead);
  REQUIRE(cut != LineCut::kNever);
  if (cut == LineCut::kAtBlank) CHECK(is_blank(before.back()));
  if (cut == LineCut::kAtUnicodeBlank) CHECK(ends_with_blank(before, Blanks::kUnicode));
  if (cut == LineCut::kAtCodePoint) CHECK(incomplete_suffix(before) == 0);
}

void check_blocks(const std::vector<std::string>& texts, LineCut cut, std::size_t block_bytes) {
  const TextFiles files(texts);
  const Blanks blanks = cut == LineCut::kAtUnicodeBlank ? Blanks::kUnicode : Blanks::kAscii;
  const auto history_at = histories(texts, blanks);
  std::size_t file = 0;
  std::int64_t line = 1;
  std::string before;  // the file's text before it
  for (const TextBlock& block : read_blocks(files, cut, block_bytes)) {
    REQUIRE(file < texts.size());
    const TextPlace& place = block.place;
    CHECK(place.file == files.names()[file]);
    CHECK(place.starts_file == before.empty());
    CHECK(place.offset == static_cast<std::int64_t>(before.size()));
    CHECK(place.line == line);
    CHECK(place.continues_line == (!before.empty() && before.back() != '\n'));
    CHECK(place.continues_word == (place.continues_line && !ends_with_blank(before, blanks)));
    const LineHistory& history = history_at[file][before.size()];
    CHECK(place.lines_before.any_text == history.any_text);
    CHECK(place.lines_before.after_blank == history.after_blank);
    if (place.continues_line) {
      std::string begun = before.substr(before.rfind('\n') + 1);
      if (begun.size() == before.size() && begins_with_mark(begun)) begun.erase(0, 3);
      CHECK(place.head_blank == has_blank_head(begun, blanks));
    }
    check_cut(before, cut);
    before += block.text;
    line += std::count(block.text.begin(), block.text.end(), '\n');
    if (!block.ends_file) continue;
    CHECK(before == texts[file]);
    before.clear();
    line = 1;
    ++file;
  }
  CHECK(file == texts.size());
  CHECK(before.empty());
}

TEST_CASE("TextReader: joined blocks are the text, and know their place") {
  testing::Random random(5);
  for (int round = 0; round < 12; ++round) {
    std::vector<std::string> texts;
    for (std::size_t count = 1 + testing::below(random, 3); count > 0; --count) {
      texts.push_back((testing::below(random, 3) == 0 ? "\uFEFF" : "") +
                      testing::random_lines(random));
    }
    for (const LineCut cut : {LineCut::kAtBlank, LineCut::kAtUnicodeBlank, LineCut::kAtCodePoint,
                              LineCut::kAnywhere, LineCut::kNever}) {
      for (const std::size_t block_bytes : {1, 3, 64, 1024, 1025, 1 << 20}) {
        check_blocks(texts, cut, block_bytes);
      }
    }
  }
}

TEST_CASE("TextReader: empty files and missing line feeds") {
  for (const LineCut cut : {LineCut::kAtBlank, LineCut::kAnywhere}) {
    check_blocks({""}, cut, 4);
    check_blocks({"", "", "a"}, cut, 4);
    check_blocks({"abcd", "e"}, cut, 4);
    check_blocks({"abc\n", "\n"}, cut, 4);
    check_blocks({std::string(5000, 'x'), "\n"}, cut, 1000);
    check_blocks({std::string(5000, ' '), "a"}, cut, 1000);
    check_blocks({"\uFEFF", "\uFEFF\n\na", "a\n\uFEFF\n", "\uFEFF\uFEFF\n"}, cut, 1);
  }
}

TEST_CASE("TextReader: blocks of a long line stay near their size") {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "the ";
  const TextFiles files({text});
  for (const TextBlock& block : read_blocks(files, LineCut::kAtBlank, 2000)) {
    CHECK(block.text.size() <= 2000);
  }
}

TEST_CASE(
    "TextReader: a long line without ASCII blanks is cut at Unicode blanks if these end words") {
  std::string text;
  while (text.size() < 100000) text += "\u65E5\u672C\u3000";
  const TextFiles files({text});
  for (const TextBlock& block : read_blocks(files, LineCut::kAtUnicodeBlank, 2000)) {
    CHECK(block.text.size() <= 2000);
  }
  CHECK(read_blocks(files, LineCut::kAtBlank, 2000).size() == 1);
}

TEST_CASE("TextReader: a long line that a pipe delivers piece by piece is cut like any other") {
  constexpr std::size_t kBlock = 2000, kLongestUnit = 3000, kPiece = 700;
  // The text has blanks, and then none for more than a block: those before the last piece must not
  // be forgotten, and the next one must be found when it comes.
  std::string text;
  for (int i = 0; i < 3; ++i) {
    for (int word = 0; word < 350; ++word) text += "the ";
    text += std::string(2200, 'x') + " ";
  }
  const test::ScratchFolder scratch;
  const std::string pipe = scratch / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  std::thread producer([&] {
    const int descriptor = ::open(pipe.c_str(), O_WRONLY);
    for (std::size_t at = 0; at < text.size(); at += kPiece) {
      const std::size_t size = std::min(kPiece, text.size() - at);
      if (::write(descriptor, text.data() + at, size) < 0) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(40));
    }
    ::close(descriptor);
  });
  std::string joined;
  const std::string error = complaint([&] {
    TextReader reader({pipe}, LineCut::kAtBlank, kBlock, kLongestUnit);
    for (TextBlock block; reader.next(block);) {
      CHECK(block.text.size() <= 2 * kBlock);
      if (!block.ends_file) check_cut(joined + block.text, LineCut::kAtBlank);
      joined += block.text;
    }
  });
  producer.join();
  std::signal(SIGPIPE, before);
  CHECK(error == "");
  CHECK((joined == text));  // a message need not print thousands of letters
}

TEST_CASE("TextReader::has_more: true between files unless opening the next one may wait") {
  const TextFiles files({"a\n", "b\n"});
  const test::ScratchFolder scratch;
  const std::string pipe = scratch / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const std::vector<std::pair<std::string, bool>> cases = {
      {files.names()[1], true}, {pipe, false}, {"-", false}, {scratch / "none", false}};
  for (const auto& [second, more] : cases) {
    CAPTURE(second);
    TextReader reader({files.names()[0], second}, LineCut::kAtBlank);
    CHECK(reader.has_more());
    TextBlock block;
    REQUIRE(reader.next(block));
    REQUIRE(block.ends_file);
    CHECK(reader.has_more() == more);
  }
  TextReader last({files.names()[0]}, LineCut::kAtBlank);
  TextBlock block;
  REQUIRE(last.next(block));
  CHECK(last.has_more());
}

TEST_CASE("TextReader: words and lines that must stay together have a limit") {
  const TextFiles files({"a b\n" + std::string(5000, 'x')});
  const auto read_all = [&](LineCut cut) {
    return complaint([&] {
      TextReader reader(files.names(), cut, 100, 3000);
      for (TextBlock block; reader.next(block);) {
      }
    });
  };
  CHECK(contains(read_all(LineCut::kAtBlank), "0.txt: line 2: a word is longer than 2.9 KiB"));
  CHECK(contains(read_all(LineCut::kNever), "0.txt: line 2: a line is longer than 2.9 KiB"));
  CHECK(read_all(LineCut::kAnywhere) == "");
}

TEST_CASE("TextReader: a missing file is named") {
  TextReader reader({"no/such/file.txt"}, LineCut::kAtBlank);
  TextBlock block;
  CHECK(contains(complaint([&] { reader.next(block); }), "no/such/file.txt"));
}

}  // namespace
}  // namespace ql::text
