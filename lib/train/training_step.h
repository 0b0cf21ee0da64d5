// Trains a network step by step: the forward and the backward pass of a batch, the sum of its
// gradients, and the update of the weights. This is the inner loop of training, without files,
// clocks or messages.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "machine/process_group.h"
#include "nn/memory.h"
#include "nn/model_at_lengths.h"
#include "train/adam.h"
#include "train/config.h"
#include "train/gradients.h"
#include "train/state.h"
#include "train/streams.h"

namespace ql::train {

// ComputeDevice describes the device that a training run computes on.
struct ComputeDevice {
  c10::Device device = c10::DeviceType::CPU;
  // A GPU captures the step once and replays it, if the network allows this.
  bool graph = true;
  bool enqueues_on_cpu = false;  // for tests: the CPU runs steps as a GPU does

  // Returns true if a step is a fixed list of operations for the complete batch, and if the host
  // enqueues the list and reads no results. Otherwise the CPU computes the batch in slices, each
  // on one thread, and knows the loss of a step when the step ends.
  bool enqueues() const { return enqueues_on_cpu || !device.is_cpu(); }
};

constexpr const char* kLossScale = "loss_scale";  // the name of LossScale::state() in a checkpoint

// The loss is multiplied by a factor so that small gradients do not vanish in float16. When a
// gradient overflows, its step is skipped and the factor is halved, but not below 1. After many
// steps without overflow the factor is doubled, but not above kLargest. The factor is kept on the
// device, like the gradients.
class LossScale {
 public:
  static constexpr double kFirst = 65536, kLargest = 16777216;
  static constexpr std::int64_t kStepsToDouble = 2000;

  // If `adapts` is false, the factor stays 1.
  LossScale(bool adapts, const at::Device& device);

  at::Tensor factor() const { return state_.select(0, 0); }  // float32, no dimension
  // Call this after a step. `finite` (bool, no dimension) is true if the step's gradient was
  // finite.
  void update(const at::Tensor& finite);

  bool adapts() const { return adapts_; }
  // Returns float32 [2]: the factor, and a count of steps without overflow. The count becomes 0
  // after an overflow, and when it reaches kStepsToDouble.
  const at::Tensor& state() const { return state_; }

 private:
  bool adapts_;
  at::Tensor state_;
};

// Holds what the host sends to a step, in two tensors, so that two transfers suffice.
struct StepInput {
  at::Tensor ids;      // int64: the ids of Streams::read(), then Streams::document_offsets()
  at::Tensor numbers;  // float64: learning rate, step, largest loss, droppath weights

  // Both tensors start as zeros. `options` names the device, or pinned memory.
  StepInput(std::int64_t batch, std::int64_t segment, std::int64_t scales,
            const at::TensorOptions& options);

  // `weights` are the droppath weights, one for each scale. `step` counts from 0.
  void set_numbers(double learning_rate, std::int64_t step, double largest_loss,
                   const std::vector<double>& weights);
  at::Tensor learning_rate() const { return numbers.select(0, 0); }
  at::Tensor step() const { return numbers.select(0, 1); }
  at::Tensor largest_loss() const { return numbers.select(0, 2); }
  at::Tensor scale_weights() const { return numbers.narrow(0, 3, numbers.size(0) - 3); }
};

// Describes the steps since the last report.
struct StepReport {
  StepSums sums;
  // The first step that diverged, if any: its loss was not finite or above the largest loss, or its
  // gradient was not finite at a loss scale of 1. This step and later steps change neither weights
  // nor Adam's moments.
  std::optional<Divergence> failure = {};
};

// TrainingStep computes a step in three parts: compute(), sum() and update(), in this order. A
// single process that enqueues its steps may leave sum() out, which then has nothing to do. If the
// steps are enqueued, each part is a fixed list of operations (if can_be_recorded() is true), and
// everything that differs from step to step is read from tensors that stay in place. So a step can
// be enqueued while the previous one is running, and a GPU can capture the lists once and replay
// them.
class TrainingStep {
 public:
  // `model` and `group` must outlive the step, which computes this process's rows of the batch. The
  // memory starts as zeros. If config.slices or config.passes is 0, it counts as 1. The loss is
  // scaled if steps are enqueued and the precision is float16. `scales_loss` replaces the latter
  // condition in tests on devices that may lack float16. If compute() or sum() throws, no further
  // step may follow.
  TrainingStep(nn::Model& model, const TrainingConfig& config, machine::ProcessGroup& group,
               bool enqueues, std::optional<bool> scales_loss = std::nullopt);
  ~TrainingStep();

  StepInput& input() { return input_; }
  // Returns the rows of the batch that the step computes.
  const machine::RowRange& rows() const { return rows_; }
  std::int64_t scales() const;

  // All processes must call compute() and sum() together (machine/process_group.h).
  //
  // Runs the forward and the backward pass and replaces the memory. The loss and the gradient are
  // what this process's rows add to the means over the batch. Unless steps are enqueued, the sum of
  // the gradient over the processes begins during the backward pass. `number` is the number of the
  // step; only dropout and droppath on the CPU use it.
  void compute(std::int64_t number);
  // Sums the loss over all processes. Sums the gradient over them or, unless steps are enqueued,
  // ends its sum over slices and processes, and computes the squares for its norm.
  void sum();
  // Clips the gradient, updates the weights and adds to the report. If the step diverges, or an
  // earlier step in the report did, weights and Adam's moments do not change. Unless steps are
  // enqueued, a step that diverges also leaves the memory as it was.
  void update();
  // Returns the loss that a step with this input would have, over all processes, and changes
  // nothing. With `forgets` the step would begin with an empty memory.
  double loss_of(std::int64_t number, bool forgets);

  // Waits for the device, returns the report, and begins a new one.
  StepReport take_report();

  nn::Memory memory() const;  // of this process's rows, as a copy
  void set_memory(const nn::Memory& own);
  void forget();  // sets the memory to zeros
  // Returns the tensors of the optimizer, and the loss scale if the loss is scaled.
  std::vector<nn::NamedTensor> moments() const;
  Adam& adam() { return adam_; }
  const Adam& adam() const { return adam_; }

 private:
  using Memories = std::vector<std::vector<nn::Memory>>;  // [s][p] is of the rows slices_[s][p]
  struct SliceModels;
  const nn::FlatTensors& parameters() const { return model_.weights().flat; }
  Memories split(const nn::Memory& own) const;
  nn::StepOptions options_of(std::int64_t number, const RowRange& rows) const;
  // These return the sum of StepLoss::loss (train/gradients.h), float64. Unless gradients are
  // disabled, they run the backward pass, too, and write the memories of the next step to next_.
  at::Tensor run_slice(std::size_t slice, std::int64_t number, const Memories& memories);
  at::Tensor run_slices(std::int64_t number, const Memories& memories);
  at::Tensor gradient_norm() const;

  nn::Model& model_;
  const TrainingConfig config_;
  machine::ProcessGroup& group_;
  const bool enqueues_;
  machine::RowRange rows_;
  std::vector<Slice> slices_;  // parts of rows_; their row 0 is the first row of rows_
  nn::ModelAtLengths at_lengths_;
  Adam adam_;
  Memories memories_;
  // Between compute() and update() these are the memories before the step; otherwise they are
  // arbitrary. If steps are enqueued, they share the tensors of memories_.
  Memories next_;
  std::unique_ptr<SliceModels> slice_models_;  // absent if steps are enqueued
  StepInput input_;
  LossScale loss_scale_;
  // These are results of compute() and sum().
  at::Tensor loss_;
  Gradient gradient_;
  std::vector<double> squares_;  // of each parameter's gradient, unless steps are enqueued
  // This is the report, on the device. Float64 [7]: steps, loss, gradient norm; then the step that
  // diverged or -1, its loss, its gradient norm, and the largest loss.
  at::Tensor report_;
  at::Tensor sound_;  // bool: no step of the report has diverged
};

// Returns true if a step of this network can be captured as a CUDA graph: the step must enqueue the
// same operations for any tokens.
bool can_be_recorded(const net::Network& network);

class CudaSteps;

// Trains one network: its weights, Adam's moments and the memory of every row. The processes of a
// group share the rows of the batch: they call the functions of this class together
// (machine/process_group.h), and all get the same result. The number of processes changes only the
// rounding of a step.
class TrainedNetwork {
 public:
  // `network` must have its vocab_size. The weights are initialised with the configuration's seed;
  // the memory starts as zeros. The `group` must outlive this object. If its processes compute on
  // GPUs, each process has its own GPU. Throws the errors of the group's join_device().
  TrainedNetwork(const net::Network& network, const TrainingConfig& config,
                 const ComputeDevice& compute = {},
                 machine::ProcessGroup& group = machine::ProcessGroup::single());
  TrainedNetwork(TrainedNetwork&&) = delete;
  ~TrainedNetwork();

  // Runs step number `step` (from 0) of the training run: forward, backward, clip, update. At the
  // start of an epoch the memory is zeros. `streams` must read this process's rows of the
  // configuration's batch, in segments of the network, or this throws ConfigError. Returns the loss
  // of the step. If steps are enqueued, returns empty sums: finish() then returns the losses, and
  // throws Diverged in place of step().
  //
  // Throws Diverged if the loss of a step is not finite or above set_largest_loss(), or if its
  // gradient is not finite at a loss scale of 1. Weights and moments are then those before that
  // step, and training can continue with another step. If steps are enqueued, the memory is that
  // after the last step; otherwise it is that before the step that diverged.
  StepSums step(Streams& streams, std::int64_t step, double learning_rate);
  // Returns the loss that step() with these arguments would compute first, and changes nothing.
  // Throws the errors of Streams::read(), but not Diverged: the loss may be infinite or NaN. Call
  // finish() before.
  double loss_of(Streams& streams, std::int64_t step);
  // Waits for all steps and returns the losses that step() has not returned. Call it before any
  // other function that reads the network.
  StepSums finish();

  nn::Model& model() { return model_; }
  const nn::Model& model() const { return model_; }
  // Returns the memory of all rows, as a copy.
  nn::Memory memory() const;
  void set_memory(const nn::Memory& memory);
  // Returns the optimizer's tensors that carry over from step to step, shared with the optimizer.
  std::vector<nn::NamedTensor> moments() const { return step_.moments(); }
  // Returns the number of updates of the weights. It is less than the number of steps if float16
  // skipped some steps.
  std::int64_t updates() const { return step_.adam().updates(); }
  // A resume calls this after it has copied the moments into the tensors of moments().
  void set_updates(std::int64_t updates) { step_.adam().set_updates(updates); }

  // Sets the largest loss that does not count as a divergence; infinite at first.
  void set_largest_loss(double nats) { largest_loss_ = nats; }

 private:
  // Prepares `host_` for a step, and the generator of dropout masks.
  void fill_input(Streams& streams, std::int64_t step, double learning_rate);
  void upload();

  const TrainingConfig config_;
  const ComputeDevice compute_;
  machine::ProcessGroup& group_;
  nn::Model model_;
  TrainingStep step_;
  StepInput host_;  // for the next step, in pinned memory if the device is a GPU
  double largest_loss_ = std::numeric_limits<double>::infinity();
#ifdef QL_CUDA
  std::unique_ptr<CudaSteps> cuda_;
#endif
};

}  // namespace ql::train
