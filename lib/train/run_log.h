// RUN/log.jsonl: one JSON object a line, whole lines only.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/json.h"

namespace ql::train {

class RunLog {
 public:
  // Opens for appending. Records that are newer than the checkpoint a resume starts from are cut
  // off first, with a last line that was not finished: "train" records after `step` and
  // "validation" records after `validation_step`. A new run has step 0.
  RunLog(std::filesystem::path path, std::int64_t step, std::int64_t validation_step);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // One write of the whole line. When the disk is full the file keeps its earlier length and a
  // SystemError is thrown.
  void append(const Json& record);
  // Onto the disk: before a checkpoint that counts on it.
  void sync();

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace ql::train
