// Evaluates every combination of models, data and lengths of one qleval call.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "eval/evaluate.h"
#include "eval/units.h"
#include "machine/precision.h"
#include "machine/process_group.h"
#include "net/model_file.h"

namespace ql::eval {

struct Checkpoint {
  std::string name;  // as given
  std::filesystem::path folder;
  net::ModelFile model;
  std::vector<net::Lengths> lengths;  // compressed memory changes fastest, segment slowest
};

// Reads model.json of `name`, a folder or the path of that file, and changes the network. Throws
// Error if there are no weights. Throws ConfigError for a change or lengths that do not fit the
// network and, if `stride` is not 0, for lengths that check_stride() refuses.
Checkpoint read_checkpoint(const std::string& name, const net::LengthLists& lists,
                           const net::AttentionChange& change, std::int64_t stride = 0);

// Returns what all processes of a job must have in common: the version, the networks and the
// lengths. The weights and the data are left to the caller.
std::vector<machine::Fact> facts_of(const std::vector<Checkpoint>& checkpoints);

// For each row of results, the sweep itself sets `lengths`, `unknown`, `sink`, `progress` and
// `attention_map`.
struct SweepOptions : EvaluationOptions {
  std::vector<std::string>
      checkpoints;  // folders with model.json and model.safetensors, or paths to their model.json
  std::optional<std::string> unigram;  // training data of the unigram baseline
  std::vector<std::string> data;       // folders with a manifest, or token streams; at most one "-"
  net::LengthLists lists;              // of the checkpoints
  net::AttentionChange change;         // of all networks
  c10::Device device = c10::DeviceType::CPU;
  machine::Precision precision = machine::Precision::kFloat32;
  std::optional<std::string> loss_file;       // LossFile's path; only for a sweep of one row
  std::optional<std::string> attention_file;  // gets attention_row()s; only for a sweep of one row
};

// Calls `row` with each report_row() as soon as it is known. The rows of the checkpoints come in
// the order of `checkpoints`, then the rows of the unigram model. The rows of a model are ordered
// by data set, then by segment, memory and compressed memory length; the last of them changes
// fastest. If there are several data sets, rows with the model's sums over all of them follow.
//
// Before the first evaluation this function checks every model.json, the existence of weights,
// every combination of lengths, and the data with their vocabularies. Data that is read in one pass
// is checked in that pass instead. Throws UsageError for a loss file, an attention file or
// independent units unless there is one row. Also throws the errors of evaluate(), open_data() and
// check_vocabulary().
void run_sweep(const SweepOptions& options, const std::function<void(const Json& row)>& row);

// Evaluates one checkpoint with one choice of lengths on one data set, unit by unit (eval/units.h).
// The sink gets every sum as soon as it is known; for Unit::kToken, `token_sink` gets every token
// instead. Returns the report_row() of the evaluation. Throws UsageError unless `options` has
// exactly one checkpoint, one data set and one choice of lengths, and no unigram model. Throws
// UsageError if options.top exceeds the size of the vocabulary. Also throws the errors of
// score_units().
Json run_unit_sweep(const SweepOptions& options, Unit unit, const UnitSums::Sink& sink,
                    const TokenSink& token_sink = {});

}  // namespace ql::eval
