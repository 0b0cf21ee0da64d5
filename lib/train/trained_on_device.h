// Trains a network on another device than the CPU. The host reads the next batch and enqueues the
// next step while the device computes; it asks for losses only when finish() is called. By then
// later steps may have run. After a loss or gradient that is not finite, none of them has changed
// anything. A jump of the loss is looked for in the mean of all steps since finish() was called, so
// such a step has been learned from. Memory has moved on in either case.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "train/device_step.h"
#include "train/trained_network.h"

namespace ql::train {

class CudaSteps;

class TrainedOnDevice : public TrainedNetwork {
 public:
  // Throws as make_trained_network() does. Tests make one on the CPU, too. With a `group` the
  // processes share the rows of the batch as those of a TrainedOnCpu do, a device a process.
  TrainedOnDevice(const net::Network& network, const TrainingConfig& config,
                  const ComputeDevice& compute, machine::ProcessGroup* group = nullptr);
  ~TrainedOnDevice() override;

  StepResult step(Streams& streams, std::int64_t step, double learning_rate) override;
  StepResult finish() override;

  nn::Model& model() override { return model_; }
  const nn::Model& model() const override { return model_; }
  nn::Memory memory() const override;
  void set_memory(const nn::Memory& memory) override;
  std::vector<nn::NamedTensor> moments() const override { return step_.moments(); }
  std::int64_t updates() const override { return step_.adam().steps(); }
  void set_updates(std::int64_t updates) override { step_.adam().set_steps(updates); }

 private:
  TrainingConfig config_;
  machine::ProcessGroup* group_;
  nn::Model model_;
  DeviceStep step_;
  StepInput host_;              // for the next step, in memory that a GPU can read by itself
  std::int64_t last_step_ = 0;  // the number of the step that was enqueued last
#ifdef QL_CUDA
  std::unique_ptr<CudaSteps> cuda_;
#endif
};

}  // namespace ql::train
