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

// These compute losses of output states, and their sums.

// Returns the losses of states [rows, d_model] for targets [rows] as float64 [rows] on the CPU. The
// logits exist only in blocks of rows, which bound their memory for any vocabulary.
at::Tensor losses_in_blocks(const nn::Model& model, const at::Tensor& states,
                            const at::Tensor& targets);

// Returns the `top` likeliest tokens for states [rows, d_model], row by row, the likeliest first.
// The probabilities also exist only in blocks of rows.
std::vector<LikelyToken> likeliest_in_blocks(const nn::Model& model, const at::Tensor& states,
                                             std::int64_t top);

// Returns the number of rows whose likeliest tokens should be computed at once, so that they take
// at most 64 MiB if the vocabulary allows it. Blocks of this many rows give the same bits as all
// rows together.
std::int64_t rows_of_likeliest(const nn::Model& model, const at::Tensor& states, std::int64_t top);

// Adds the losses of targets and hands them to the sink, without those before
// options.first_target.
void add_losses(ScoredTargets targets, const EvaluationOptions& options, Evaluation& result);

// Does the same for states [rows, d_model] with the targets `ids`, and computes their losses and
// their `options.top` likeliest tokens, these a block of rows at a time. The ascending `positions`
// of the targets in the stream may have gaps. Throws Interrupted between blocks.
void score_states(const nn::Model& model, const at::Tensor& states,
                  const std::vector<std::int64_t>& ids, const std::vector<std::int64_t>& positions,
                  const EvaluationOptions& options, Evaluation& result);

// Writes the losses of single tokens for a script to align with the tokens: one little-endian
// float32 per target, natural logarithm, in stream order, and nothing else. Keeps 4 bytes a target
// in memory, because columns finish their targets out of order.
class LossFile {
 public:
  // `path` "-" is standard output. Either is opened here, so that a path that cannot be written
  // fails before the work is done. `targets` are the stream's tokens without the first.
  LossFile(const std::string& path, std::int64_t targets);
  // `position` counts the stream's tokens, so the first target has number 1.
  void put(std::int64_t position, const double* losses, std::int64_t count);
  // Writes everything; the file appears complete or not at all.
  void commit();

 private:
  static constexpr std::size_t kBytesOfLoss = sizeof(float);
  OutputStream output_;
  std::string bytes_;  // the content of the file
};

}  // namespace ql::eval
