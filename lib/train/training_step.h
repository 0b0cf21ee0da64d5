// Runs training steps on the CPU, and declares the interface that GPU training shares.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "machine/process_group.h"
#include "nn/memory.h"
#include "nn/model.h"
#include "train/adam.h"
#include "train/config.h"
#include "train/gradients.h"
#include "train/state.h"
#include "train/streams.h"

namespace ql::train {

// ComputeDevice describes the device that a training run computes on.

struct ComputeDevice {
  c10::Device device = c10::DeviceType::CPU;
  bool graph = true;  // a GPU captures the step once and replays it, if the network allows this
};

// TrainedNetwork is the interface of a network that is being trained. CpuTrainer trains it on the
// CPU, DeviceTrainer (train/device_step.h) on other devices.

struct StepResult {
  double loss = 0;           // mean over the trained targets, nats
  double gradient_norm = 0;  // before clipping
  std::int64_t steps = 1;    // if not 1, loss and norm are the sums over this many steps
};

class TrainedNetwork {
 public:
  // `network` must have its vocab_size. The weights, on `device`, are initialised with the
  // configuration's seed. The `group` may be null, and must outlive this object.
  TrainedNetwork(const net::Network& network, const TrainingConfig& config,
                 const c10::Device& device, machine::ProcessGroup* group);
  TrainedNetwork(TrainedNetwork&&) = delete;
  virtual ~TrainedNetwork() = default;

  // Runs step number `step` (from 0) of the training run: forward, backward, clip, update. At the
  // start of an epoch the memory is zeros. Returns the losses that have become known since the last
  // call; there may be none. Throws Diverged if loss or gradient of a step is not finite, or if the
  // loss is above largest_loss(). The weights are then those before the step, except in the cases
  // that train/device_step.h describes.
  virtual StepResult step(Streams& streams, std::int64_t step, double learning_rate) = 0;
  // Returns the loss that step() with these arguments would compute first, and changes nothing.
  // Throws the errors of Streams::read(), but not Diverged: the loss may be infinite or NaN. Call
  // finish() before.
  virtual double loss_of(Streams& streams, std::int64_t step) = 0;
  // Waits for all steps and returns the losses that step() has not returned. Throws as step() does.
  // Call it before any other function that reads the network.
  virtual StepResult finish() { return {0, 0, 0}; }

  nn::Model& model() { return model_; }
  const nn::Model& model() const { return model_; }
  // Returns the memory of all rows, as a copy or shared with this object.
  virtual nn::Memory memory() const = 0;
  virtual void set_memory(const nn::Memory& memory) = 0;
  // Returns the optimizer's tensors that carry over from step to step, shared with the optimizer.
  virtual std::vector<nn::NamedTensor> moments() const = 0;
  // Returns the number of updates of the weights. It is less than the number of steps if float16
  // skipped some steps (train/adam.h).
  virtual std::int64_t updates() const = 0;
  // A resume calls this after it has copied the moments into the tensors of moments().
  virtual void set_updates(std::int64_t updates) = 0;

  // Returns the largest loss that does not count as a divergence; infinite at first.
  double largest_loss() const { return largest_loss_; }
  void set_largest_loss(double nats) { largest_loss_ = nats; }

 protected:
  const TrainingConfig config_;
  machine::ProcessGroup* const group_;
  nn::Model model_;

 private:
  double largest_loss_ = std::numeric_limits<double>::infinity();
};

// `network` must have its vocab_size. The weights are initialised with the configuration's seed;
// the memory starts as zeros. The `group` must outlive the result. If its processes compute on
// GPUs, each process has its own GPU. Throws the errors of the group's join_device().
std::unique_ptr<TrainedNetwork> make_trained_network(const net::Network& network,
                                                     const TrainingConfig& config,
                                                     const ComputeDevice& compute,
                                                     machine::ProcessGroup* group = nullptr);

// Trains one network on the CPU: updates its weights, Adam's moments and the memory of every row.
// This is the inner loop of training, without files, clocks or messages.
class CpuTrainer : public TrainedNetwork {
 public:
  // `network` must have its vocab_size. The weights are initialised with the configuration's seed;
  // the memory starts as zeros. If config.slices or config.passes is 0, it counts as 1.
  //
  // With a `group`, which must outlive this object, the processes share the rows of the batch: they
  // call step() and memory() together (machine/process_group.h), and all get the same result. The
  // number of processes changes only the rounding of a step.
  CpuTrainer(const net::Network& network, const TrainingConfig& config,
             machine::ProcessGroup* group = nullptr);

  // Runs step number `step` (from 0) of the training run: forward, backward, clip, update. At the
  // start of an epoch the memory is zeros. Throws Diverged if loss or gradient is not finite, or if
  // the loss is above largest_loss(); weights, moments and memory are then those before the step,
  // and training can continue with another step.
  StepResult step(Streams& streams, std::int64_t step, double learning_rate) override;
  double loss_of(Streams& streams, std::int64_t step) override;

  nn::Memory memory() const override;
  void set_memory(const nn::Memory& memory) override;
  std::vector<nn::NamedTensor> moments() const override { return adam_.moments(); }
  std::int64_t updates() const override { return adam_.steps(); }
  void set_updates(std::int64_t updates) override { adam_.set_steps(updates); }

 private:
  struct Input {
    at::Tensor ids;  // [rows of this process, segment + 1]
    nn::StepOptions options;
  };
  // Holds the results of one slice (micro-batch) in a step.
  struct SliceResult {
    double loss = 0;  // the sum of StepLoss::loss (train/gradients.h) over the slice's passes
    Gradients gradients;
  };
  // With several processes, holds one model for each slice (micro-batch), and the sums of gradients
  // over slices and processes.
  struct Shared {
    Shared(machine::ProcessGroup& group, const nn::Model& model, std::size_t slices)
        : exchange(group, model.parameters(), slices), replicas(model, slices, exchange) {}
    GradientExchange exchange;
    Replicas replicas;
  };
  void set_own_memory(const nn::Memory& memory);
  // Reads this process's rows of a step. At the start of an epoch, the memory becomes zeros.
  Input read(Streams& streams, std::int64_t step);
  // These compute losses and, unless gradients are disabled, gradients. They replace the memories.
  SliceResult run_slice(std::size_t slice, const Input& input);
  std::vector<SliceResult> run_slices(const Input& input);
  // Returns the sum of the slices' losses over all processes.
  double sum_of_losses(const std::vector<SliceResult>& slices) const;

  nn::ModelAtLengths at_lengths_;
  Adam adam_;
  machine::RowRange rows_;  // the rows of the batch that this process computes
  // These are parts of rows_ (train/gradients.h). Their row 0 is the first row of rows_.
  std::vector<Slice> slices_;
  std::unique_ptr<Shared> shared_;
  std::vector<std::vector<nn::Memory>> memories_;  // [s][p] is of the rows slices_[s][p]
};

}  // namespace ql::train
