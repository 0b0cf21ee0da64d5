// A training step as a fixed list of operations on a device. The list does not look at the host,
// and the host looks at nothing that depends on it. Everything that differs from step to step is
// read from tensors that stay where they are. So a step can be enqueued while the one before it
// still runs, and a GPU can record the list once and replay it.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "machine/process_group.h"
#include "nn/model_at_lengths.h"
#include "train/config.h"
#include "train/device_adam.h"
#include "train/loss_scale.h"

namespace ql::train {

// The host's message to a step. It is two tensors, so two copies.
struct StepInput {
  at::Tensor ids;      // int64: the ids of Streams::read(), then an age for each row
  at::Tensor numbers;  // float64: see the functions that read them

  // Starts as zeros. `options` carries the device, or pinned memory.
  StepInput(std::int64_t batch, std::int64_t segment, std::int64_t scales,
            const at::TensorOptions& options);

  // `weights` are those of droppath, one for each scale. `step` counts from 0.
  void set_numbers(double learning_rate, std::int64_t step, const std::vector<double>& weights);
  at::Tensor learning_rate() const { return numbers.select(0, 0); }
  at::Tensor step() const { return numbers.select(0, 1); }
  at::Tensor scale_weights() const { return numbers.narrow(0, 2, numbers.size(0) - 2); }
};

// The sums that the steps since the last report left on the device. They are one tensor, so one
// copy.
struct StepReport {
  std::int64_t steps = 0;
  double loss = 0, gradient_norm = 0;  // sums
  // The first step with a loss or gradient that is not finite, or -1. No step after it changed
  // anything. Its loss and norm follow.
  std::int64_t failed_step = -1;
  double failed_loss = 0, failed_norm = 0;
};

class DeviceStep {
 public:
  // `model` must outlive the step; its parameters move (DeviceAdam). The memory starts as zeros.
  // With a `group`, which must outlive the step, it computes this process's share of the rows.
  DeviceStep(nn::Model& model, const TrainingConfig& config,
             machine::ProcessGroup* group = nullptr);
  // For tests, which may have no float16: `scales_loss` says whether the loss is scaled as float16
  // needs it.
  DeviceStep(nn::Model& model, const TrainingConfig& config, machine::ProcessGroup* group,
             bool scales_loss);

  StepInput& input() { return input_; }
  const machine::RowRange& rows() const { return rows_; }  // of the batch, those of the step
  std::int64_t scales() const;
  void forget();  // the memory becomes zeros
  // A step is these three calls, in this order. This one runs forward and backward and replaces the
  // memory. It makes loss and gradient of the own rows' part of the mean. Only the CPU reads
  // `number`, which is the step's, for its dropout.
  void compute(std::int64_t number);
  // Sums loss and gradient over all processes. This call is common (machine/process_group.h).
  void sum();
  // Updates the weights and adds to the report. A loss or gradient that is not finite leaves
  // weights and moments as they are.
  void update();

  // Waits for the device. The sums start anew.
  StepReport take_report();

  nn::Memory& memory() { return memory_; }
  const nn::Memory& memory() const { return memory_; }
  // With float16 the scale of the loss is among them.
  std::vector<nn::NamedTensor> moments() const;
  DeviceAdam& adam() { return adam_; }
  const DeviceAdam& adam() const { return adam_; }

 private:
  nn::Model& model_;
  TrainingConfig config_;
  machine::ProcessGroup* group_;
  machine::RowRange rows_;
  nn::ModelAtLengths at_lengths_;
  DeviceAdam adam_;
  nn::Memory memory_;
  StepInput input_;
  at::Tensor report_;  // float64 [6]: the members of StepReport, in their order
  at::Tensor sound_;   // bool: no step has failed so far
  LossScale loss_scale_;
  at::Tensor loss_, gradient_;  // of compute()
};

// Tells whether a step of this network can be recorded: it must enqueue the same operations
// whatever its tokens are.
bool can_be_recorded(const net::Network& network);

}  // namespace ql::train
