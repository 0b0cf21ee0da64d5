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

// Adds the losses of targets and hands them to the sinks. Those before options.first_target are
// left out.
void add_losses(ScoredTargets targets, const EvaluationOptions& options, Evaluation& result);

}  // namespace ql::eval
