#include "train/run_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace ql::train {
namespace {

std::string kept_lines(const fs::path& path, std::int64_t step, std::int64_t validation_step) {
  const std::string text = read_file(path);
  std::string kept;
  std::size_t begin = 0;
  for (std::int64_t number = 1;; ++number) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) {
      return kept;
    }
    const std::string line = text.substr(begin, end - begin);
    const std::string where = fmt::format("{}: line {}", path.string(), number);
    const Json json = parse_json(line, where);
    const JsonObject record(json, where);
    const bool validation = record.text("kind") == "validation";
    if (record.integer("step") <= (validation ? validation_step : step)) {
      kept += line + '\n';
    }
    begin = end + 1;
  }
}

}  // namespace

RunLog::RunLog(fs::path path, std::int64_t step, std::int64_t validation_step)
    : path_(std::move(path)) {
  write_file_atomically(path_, fs::exists(path_) ? kept_lines(path_, step, validation_step) : "");
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (descriptor_ < 0) {
    throw SystemError(path_.string(), "open", errno);
  }
}

RunLog::~RunLog() { ::close(descriptor_); }

void RunLog::append(const Json& record) {
  const std::string line = record.dump() + '\n';
  const off_t length = ::lseek(descriptor_, 0, SEEK_END);
  const ssize_t written = ::write(descriptor_, line.data(), line.size());
  if (written != static_cast<ssize_t>(line.size())) {
    const int reason = written < 0 ? errno : ENOSPC;
    const bool cut_back = length >= 0 && ::ftruncate(descriptor_, length) == 0;
    throw SystemError(path_.string(), cut_back ? "write" : "write or shorten", reason);
  }
}

void RunLog::sync() {
  if (::fsync(descriptor_) != 0) {
    throw SystemError(path_.string(), "write", errno);
  }
}

}  // namespace ql::train
