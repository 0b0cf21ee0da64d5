#include "base/log.h"

#include <atomic>
#include <mutex>
#include <utility>

namespace ql {

namespace {

std::atomic<LogLevel> current_level{LogLevel::kInfo};

struct SinkHolder {
  std::mutex mutex;
  LogSink sink;
};

SinkHolder& holder() {
  static SinkHolder instance;
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

}  // namespace ql
