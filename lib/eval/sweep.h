// Evaluates every combination of models, data and lengths of one qleval call.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "eval/evaluate.h"
#include "eval/units.h"
#include "machine/precision.h"

namespace ql::eval {

// The lengths, sink and progress of EvaluationOptions are those of each row.
struct SweepOptions : EvaluationOptions {
  std::vector<std::string>
      checkpoints;  // folders with model.json and model.safetensors, or that model.json
  std::optional<std::string> unigram;  // training data of the unigram baseline
  std::vector<std::string> data;       // folders with a manifest; "-" once
  // Lengths to combine; an empty list stands for the length each checkpoint was trained with.
  std::vector<std::int64_t> segments, memories, compressed_memories;
  c10::Device device = c10::DeviceType::CPU;
  machine::Precision precision = machine::Precision::kFloat32;
  std::optional<std::string> loss_file;       // LossFile's path; only for a sweep of one row
  std::optional<std::string> attention_file;  // for attention_row()s; only for a sweep of one row
};

// Calls `row` with each report_row() as soon as it is known. The checkpoints come in the order
// given, then the unigram model. Within each come the data sets, and within those segment, memory
// and compressed memory lengths, the last one changing fastest.
//
// Everything that can be checked without evaluating is checked before the first evaluation: the
// models' files, every combination of lengths, the data and their vocabularies. Throws UsageError
// for a loss file with several rows, otherwise what evaluate(), open_data() and check_vocabulary()
// throw.
void run_sweep(const SweepOptions& options, const std::function<void(const Json& row)>& row);

// Evaluates one checkpoint with one choice of lengths on one data set, unit by unit (eval/units.h).
// The sink gets every sum as soon as it is known, or for Unit::kToken `token_sink` every token; the
// result is report_row(). Throws UsageError unless there is exactly one row, and if options.top
// exceeds the vocabulary, otherwise what score_units() throws.
Json run_unit_study(const SweepOptions& options, Unit unit, const UnitSums::Sink& sink,
                    const TokenSink& token_sink = {});

}  // namespace ql::eval
