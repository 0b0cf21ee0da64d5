// Passes messages to the function that prints them, and draws the progress bar on the same
// terminal.

#include "base/log.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <mutex>
#include <utility>

#include "base/rows.h"
#include "base/strings.h"

namespace ql {

namespace {

std::atomic<LogLevel> current_level{LogLevel::kInfo};

struct SinkHolder {
  std::mutex mutex;
  LogSink sink;
};

SinkHolder& holder() {
  // It is never destroyed, because threads may log while the program ends.
  static auto& instance = *new SinkHolder;
  return instance;
}

}  // namespace

void set_log_sink(LogSink sink) {
  const std::lock_guard<std::mutex> lock(holder().mutex);
  holder().sink = std::move(sink);
}

void set_log_level(LogLevel level) { current_level = level; }

LogLevel log_level() { return current_level; }

void log_line(LogLevel level, const std::string& line) {
  if (level > current_level) return;
  const std::lock_guard<std::mutex> lock(holder().mutex);
  if (holder().sink) holder().sink(level, line);
}

namespace {

constexpr std::size_t kBarCells = 20;

struct Screen {
  std::mutex mutex;
  ProgressStyle style;
  bool drawn = false;
};

Screen& screen() {
  static auto& instance = *new Screen;  // as in holder()
  return instance;
}

// Writes everything at once, so that lines of several processes do not mix. Ignores errors: there
// is no place left to report them.
void put(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void clear_locked() {
  if (std::exchange(screen().drawn, false)) put("\r\x1b[K");
}

// Returns "[======>             ] ", or nothing when `part` is negative: the total is then unknown.
std::string cells_of_bar(double part) {
  if (part < 0) return "";
  const auto full = static_cast<std::size_t>(std::min(part, 1.0) * kBarCells);
  std::string cells(full, '=');
  if (full < kBarCells) cells += '>';
  cells.resize(kBarCells, ' ');
  return "[" + cells + "] ";
}

// Cuts after `columns` characters.
std::string fit(const std::string& text, std::size_t columns) {
  std::size_t used = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool continues = (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
    if (!continues && used++ == columns) return text.substr(0, at);
  }
  return text;
}

// Appends to `start` as many fields as fit into `columns`, from the first on. Only the first field
// may be cut.
std::string fit_words(std::string start, const Progress::Words& words, std::size_t columns) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string longer = start + (i > 0 ? ", " : "") + words[i];
    if (i > 0 && count_code_points(longer) > static_cast<std::int64_t>(columns)) break;
    start = std::move(longer);
  }
  return fit(start, columns);
}

std::string rate_text(double rate) {
  if (rate >= 100) return with_thousands(std::llround(std::min(rate, 1e18)));
  return fmt::format("{:.3g}", rate);
}

ProgressStyle current_style() {
  const std::lock_guard<std::mutex> lock(screen().mutex);
  return screen().style;
}

}  // namespace

void set_progress_style(const ProgressStyle& style) {
  const std::lock_guard<std::mutex> lock(screen().mutex);
  clear_locked();
  screen().style = style;
}

void print_above_progress(const std::string& line) {
  const std::lock_guard<std::mutex> lock(screen().mutex);
  clear_locked();
  put(line + "\n");
}

std::string progress_text(const std::string& title, const std::string& unit, std::int64_t done,
                          std::int64_t total, double per_second, const std::string& note) {
  std::string text = title + ": " + with_thousands(done);
  if (total > 0) {
    const double part = static_cast<double>(done) / static_cast<double>(total);
    text += fmt::format(" of {} {} ({:.0f}%)", with_thousands(total), unit, std::floor(100 * part));
  } else {
    text += " " + unit;
  }
  if (per_second > 0) text += fmt::format(", {}/s", rate_text(per_second));
  if (per_second > 0 && total > done) {
    text += fmt::format(", {} left", human_seconds(static_cast<double>(total - done) / per_second));
  }
  if (!note.empty()) text += ", " + note;
  return text;
}

Progress::Progress(std::string title, std::string unit, std::int64_t total)
    : title_(std::move(title)),
      unit_(std::move(unit)),
      total_(total),
      start_(current_style().now()),
      last_draw_(start_) {}

Progress::~Progress() { clear(); }

double Progress::seconds() const {
  return std::chrono::duration<double>(current_style().now() - start_).count();
}

double Progress::rate() const {
  const double time = seconds();
  return time > 0 ? static_cast<double>(done_) / time : 0;
}

void Progress::update(std::int64_t done, const std::string& note) {
  done_ = done;
  const double part =
      total_ > 0 ? std::max(0.0, static_cast<double>(done_) / static_cast<double>(total_)) : -1.0;
  show(part, [&] { return Words{progress_text(title_, unit_, done_, total_, rate(), note)}; });
}

void Progress::show(double part, const std::function<Words()>& words) {
  if (finished_ || log_level() < LogLevel::kInfo) return;
  const ProgressStyle style = current_style();
  const auto now = style.now();
  if (now - last_draw_ < (style.bar ? style.bar_interval : style.line_interval)) return;
  last_draw_ = now;
  if (!style.bar) return log_line(LogLevel::kInfo, fmt::format("{}", fmt::join(words(), ", ")));
  const std::size_t terminal = terminal_width(STDERR_FILENO);
  const std::size_t width = terminal > 0 ? terminal : 80;
  const std::string line = printable(fit_words(cells_of_bar(part), words(), width - 1));
  const std::lock_guard<std::mutex> lock(screen().mutex);
  put("\r" + line + "\x1b[K");
  screen().drawn = true;
}

void Progress::finish(const std::string& note) {
  if (std::exchange(finished_, true)) return;
  clear();
  std::string text = fmt::format("{}: {} {} in {}", title_, with_thousands(done_), unit_,
                                 human_seconds(seconds()));
  if (rate() > 0) text += fmt::format(", {}/s", rate_text(rate()));
  if (!note.empty()) text += ", " + note;
  log_line(LogLevel::kInfo, text);
}

void Progress::clear() {
  const std::lock_guard<std::mutex> lock(screen().mutex);
  clear_locked();
}

}  // namespace ql
