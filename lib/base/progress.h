// A progress bar on a terminal (redrawn at most 6 times a second, with rate and remaining time),
// one plain line a minute otherwise, nothing with --quiet.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace ql {

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
  // Clears the bar and logs one summary line at info level.
  void finish(const std::string& note = "");
  // Clears the bar so that another line can be printed; the next update draws it again.
  void clear();

 private:
  void draw(bool last, const std::string& note);
  using Clock = std::chrono::steady_clock;
  std::string title_, unit_;
  std::int64_t total_, done_ = 0;
  Clock::time_point start_, last_draw_;
  bool terminal_, drawn_ = false, finished_ = false;
};

}  // namespace ql
