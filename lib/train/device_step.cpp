#include "train/device_step.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "machine/device.h"
#include "net/clusters.h"
#include "train/step_loss.h"

namespace ql::train {

StepInput::StepInput(std::int64_t batch, std::int64_t segment, std::int64_t scales,
                     const at::TensorOptions& options)
    : ids(at::zeros({batch * (segment + 1) + batch}, options.dtype(at::kLong))),
      numbers(at::zeros({2 + scales}, options.dtype(at::kDouble))) {}

void StepInput::set_numbers(double learning_rate, std::int64_t step,
                            const std::vector<double>& weights) {
  auto* out = numbers.data_ptr<double>();
  out[0] = learning_rate;
  out[1] = static_cast<double>(step);
  std::copy(weights.begin(), weights.end(), out + 2);
}

DeviceStep::DeviceStep(nn::Model& model, const TrainingConfig& config, machine::ProcessGroup* group)
    : DeviceStep(model, config, group, config.precision == machine::Precision::kFloat16) {}

DeviceStep::DeviceStep(nn::Model& model, const TrainingConfig& config, machine::ProcessGroup* group,
                       bool scales_loss)
    : model_(model),
      config_(config),
      group_(group),
      rows_(group != nullptr ? group->share_of(config.batch) : machine::RowRange{0, config.batch}),
      at_lengths_(model, model.network().lengths),
      adam_(model.parameters(), adam_options(config)),
      memory_(at_lengths_.start_memory(rows_.count)),
      input_(rows_.count, at_lengths_.geometry().lengths.segment, scales(),
             at::TensorOptions().device(model.options().device())),
      report_(at::zeros({6}, input_.numbers.options())),
      sound_(at::ones({}, report_.options().dtype(at::kBool))),
      loss_scale_(scales_loss, model.options().device()) {
  report_.select(0, 3).fill_(-1);
}

std::int64_t DeviceStep::scales() const {
  return static_cast<std::int64_t>(at_lengths_.geometry().outputs.size());
}

void DeviceStep::forget() {
  for (const nn::NamedTensor& state : memory_.named()) state.tensor.zero_();
}

void DeviceStep::compute(std::int64_t number) {
  const std::int64_t rows = rows_.count, row = at_lengths_.geometry().lengths.segment + 1;
  nn::StepOptions options;
  options.training = true;
  options.seed = static_cast<std::uint64_t>(config_.seed);
  options.step = static_cast<std::uint64_t>(number);
  options.first_row = rows_.first;
  options.scale_weights = input_.scale_weights().to(at::kFloat);
  if (model_.network().reset_memory_at_documents) {
    options.age_tensor = input_.ids.narrow(0, rows * row, rows);
  }
  nn::Memory memory = memory_;
  StepLoss loss;
  {
    const machine::Autocast autocast(model_.options().device(), config_.precision);
    loss = step_loss(at_lengths_, input_.ids.narrow(0, 0, rows * row).view({rows, row}), memory,
                     options, config_);
  }
  (loss.total * loss_scale_.factor()).backward();
  const std::vector<nn::NamedTensor> kept = memory_.named(), next = memory.named();
  for (std::size_t i = 0; i < kept.size(); ++i) kept[i].tensor.copy_(next[i].tensor);
  loss_ = loss.loss.detach().to(at::kDouble);
  gradient_ = adam_.take_gradient();
}

void DeviceStep::sum() {
  if (group_ != nullptr) {
    group_->sum(loss_);
    group_->sum(gradient_);
  }
}

void DeviceStep::update() {
  const at::NoGradGuard no_gradient;
  const at::Tensor& loss = loss_;
  const at::Tensor scale = loss_scale_.factor().to(at::kDouble);
  const at::Tensor norm =
      at::linalg_vector_norm(gradient_, 2, at::OptionalIntArrayRef(), false, at::kDouble) / scale;
  const at::Tensor finite_loss = at::isfinite(loss), finite_norm = at::isfinite(norm);
  const at::Tensor applies = sound_.logical_and(finite_loss).logical_and(finite_norm);
  at::Tensor factor = 1 / scale;
  if (config_.clip > 0) factor = factor * (config_.clip / norm).clamp_max(1);
  adam_.step(gradient_, factor, input_.learning_rate(), applies);

  // A smaller scale of the loss can cure an overflow, until it is 1.
  const at::Tensor curable = finite_loss.logical_and(scale.gt(1));
  const at::Tensor counts = applies.logical_or(sound_.logical_and(curable));
  const at::Tensor fails = sound_.logical_and(counts.logical_not());
  const at::Tensor zero = at::zeros({}, report_.options());
  const at::Tensor sums =
      at::stack({at::ones_like(zero), loss, at::where(finite_norm, norm, zero)});
  report_.narrow(0, 0, 3).add_(at::where(counts, sums, zero));
  const at::Tensor failure = report_.narrow(0, 3, 3);
  failure.copy_(at::where(fails, at::stack({input_.step(), loss, norm}), failure));
  sound_.logical_and_(fails.logical_not());

  loss_scale_.update(finite_norm);
  if (group_ == nullptr) {
    gradient_.reset();  // memory for the next step; sum() of a replayed step needs it where it is
  }
}

StepReport DeviceStep::take_report() {
  const at::Tensor found = report_.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
  const auto* values = found.data_ptr<double>();
  report_.narrow(0, 0, 3).zero_();
  return {static_cast<std::int64_t>(values[0]), values[1], values[2],
          static_cast<std::int64_t>(values[3]), values[4], values[5]};
}

std::vector<nn::NamedTensor> DeviceStep::moments() const {
  std::vector<nn::NamedTensor> moments = adam_.moments();
  if (loss_scale_.adapts()) moments.push_back({kLossScale, loss_scale_.state()});
  return moments;
}

bool can_be_recorded(const net::Network& network) {
  // With several clusters the host has to know how many rows each cluster has.
  return net::clusters(network).size() == 1;
}

}  // namespace ql::train
