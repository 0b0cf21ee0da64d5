// From output states to losses, and into an evaluation.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "eval/evaluate.h"
#include "nn/model.h"

namespace ql::eval {

// The losses of states [rows, d_model] for targets [rows]: float64 [rows] on the CPU. The logits
// exist in blocks of rows, whatever the vocabulary's size.
at::Tensor losses_in_blocks(const nn::Model& model, const at::Tensor& states,
                            const at::Tensor& targets);

// Adds the losses of `count` targets `ids` from `position` of the stream on, but for those before
// options.first_target, and hands them to the sink.
void add_losses(std::int64_t position, const std::int64_t* ids, const double* losses,
                std::int64_t count, const EvaluationOptions& options, Evaluation& result);

}  // namespace ql::eval
