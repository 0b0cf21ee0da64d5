// A progress bar on a terminal (redrawn at most 6 times a second, with rate and remaining time),
// one plain line a minute otherwise, nothing with --quiet.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ql {

// All Progress objects show themselves in this style. The library never draws by itself: run_tool
// switches the bar on when stderr is a terminal.
struct ProgressStyle {
  bool bar = false;                             // draw on stderr instead of logging lines
  std::chrono::milliseconds bar_interval{170};  // at most 6 times a second
  std::chrono::milliseconds line_interval{60'000};
  // Tests have a clock of their own.
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
};
void set_progress_style(const ProgressStyle& style);

class Progress {
 public:
  // `unit` is what is counted ("tokens"); `total` 0 means unknown.
  Progress(std::string title, std::string unit, std::int64_t total = 0);
  ~Progress();  // clears the bar if finish() was not called
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` is absolute. Cheap: looks at the clock and returns when it is too early to draw.
  // `note` is shown behind the bar (loss, perplexity ...).
  void update(std::int64_t done, const std::string& note = "");
  // Shows words of the caller's own, the most important first, in place of count, rate and
  // remaining time; `part` of the whole, from 0 to 1, is done. Behind the bar stand as many of the
  // first words as fit the terminal; elsewhere all of them. `words` is only called when the line is
  // drawn.
  using Words = std::vector<std::string>;
  void show(double part, const std::function<Words()>& words);
  // Clears the bar and logs one summary line at info level.
  void finish(const std::string& note = "");
  // Clears the bar so that another line can be printed; the next update draws it again.
  void clear();

 private:
  double seconds() const;
  double rate() const;
  bool is_time_to_draw(bool& bar);
  static void draw(bool bar, double part, const Words& words);
  std::string title_, unit_;
  std::int64_t total_, done_ = 0;
  std::chrono::steady_clock::time_point start_, last_draw_;
  bool finished_ = false;
};

// Prints a line on stderr; a drawn bar makes room for it. Any thread may call it.
void print_above_progress(const std::string& line);

// Returns what a Progress shows: "read: 12,000 of 48,000 tokens (25%), 6,000/s, 6.0s left".
std::string progress_text(const std::string& title, const std::string& unit, std::int64_t done,
                          std::int64_t total, double per_second, const std::string& note);

}  // namespace ql
