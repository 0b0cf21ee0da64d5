// Turns output states into losses, adds them up, and writes the losses of single tokens.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/stream.h"
#include "eval/evaluate.h"
#include "nn/model.h"

namespace ql::eval {

// Returns the `top` likeliest tokens for states [rows, d_model], row by row, the likeliest first,
// and of equally likely ones the one with the lower id. The log probabilities exist only for a
// block of rows at a time.
std::vector<LikelyToken> likeliest_in_blocks(const nn::Model& model, const at::Tensor& states,
                                             std::int64_t top);

// Returns the number of rows for a call of likeliest_in_blocks(). If `top` is 0, these are all
// rows. Calls with this number compute the same blocks as one call with all rows, so they give the
// same bits. A call's result takes at most 64 MiB, except if one block takes more.
std::int64_t rows_of_likeliest(const nn::Model& model, const at::Tensor& states, std::int64_t top);

// Adds the losses of targets to `result` and hands the targets to options.sink. Targets before
// options.first_target are left out. Throws NotFinite for a loss, or for a likely token's
// probability, that is not finite.
void add_losses(ScoredTargets targets, const EvaluationOptions& options, Evaluation& result);

// Computes the losses of states [rows, d_model] for the targets `ids`. Hands targets and losses to
// add_losses() block by block, with the `options.top` likeliest tokens for each state. The
// ascending `positions` of the targets in the stream may have gaps. Throws Interrupted after a
// block if a signal requests a stop.
void score_states(const nn::Model& model, const at::Tensor& states,
                  const std::vector<std::int64_t>& ids, const std::vector<std::int64_t>& positions,
                  const EvaluationOptions& options, Evaluation& result);

// Writes the losses of single tokens, so that a script can align them with the tokens: one
// little-endian float32 per target, in nats, in stream order, and nothing else. Keeps 4 bytes per
// target in memory, so that standard output gets all losses or, after an error, none.
class LossFile {
 public:
  // `path` "-" is standard output. The file is opened here, so that a path that cannot be written
  // is reported before the work is done. `targets` is the number of the stream's tokens minus one.
  LossFile(const std::string& path, std::int64_t targets);
  // `position` counts the stream's tokens from 0, so the first target has position 1.
  void put(std::int64_t position, const double* losses, std::int64_t count);
  // Writes everything; the file appears complete or not at all.
  void commit();

 private:
  static constexpr std::size_t kBytesOfLoss = sizeof(float);
  OutputStream output_;
  std::string bytes_;  // the content of the file
};

}  // namespace ql::eval
