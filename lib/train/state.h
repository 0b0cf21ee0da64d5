// Holds state.json of a checkpoint: where a training stands. There are no tensors here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "train/divergence.h"

namespace ql::train {

// Identifies the data that was read, so that a resume on other data is refused.
struct DataIdentity {
  // The command line gave this name, and a resume looks there; it is not compared.
  std::string name;
  std::optional<std::vector<std::string>> more;  // the folders that follow it, if any
  std::string hash;                              // shard::JoinedData::hash()
  std::int64_t tokens = 0;
  // "data/a", or "data/a and 2 more": for messages.
  std::string words() const;
};

struct Best {
  std::int64_t step = 0;
  double loss = 0;  // nats per token of the validation data
};

// The steps since the last record of the log.
struct SinceLog {
  std::int64_t steps = 0;
  double loss_sum = 0;  // nats per token
  double gradient_norm_sum = 0;
};

struct TrainingState {
  std::int64_t step = 0;      // finished steps
  std::int64_t updates = 0;   // TrainedNetwork::updates(), which write_checkpoint() asks for
  std::int64_t cursor = 0;    // the segment the next step reads (train/streams.h)
  double elapsed = 0;         // seconds of wall time, validation and earlier runs included
  std::int64_t epoch = 0;     // of the next step; it follows from cursor and is kept for readers
  std::int64_t position = 0;  // of the next step in each row's part; likewise
  std::int64_t validation_step = 0;  // the last step after which the model was validated; 0: none
  std::optional<Best> best;
  // Validations since the best one. Files of earlier versions lack it.
  std::optional<std::int64_t> since_best;
  SinceLog since_log;
  std::int64_t processes = 1;  // processes that wrote it together
  RunningLoss running_loss;
  Divergences divergences;
  DataIdentity data, validation;
};

// Returns what dump_json() would make, without a tree (base/json.h).
std::string state_text(const TrainingState& state);
TrainingState state_from_json(const JsonObject& json);

}  // namespace ql::train
