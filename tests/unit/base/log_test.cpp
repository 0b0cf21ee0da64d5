// Tests messages and the progress bar, with a clock that the tests move.

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

// This clock stands still until a test moves it.
std::chrono::steady_clock::time_point now;
void pass(milliseconds time) { now += time; }

// Runs `work` with that clock in a child process whose log lines go to stderr as "log: ...".
test::Ending logging(ProgressStyle style, const std::function<void()>& work) {
  return in_child([&] {
    style.now = [] { return now; };
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

TEST_CASE("progress_text: count, rate and remaining time") {
  CHECK(progress_text("read", "tokens", 12000, 48000, 6000, "") ==
        "read: 12,000 of 48,000 tokens (25%), 6,000/s, 6.0s left");
  CHECK(progress_text("read", "tokens", 0, 48000, 0, "") == "read: 0 of 48,000 tokens (0%)");
  CHECK(progress_text("read", "lines", 5, 0, 2.5, "loss 3.1") == "read: 5 lines, 2.5/s, loss 3.1");
  CHECK(progress_text("read", "steps", 999, 1000, 999, "") ==
        "read: 999 of 1,000 steps (99%), 999/s, 0.0s left");
  CHECK(progress_text("read", "steps", 1000, 1000, 1000, "") ==
        "read: 1,000 of 1,000 steps (100%), 1,000/s");
}

TEST_CASE("Progress: without a terminal it logs a line now and then, and a summary") {
  ProgressStyle style;
  style.line_interval = milliseconds(40);
  const auto ending = logging(style, [] {
    Progress progress("read", "tokens", 1000);
    for (int i = 1; i <= 10; ++i) {
      pass(milliseconds(10));
      progress.update(std::int64_t{100} * i, "x");
    }
    progress.finish("done");
    progress.finish("again");
    progress.update(1);
  });
  CHECK(ending.err ==
        "log: read: 400 of 1,000 tokens (40%), 10,000/s, 0.1s left, x\n"
        "log: read: 800 of 1,000 tokens (80%), 10,000/s, 0.0s left, x\n"
        "log: read: 1,000 tokens in 0.1s, 10,000/s, done\n");
  CHECK(count(ending.err, "\r") == 0);
}

TEST_CASE("Progress: the default interval keeps short runs to one line") {
  const auto ending = logging(ProgressStyle{}, [] {
    Progress progress("read", "tokens");
    for (int i = 0; i < 1000; ++i) progress.update(i);
    progress.finish();
  });
  CHECK(count(ending.err, "\n") == 1);
}

TEST_CASE("Progress: with --quiet it prints nothing") {
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

TEST_CASE("Progress: the bar is drawn at its pace, makes room for lines and goes away") {
  ProgressStyle style;
  style.bar = true;
  style.bar_interval = milliseconds(20);
  const auto ending = logging(style, [] {
    Progress progress("read", "tokens", 100);
    for (int i = 1; i <= 50; ++i) {
      pass(milliseconds(2));
      progress.update(i);
    }
    log_info("hello");
    pass(milliseconds(30));
    progress.update(60);
  });
  // There are 50 updates in 100 ms, and the one after the line.
  CHECK(count(ending.err, "\r[") == 6);
  CHECK(count(ending.err, "\r\x1b[Klog: hello\n\r[") == 1);
  CHECK(ending.err.substr(ending.err.size() - 4) == "\r\x1b[K");
}

TEST_CASE("Progress: the bar fits the terminal") {
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
    // A carriage return precedes the line, and the sequence that clears to the end of the line
    // follows it. The line has 29 columns, of which the two letters take two bytes each.
    const std::string expected = "\r[==========>         ] \xc3\xa9\xc3\xa9: 50\x1b[K";
    return std::string(buffer, static_cast<std::size_t>(got)) == expected ? 0 : 1;
  });
  if (ending.exit_code == 77) return;
  CHECK(ending.exit_code == 0);
}

TEST_CASE("Progress: words that do not fit the terminal are left out, the last first") {
  // Returns the bar on a terminal with this many columns.
  const auto drawn = [](unsigned short columns) {
    return in_child([columns] {
             const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
             if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0) return 77;
             const int slave = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY);
             winsize size = {};
             size.ws_col = columns;
             ::ioctl(slave, TIOCSWINSZ, &size);
             const int said = ::dup(STDERR_FILENO);
             ::dup2(slave, STDERR_FILENO);
             ProgressStyle style;
             style.bar = true;
             style.bar_interval = milliseconds(0);
             set_progress_style(style);
             Progress progress("training", "steps");
             progress.show(0.5, [] { return Progress::Words{"3m left", "9 t/s", "loss 1"}; });
             char buffer[200];
             const ssize_t got = ::read(terminal, buffer, sizeof buffer);
             return ::write(said, buffer, static_cast<std::size_t>(got)) == got ? 0 : 1;
           })
        .err;
  };
  const std::string bar = "\r[==========>         ] ";
  const std::string all = drawn(47);
  if (all.empty()) return;  // no terminal can be made here
  CHECK(all == bar + "3m left, 9 t/s, loss 1\x1b[K");
  // One column stays free. With one column less a word does not fit.
  CHECK(drawn(46) == bar + "3m left, 9 t/s, loss 1\x1b[K");
  CHECK(drawn(45) == bar + "3m left, 9 t/s\x1b[K");
  CHECK(drawn(37) == bar + "3m left\x1b[K");
  CHECK(drawn(29) == bar + "3m le\x1b[K");
}

TEST_CASE("print_above_progress: lines of many threads stay complete") {
  ProgressStyle style;
  style.bar = true;
  style.bar_interval = milliseconds(0);
  const auto ending = logging(style, [] {
    Progress progress("read", "tokens");
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([] {
        for (int j = 0; j < 50; ++j) log_info("complete line");
      });
    }
    for (int i = 0; i < 50; ++i) progress.update(i);
    for (std::thread& thread : threads) thread.join();
  });
  CHECK(count(ending.err, "log: complete line\n") == 200);
}

}  // namespace ql
