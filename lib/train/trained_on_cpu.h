// Trains one network on the CPU: its weights, Adam's moments, the memory of every row. This is the
// inner loop of training, without files, clocks or messages.
#pragma once

#include <memory>
#include <vector>

#include "machine/process_group.h"
#include "nn/model_at_lengths.h"
#include "train/adam.h"
#include "train/config.h"
#include "train/gradient_exchange.h"
#include "train/gradients.h"
#include "train/replicas.h"
#include "train/slices.h"
#include "train/streams.h"
#include "train/trained_network.h"

namespace ql::train {

class TrainedOnCpu : public TrainedNetwork {
 public:
  // `network` must have its vocab_size. The weights are initialised with the configuration's seed;
  // the memory starts as zeros. The configuration's slices and passes count 1 where they are 0.
  //
  // With a `group`, which must outlive the trained, the processes share the rows of the batch:
  // step() and memory() are common then (machine/process_group.h), and have the same result in all
  // of them. The number of processes changes only the rounding of a step.
  TrainedOnCpu(const net::Network& network, const TrainingConfig& config,
               machine::ProcessGroup* group = nullptr);

  // Runs step number `step` (from 0) of the training: forward, backward, clip, update. At the start
  // of an epoch the memory is zeros. Throws Diverged when loss or gradient is not finite, or the
  // loss above largest_loss(); weights, moments and memory are then those before the step, and
  // learning can go on with another one.
  StepResult step(Streams& streams, std::int64_t step, double learning_rate) override;

  nn::Model& model() override { return model_; }
  const nn::Model& model() const override { return model_; }
  Adam& adam() { return adam_; }
  const Adam& adam() const { return adam_; }
  nn::Memory memory() const override;
  void set_memory(const nn::Memory& memory) override;
  std::vector<nn::NamedTensor> moments() const override { return adam_.moments(); }
  std::int64_t updates() const override { return adam_.steps(); }
  void set_updates(std::int64_t updates) override { adam_.set_steps(updates); }

 private:
  // A slice's part of a step.
  struct SliceResult {
    double loss = 0;  // its part of the mean over the targets that are trained on
    Gradients gradients;
  };
  // Brings the slices' gradients of several processes together.
  struct Shared {
    Shared(machine::ProcessGroup& group, const nn::Model& model, std::size_t slices)
        : exchange(group, model.parameters(), slices), replicas(model, slices, exchange) {}
    GradientExchange exchange;
    Replicas replicas;
  };
  void set_own_memory(const nn::Memory& memory);
  // `ids` are [own rows, segment + 1].
  SliceResult run_slice(std::size_t slice, const at::Tensor& ids, const nn::StepOptions& options);
  std::vector<SliceResult> run_slices(const at::Tensor& ids, const nn::StepOptions& options);

  TrainingConfig config_;
  nn::Model model_;
  nn::ModelAtLengths at_lengths_;
  Adam adam_;
  machine::ProcessGroup* group_;
  machine::RowRange rows_;     // of the batch that this process computes
  std::vector<Slice> slices_;  // of these rows, the first of which is 0
  std::unique_ptr<Shared> shared_;
  std::vector<std::vector<nn::Memory>> memories_;  // of every pass of every slice
};

}  // namespace ql::train
