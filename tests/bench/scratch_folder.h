// A folder of a benchmark's own, removed at the end.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

class ScratchFolder {
 public:
  ScratchFolder()
      : path_(std::filesystem::temp_directory_path() / ("ql-bench." + std::to_string(::getpid()))) {
    std::filesystem::create_directory(path_);
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};
