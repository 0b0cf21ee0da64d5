// One network being trained: its weights, Adam's moments, the memory of every row. The inner loop
// of training, without files, clocks or words.
#pragma once

#include "net/geometry.h"
#include "nn/model.h"
#include "train/adam.h"
#include "train/config.h"
#include "train/streams.h"

namespace ql::train {

struct StepResult {
  double loss = 0;           // mean over the targets that are trained on, nats
  double gradient_norm = 0;  // before clipping
};

class Learner {
 public:
  // `network` with its vocab_size. The weights are initialised with the configuration's seed; the
  // memory starts as zeros.
  Learner(const net::Network& network, const TrainingConfig& config);

  // Step number `step` (from 0) of the training: forward, backward, clip, update. At the start of
  // an epoch the memory is zeros. Throws Error when loss or gradient is not finite; the weights are
  // then those before the step.
  StepResult step(Streams& streams, std::int64_t step, double learning_rate);

  nn::Model& model() { return model_; }
  const nn::Model& model() const { return model_; }
  Adam& adam() { return adam_; }
  const Adam& adam() const { return adam_; }
  nn::Memory& memory() { return memory_; }
  const nn::Memory& memory() const { return memory_; }

 private:
  TrainingConfig config_;
  net::Geometry geometry_;
  nn::Model model_;
  Adam adam_;
  nn::Memory memory_;
};

}  // namespace ql::train
