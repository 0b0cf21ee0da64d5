// Adapts the factor that scales the loss.

#include "train/loss_scale.h"

namespace ql::train {

LossScale::LossScale(bool adapts, const at::Device& device)
    : adapts_(adapts), state_(at::zeros({2}, at::TensorOptions(at::kFloat).device(device))) {
  state_.select(0, 0).fill_(adapts ? kFirst : 1);
}

void LossScale::update(const at::Tensor& finite) {
  if (!adapts_) return;
  const at::Tensor old = factor(), steps = state_.select(0, 1) + 1;
  const at::Tensor doubles = finite.logical_and(steps.ge(kStepsToDouble));
  const at::Tensor raised = at::where(doubles, (old * 2).clamp_max(kLargest), old);
  const at::Tensor next = at::where(finite, raised, (old / 2).clamp_min(1));
  const at::Tensor stays = finite.logical_and(doubles.logical_not());
  state_.copy_(at::stack({next, steps * stays}));
}

}  // namespace ql::train
