// Turns output states into losses and adds them to an evaluation.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "eval/evaluate.h"
#include "nn/model.h"

namespace ql::eval {

// Returns the losses of states [rows, d_model] for targets [rows] as float64 [rows] on the CPU. The
// logits exist only in blocks of rows, which bound their memory for any vocabulary.
at::Tensor losses_in_blocks(const nn::Model& model, const at::Tensor& states,
                            const at::Tensor& targets);

// Returns the `top` likeliest tokens for states [rows, d_model], row by row, the best first. The
// probabilities exist in blocks of rows, too.
std::vector<LikelyToken> likeliest_in_blocks(const nn::Model& model, const at::Tensor& states,
                                             std::int64_t top);

// Returns how many rows should have their likeliest tokens at once, so that these take at most
// 64 MiB where the vocabulary allows it. Blocks of this many rows have the bits that all of them
// have together.
std::int64_t rows_of_likeliest(const nn::Model& model, const at::Tensor& states, std::int64_t top);

// Does the same as add_losses() for the targets of states [rows, d_model], and fills in their
// `options.top` likeliest tokens, a block of rows at a time. Throws Interrupted between blocks.
void add_losses_with_likeliest(const nn::Model& model, const at::Tensor& states,
                               const ScoredTargets& targets, const EvaluationOptions& options,
                               Evaluation& result);

// Adds the losses of targets and hands them to the sinks. Those before options.first_target are
// left out.
void add_losses(ScoredTargets targets, const EvaluationOptions& options, Evaluation& result);

}  // namespace ql::eval
