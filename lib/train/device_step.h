// Trains a network on a device. A step, with Adam's update, is a fixed list of operations.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "machine/process_group.h"
#include "nn/model.h"
#include "nn/parameters.h"
#include "train/adam.h"
#include "train/config.h"
#include "train/training_step.h"

namespace ql::train {

// Runs Adam (train/adam.h) with ATen's operations, on any device. All parameters are in one tensor,
// so that an update takes few operations. step() does not wait for the device, so the host does not
// know which updates were skipped. Therefore the device counts the updates, without skipped ones.
class DeviceAdam {
 public:
  // `parameters` are shared with the model. Throws std::invalid_argument if there are none, or
  // unless all have the same floating-point type and device. Moves their data into one tensor,
  // which the model and other holders of the parameters then share. Moments start as zeros.
  DeviceAdam(const std::vector<nn::NamedTensor>& parameters, const AdamOptions& options);

  // Returns one tensor with the gradients of all parameters, one after another. Zeros fill the
  // padding and replace missing gradients. Drops the parameters' own gradients.
  at::Tensor take_gradient();

  // Runs one update with `gradient`, which take_gradient() returned, times `gradient_scale`. The
  // update may overwrite `gradient`. If `applies` is false, weights, moments and the number of
  // updates keep their values. All arguments except `gradient` have no dimension and are on the
  // device: `applies` is a bool, the others are of any floating-point type.
  void step(const at::Tensor& gradient, const at::Tensor& gradient_scale,
            const at::Tensor& learning_rate, const at::Tensor& applies);

  // Returns the number of updates that were not skipped. Waits for the device.
  std::int64_t steps() const;
  // These do the same as Adam::moments() and Adam::set_steps().
  const std::vector<nn::NamedTensor>& moments() const { return moments_; }
  void set_steps(std::int64_t steps);

 private:
  // Describes the range of a parameter in the tensor of all parameters.
  struct Part {
    nn::NamedTensor parameter;
    std::int64_t begin = 0, size = 0, padding = 0;  // in elements; the padding follows
  };
  at::Tensor part_of(const at::Tensor& all, const Part& part) const;

  AdamOptions options_;
  std::vector<Part> parts_;
  at::Tensor weights_, first_, second_;   // [elements]
  std::vector<nn::NamedTensor> moments_;  // for every parameter: views into first_ and second_
  at::Tensor decayed_;  // [elements]: 1 if weight decay acts, else 0; undefined without decay
  at::Tensor steps_;    // float64, no dimension
  bool fused_ = false;  // ATen's fused kernel runs the update
  at::Tensor zeros_;    // enough zeros to replace any missing gradient, or to fill any padding
};

// DeviceStep is a training step as a fixed list of operations on a device. On a GPU, if
// can_be_recorded() is true, the list does not depend on values of the host, and the host reads no
// results while it enqueues the list. Everything that differs from step to step is read from
// tensors that stay in place. So a step can be enqueued while the previous one is running, and a
// GPU can capture the list once and replay it.

// Holds what the host sends to a step, in two tensors, so that two transfers suffice.
struct StepInput {
  at::Tensor ids;      // int64: the ids of Streams::read(), then Streams::document_ages()
  at::Tensor numbers;  // float64: learning rate, step, droppath weights

  // Both tensors start as zeros. `options` names the device, or pinned memory.
  StepInput(std::int64_t batch, std::int64_t segment, std::int64_t scales,
            const at::TensorOptions& options);

  // `weights` are the droppath weights, one for each scale. `step` counts from 0.
  void set_numbers(double learning_rate, std::int64_t step, const std::vector<double>& weights);
  at::Tensor learning_rate() const { return numbers.select(0, 0); }
  at::Tensor step() const { return numbers.select(0, 1); }
  at::Tensor scale_weights() const { return numbers.narrow(0, 2, numbers.size(0) - 2); }
};

// Holds sums over the steps since the last report, copied from the device in one transfer.
struct StepReport {
  std::int64_t steps = 0;
  double loss = 0, gradient_norm = 0;  // sums
  // This is the first step whose loss was not finite, or whose gradient was not finite at a loss
  // scale of 1; -1: none. This step and later steps change neither weights nor Adam's moments.
  std::int64_t failed_step = -1;
  double failed_loss = 0, failed_norm = 0;
};

class DeviceStep {
 public:
  // `model` must outlive the step; the model's parameters become parts of DeviceAdam's one tensor.
  // The memory starts as zeros. With a `group`, which must outlive the step, the step computes only
  // this process's rows. The loss is scaled if the precision is float16. `scales_loss` replaces
  // this rule in tests on devices that may lack float16.
  DeviceStep(nn::Model& model, const TrainingConfig& config, machine::ProcessGroup* group = nullptr,
             std::optional<bool> scales_loss = std::nullopt);

  StepInput& input() { return input_; }
  // Returns the rows of the batch that the step computes.
  const machine::RowRange& rows() const { return rows_; }
  std::int64_t scales() const;
  void forget();  // sets the memory to zeros
  // A step is compute(), sum() and update(), in this order. compute() runs the forward and the
  // backward pass and replaces the memory. Its loss and gradient are what this process's rows add
  // to the means over the batch. `number` is the number of the step; only dropout on the CPU uses
  // it.
  void compute(std::int64_t number);
  // Returns the loss that a step with this input would have, over all processes, and changes
  // nothing. With `forgets` the step would begin with an empty memory.
  double loss_of(std::int64_t number, bool forgets);
  // Sums loss and gradient over all processes, which must call this together
  // (machine/process_group.h).
  void sum();
  // Updates the weights and adds to the report. If loss or gradient is not finite, or an earlier
  // step failed, weights and Adam's moments do not change.
  void update();

  // Waits for the device, returns the report, and sets its sums to zero.
  StepReport take_report();

  nn::Memory& memory() { return memory_; }
  const nn::Memory& memory() const { return memory_; }
  // Includes the loss scale if the loss is scaled.
  std::vector<nn::NamedTensor> moments() const;
  DeviceAdam& adam() { return adam_; }
  const DeviceAdam& adam() const { return adam_; }

 private:
  // Computes the loss of the input, and replaces `memory`.
  StepLoss forward(std::int64_t number, nn::Memory& memory);

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
  at::Tensor loss_, gradient_;  // results of compute()
};

// Returns true if a step of this network can be captured as a CUDA graph: the step must enqueue the
// same operations for any tokens.
bool can_be_recorded(const net::Network& network);

// Trains a network on a device other than the CPU. The host reads the next batch and enqueues the
// next step while the device computes. The host reads losses only in finish(). By then, steps after
// a diverged step may have run. If the loss or the gradient of the diverged step is not finite, the
// later steps do not change the weights. A jump of the loss is detected in the mean of all steps
// since the last finish(), so the weights have already changed by then. In both cases the memory is
// that of the last enqueued step.

class CudaSteps;

class DeviceTrainer : public TrainedNetwork {
 public:
  // Throws what make_trained_network() throws. Tests also make a DeviceTrainer on the CPU. With a
  // `group`, the processes share the rows of the batch as in CpuTrainer, with one device per
  // process.
  DeviceTrainer(const net::Network& network, const TrainingConfig& config,
                const ComputeDevice& compute, machine::ProcessGroup* group = nullptr);
  ~DeviceTrainer() override;

  StepResult step(Streams& streams, std::int64_t step, double learning_rate) override;
  double loss_of(Streams& streams, std::int64_t step) override;
  StepResult finish() override;

  nn::Memory memory() const override;
  void set_memory(const nn::Memory& memory) override;
  std::vector<nn::NamedTensor> moments() const override { return step_.moments(); }
  std::int64_t updates() const override { return step_.adam().steps(); }
  void set_updates(std::int64_t updates) override { step_.adam().set_steps(updates); }

 private:
  // Prepares `host_` for a step, and the generator of dropout masks.
  void fill_input(Streams& streams, std::int64_t step, double learning_rate);
  void upload();

  DeviceStep step_;
  StepInput host_;              // for the next step, in pinned memory if the device is a GPU
  std::int64_t last_step_ = 0;  // the number of the step that was enqueued last
#ifdef QL_CUDA
  std::unique_ptr<CudaSteps> cuda_;
#endif
};

}  // namespace ql::train
