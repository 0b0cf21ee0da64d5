// Computes the loss that a step of training minimises.
#pragma once

#include <ATen/ATen.h>

#include "nn/model_at_lengths.h"
#include "train/config.h"

namespace ql::train {

// recons_loss_weight of the paper's appendix E.
constexpr double kReconstructionWeight = 0.01;

struct StepLoss {
  at::Tensor loss;   // these rows' part of the mean over the batch's targets that are trained on
  at::Tensor total;  // `loss` and the weighted reconstruction loss, whose gradient is taken
};

// Returns the loss of `ids` [rows, segment + 1], rows of a batch of config.batch. Each token's
// target is the one behind it. With half_loss the older half of the targets is only context.
// Replaces `memory` by the next step's.
StepLoss step_loss(const nn::ModelAtLengths& model, const at::Tensor& ids, nn::Memory& memory,
                   const nn::StepOptions& options, const TrainingConfig& config);

}  // namespace ql::train
