// One network that is being trained. train/trained_on_cpu.h trains it on the CPU,
// train/trained_on_device.h elsewhere.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "machine/process_group.h"
#include "nn/memory.h"
#include "nn/model.h"
#include "train/compute_device.h"
#include "train/config.h"
#include "train/divergence.h"
#include "train/streams.h"

namespace ql::train {

struct StepResult {
  double loss = 0;           // mean over the targets that are trained on, nats
  double gradient_norm = 0;  // before clipping
  std::int64_t steps = 1;    // loss and norm are the sums of so many steps
};

class TrainedNetwork {
 public:
  TrainedNetwork() = default;
  TrainedNetwork(const TrainedNetwork&) = delete;
  TrainedNetwork& operator=(const TrainedNetwork&) = delete;
  virtual ~TrainedNetwork() = default;

  // Runs step number `step` (from 0) of the training: forward, backward, clip, update. At the start
  // of an epoch the memory is zeros. Returns the losses that became known, which may be of no step
  // yet. Throws Diverged when loss or gradient of a step is not finite, or its loss above
  // largest_loss(); the weights are then those before it, but see train/trained_on_device.h.
  virtual StepResult step(Streams& streams, std::int64_t step, double learning_rate) = 0;
  // Waits for all steps and returns the losses that step() has not returned. Throws as step() does.
  // It has to be called before anything else here is looked at.
  virtual StepResult finish() { return {0, 0, 0}; }

  virtual nn::Model& model() = 0;
  virtual const nn::Model& model() const = 0;
  // The memory of all rows. It is a copy or shared with the training.
  virtual nn::Memory memory() const = 0;
  virtual void set_memory(const nn::Memory& memory) = 0;
  // The tensors that the optimizer carries from step to step. They are shared with it.
  virtual std::vector<nn::NamedTensor> moments() const = 0;
  // The number of times that the optimizer has changed the weights. There are fewer than steps when
  // float16 left some out (train/loss_scale.h).
  virtual std::int64_t updates() const = 0;
  // A resume calls this after it copied the moments into the tensors of moments().
  virtual void set_updates(std::int64_t updates) = 0;

  // The largest loss of a step that is learned from; infinite at first.
  double largest_loss() const { return largest_loss_; }
  void set_largest_loss(double nats) { largest_loss_ = nats; }

 private:
  double largest_loss_ = std::numeric_limits<double>::infinity();
};

// `network` must have its vocab_size. The weights are initialised with the configuration's seed;
// the memory starts as zeros. The `group` must outlive the result. Each of its processes computes
// on a device of its own. Throws as the group's join_device() does.
std::unique_ptr<TrainedNetwork> make_trained_network(const net::Network& network,
                                                     const TrainingConfig& config,
                                                     const ComputeDevice& compute,
                                                     machine::ProcessGroup* group = nullptr);

}  // namespace ql::train
