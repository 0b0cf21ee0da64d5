// Writes RUN/log.jsonl, one JSON object a line and whole lines only. Beside it writes a TensorBoard
// event file with the same course of the training.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/append_file.h"
#include "base/json.h"

namespace ql::train {

class RunLog {
 public:
  // Opens for appending. First cuts off an unfinished last line and the records that are newer than
  // the checkpoint a resume starts from: "train" records after `step`, "validation" records after
  // `validation_step`, "divergence" records after the first `divergences`, "resume" records of
  // `step` itself, which led to no checkpoint. A new run has step 0.
  // The event file is made anew from the lines that stay. `elapsed`, the seconds of training so
  // far, is the present time on its clock.
  RunLog(const std::filesystem::path& path, std::int64_t step, std::int64_t validation_step,
         double elapsed = 0, std::int64_t divergences = 0);

  // Writes the whole line at once. When the disk is full, the file keeps its earlier length and a
  // SystemError is thrown.
  void append(const Json& record);
  // Brings the log onto the disk. It must come before a checkpoint that counts on it.
  void sync();

 private:
  double began_;  // seconds since 1970 at which the training began, had it never paused
  std::optional<AppendFile> lines_, events_;
};

}  // namespace ql::train
