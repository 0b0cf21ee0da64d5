// Turns output states into losses and adds them to an evaluation.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "eval/evaluate.h"
#include "nn/model.h"

namespace ql::eval {

// Returns the losses of states [rows, d_model] for targets [rows] as float64 [rows] on the CPU. The
// logits exist only in blocks of rows, which bound their memory for any vocabulary.
at::Tensor losses_in_blocks(const nn::Model& model, const at::Tensor& states,
                            const at::Tensor& targets);

// Adds the losses of `count` targets `ids` from `position` of the stream on and hands them to the
// sink. Those before options.first_target are left out.
void add_losses(std::int64_t position, const std::int64_t* ids, const double* losses,
                std::int64_t count, const EvaluationOptions& options, Evaluation& result);

}  // namespace ql::eval
