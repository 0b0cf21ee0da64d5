// Prints human-readable messages on standard error, and draws the progress bar.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ql {

// Human-readable messages go to stderr. Data never goes to stderr.
//
// The library logs through these functions only. A program that embeds the library installs its own
// sink or none: without a sink every line is discarded. run_tool() installs a sink that writes to
// stderr.

enum class LogLevel { kQuiet = 0, kWarning = 1, kInfo = 2, kDebug = 3 };

using LogSink = std::function<void(LogLevel, const std::string& line)>;
void set_log_sink(LogSink sink);
void set_log_level(LogLevel level);
LogLevel log_level();
void log_line(LogLevel level, const std::string& line);

template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
}

// On a terminal, a Progress draws a bar with rate and remaining time, at most 6 times per second.
// Elsewhere it logs one plain line per minute. With --quiet it shows nothing.

// All Progress objects show themselves in this style. The library never draws by itself: run_tool
// switches the bar on when stderr is a terminal.
struct ProgressStyle {
  bool bar = false;                             // draw on stderr instead of logging lines
  std::chrono::milliseconds bar_interval{170};  // at most 6 times per second
  std::chrono::milliseconds line_interval{60'000};
  // Tests have a clock of their own.
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
};
void set_progress_style(const ProgressStyle& style);

class Progress {
 public:
  // `unit` is the thing counted ("tokens"); a `total` of 0 means that it is unknown.
  Progress(std::string title, std::string unit, std::int64_t total = 0);
  ~Progress();  // clears the bar if finish() was not called
  Progress(Progress&&) = delete;

  // `done` is the count up to now. A call is cheap: until the next drawing is due, it only reads
  // the clock. `note` (loss, perplexity ...) ends the line.
  void update(std::int64_t done, const std::string& note = "");
  // Shows the caller's fields, the most important first, in place of count, rate and remaining
  // time. `part` is the share that is done, from 0 to 1, or negative if unknown. The bar is
  // followed by as many of the first fields as fit the terminal; a plain line has all fields.
  // `words` returns the fields, and is only called when a line is drawn.
  using Words = std::vector<std::string>;
  void show(double part, const std::function<Words()>& words);
  // Clears the bar and logs one summary line at info level.
  void finish(const std::string& note = "");
  // Clears the bar so that another line can be printed; the next update draws it again.
  void clear();

 private:
  double seconds() const;
  double rate() const;
  std::string title_, unit_;
  std::int64_t total_, done_ = 0;
  std::chrono::steady_clock::time_point start_, last_draw_;
  bool finished_ = false;
};

// Prints a line on stderr, after clearing a drawn bar. Any thread may call this function.
void print_above_progress(const std::string& line);

// Returns the text that a Progress shows: "read: 12,000 of 48,000 tokens (25%), 6,000/s, 6.0s
// left".
std::string progress_text(const std::string& title, const std::string& unit, std::int64_t done,
                          std::int64_t total, double per_second, const std::string& note);

}  // namespace ql
