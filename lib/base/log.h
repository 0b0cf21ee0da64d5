// Words for people, on stderr. Data never goes here.
//
// The library logs through these functions only; a program that embeds it installs its own sink or
// none (the default sink of the library discards everything, run_tool installs stderr's).
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>

namespace ql {

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

}  // namespace ql
