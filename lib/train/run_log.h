// Reports on a training run: RUN/log.jsonl, its event file for TensorBoard, and the progress line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"

namespace ql::train {

// The keys of a checkpoint's network and training, with their values. This is not one Json, because
// the destructor of a long object needs memory, and cannot fail.
using Settings = std::map<std::string, Json>;

// Writes RUN/log.jsonl: one JSON object per line, and only complete lines. Also writes the records'
// scalars to a TensorBoard event file.
class RunLog {
 public:
  // Opens the log for appending. First removes an unfinished last line and the records that are
  // newer than the checkpoint from which a resume or rollback continues. These are "train" records
  // after `step` minus `unlogged_steps`, "validation" records after `validation_step`, "divergence"
  // records after the first `divergences`, and "resume" records after `step`. A "resume" record of
  // `step` is newer than the checkpoint if `settings`, the checkpoint's settings, lack its changes
  // and those of all later records of this kind and step. `unlogged_steps` is the number of the
  // checkpoint's newest steps that no "train" record has yet. A new run has step 0. The event file
  // is written again from the remaining lines. `elapsed`, the seconds of training so far, sets the
  // clock of the event file.
  RunLog(const std::filesystem::path& path, std::int64_t step, std::int64_t validation_step,
         double elapsed = 0, std::int64_t divergences = 0, const Settings& settings = {},
         std::int64_t unlogged_steps = 0);

  // Writes the complete line at once. If the disk is full, the file keeps its earlier length and
  // this throws SystemError.
  void append(const Json& record);
  // Flushes the log to the disk. Call this before writing a checkpoint that relies on the log.
  void sync();

 private:
  // An event's time, in seconds since 1970, is began_ plus the seconds of training before it.
  double began_;
  std::optional<AppendFile> lines_, events_;
};

// Names what each token of a vocabulary of this type (shard::VocabularyInfo) stands for:
// "character" or "byte". Other tokens have no such name: the result is "".
std::string unit_of_tokens(const std::string& type);
// Returns ", 1.2345 bits per character" for a loss in nats per token; "" if `unit` is empty.
std::string bits_text(double loss, const std::string& unit);
// Adds the loss to a record of the log, in bits, as "bits_per_character" or "bits_per_byte".
void add_bits(Json& record, double loss, const std::string& unit);

// Holds the figures of the progress line and of a "train" record of the log.
struct Figures {
  std::int64_t step = 0;     // finished steps
  double loss = 0;           // mean since the last record, nats per token
  std::string unit = {};     // unit_of_tokens()
  double learning_rate = 0;  // of the last step
  double gradient_norm = 0;  // mean since the last record, before clipping
  double tokens_per_second = 0;
  double seconds_left = -1;  // until the schedule's end or stop_at; negative: not known yet
};

// Formats the fields of the progress line: "14h20m left", "1,020 tokens/s", "loss 4.812", "1.234
// bits per character" if `unit` is known, "perplexity 123.0", "step 1,200 of 60,000", "learning
// rate 2.4e-04", "gradient 0.35". The most important fields come first, because a narrow terminal
// cuts off the end.
std::vector<std::string> figures_words(const Figures& figures, std::int64_t steps);

}  // namespace ql::train
