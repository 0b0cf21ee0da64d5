#include "base/progress.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/ioctl.h>

#include <chrono>
#include <thread>
#include <vector>

#include "base/log.h"
#include "unit/scratch.h"

namespace ql {

using std::chrono::milliseconds;
using test::in_child;

namespace {

// Runs `work` in a child whose log lines go to stderr as "log: ...".
test::Ending logging(const ProgressStyle& style, const std::function<void()>& work) {
  return in_child([&] {
    set_progress_style(style);
    set_log_sink([](LogLevel, const std::string& line) { print_above_progress("log: " + line); });
    work();
    return 0;
  });
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) {
    ++found;
  }
  return found;
}

}  // namespace

TEST_CASE("the words of a progress") {
  CHECK(progress_text("read", "tokens", 12000, 48000, 6000, "") ==
        "read: 12,000 of 48,000 tokens (25%), 6,000/s, 6.0s left");
  CHECK(progress_text("read", "tokens", 0, 48000, 0, "") == "read: 0 of 48,000 tokens (0%)");
  CHECK(progress_text("read", "lines", 5, 0, 2.5, "loss 3.1") == "read: 5 lines, 2.5/s, loss 3.1");
  CHECK(progress_text("read", "steps", 999, 1000, 999, "") ==
        "read: 999 of 1,000 steps (99%), 999/s, 0.0s left");
  CHECK(progress_text("read", "steps", 1000, 1000, 1000, "") ==
        "read: 1,000 of 1,000 steps (100%), 1,000/s");
}

TEST_CASE("without a terminal: a line now and then, and a summary") {
  ProgressStyle style;
  style.line_interval = milliseconds(40);
  const auto ending = logging(style, [] {
    Progress progress("read", "tokens", 1000);
    for (int i = 1; i <= 10; ++i) {
      std::this_thread::sleep_for(milliseconds(10));
      progress.update(std::int64_t{100} * i, "x");
    }
    progress.finish("done");
    progress.finish("again");
    progress.update(1);
  });
  const std::size_t lines = count(ending.err, "log: read: ");
  CHECK(lines >= 2);
  CHECK(lines <= 4);
  CHECK(count(ending.err, "of 1,000 tokens") == lines - 1);
  CHECK(count(ending.err, "log: read: 1,000 tokens in ") == 1);
  CHECK(count(ending.err, ", done\n") == 1);
  CHECK(count(ending.err, "\r") == 0);
}

TEST_CASE("the usual interval keeps short runs to one line") {
  const auto ending = logging(ProgressStyle{}, [] {
    Progress progress("read", "tokens");
    for (int i = 0; i < 1000; ++i) progress.update(i);
    progress.finish();
  });
  CHECK(count(ending.err, "\n") == 1);
}

TEST_CASE("what an earlier run did counts for the total, not for the rate") {
  ProgressStyle style;
  style.line_interval = milliseconds(0);
  const auto ending = logging(style, [] {
    Progress progress("train", "steps", 1'000'000'000);
    progress.resume_at(999'999'990);
    std::this_thread::sleep_for(milliseconds(50));
    progress.update(999'999'995);
    progress.finish();
  });
  // Five steps in 50 ms or somewhat more.
  CHECK(ending.err.find("(99%), ") != std::string::npos);
  CHECK(count(ending.err, "train: 5 steps in 0.") == 1);
  const std::size_t rate = ending.err.find("(99%), ") + 7;
  CHECK(std::stod(ending.err.substr(rate)) <= 100);
  CHECK(std::stod(ending.err.substr(rate)) > 0.5);
}

TEST_CASE("quiet means nothing") {
  ProgressStyle style;
  style.bar = true;
  style.bar_interval = milliseconds(0);
  const auto ending = logging(style, [] {
    set_log_level(LogLevel::kQuiet);
    Progress progress("read", "tokens");
    progress.update(1);
    progress.finish();
  });
  CHECK(ending.err.empty());
}

TEST_CASE("the bar is drawn at its pace, makes room for lines and goes away") {
  ProgressStyle style;
  style.bar = true;
  style.bar_interval = milliseconds(20);
  const auto begin = std::chrono::steady_clock::now();
  const auto ending = logging(style, [] {
    Progress progress("read", "tokens", 100);
    for (int i = 1; i <= 50; ++i) {
      std::this_thread::sleep_for(milliseconds(2));
      progress.update(i);
    }
    log_info("hello");
    std::this_thread::sleep_for(milliseconds(30));
    progress.update(60);
  });
  const std::size_t drawn = count(ending.err, "\r[");
  CHECK(drawn >= 3);
  // A busy machine takes longer: at most one in each interval, at the beginning, and below the
  // line.
  const auto intervals = (std::chrono::steady_clock::now() - begin) / style.bar_interval;
  CHECK(drawn <= static_cast<std::size_t>(intervals) + 2);
  CHECK(count(ending.err, "\r\x1b[Klog: hello\n\r[") == 1);
  CHECK(ending.err.substr(ending.err.size() - 4) == "\r\x1b[K");
}

TEST_CASE("the bar fits the terminal") {
  const auto ending = in_child([] {
    const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0) return 77;
    const int slave = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY);
    winsize size = {};
    size.ws_col = 30;
    ::ioctl(slave, TIOCSWINSZ, &size);
    ::dup2(slave, STDERR_FILENO);
    ProgressStyle style;
    style.bar = true;
    style.bar_interval = milliseconds(0);
    set_progress_style(style);
    Progress progress("\xc3\xa9\xc3\xa9", "tokens", 100);
    progress.update(50);
    char buffer[200];
    const ssize_t got = ::read(terminal, buffer, sizeof buffer);
    // 29 columns (two bytes more for the two letters), carriage return, clear to the end of line
    const std::string expected = "\r[==========>         ] \xc3\xa9\xc3\xa9: 50\x1b[K";
    return std::string(buffer, static_cast<std::size_t>(got)) == expected ? 0 : 1;
  });
  if (ending.exit_code == 77) return;
  CHECK(ending.exit_code == 0);
}

TEST_CASE("lines of many threads stay whole") {
  ProgressStyle style;
  style.bar = true;
  style.bar_interval = milliseconds(0);
  const auto ending = logging(style, [] {
    Progress progress("read", "tokens");
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([] {
        for (int j = 0; j < 50; ++j) log_info("whole line");
      });
    }
    for (int i = 0; i < 50; ++i) progress.update(i);
    for (std::thread& thread : threads) thread.join();
  });
  CHECK(count(ending.err, "log: whole line\n") == 200);
}

}  // namespace ql
