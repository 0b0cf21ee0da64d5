// Holds one model for each slice of a batch. It shares the weights of the trained model but has
// gradients of its own, and tells when one of them is known.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "nn/model_at_lengths.h"
#include "train/gradient_exchange.h"

namespace ql::train {

class Replicas {
 public:
  // Model and exchange must outlive this object. Changes of the model's weights are seen here,
  // because they are shared.
  Replicas(const nn::Model& model, std::size_t slices, GradientExchange& exchange);
  ~Replicas();
  Replicas(const Replicas&) = delete;
  Replicas& operator=(const Replicas&) = delete;

  const nn::ModelAtLengths& of(std::size_t slice) const;

  // Runs the backward pass of a loss of of(slice) on the calling thread. Gradients of a slice's
  // passes add up. In the last pass each goes to the exchange as soon as it is whole.
  void backward(std::size_t slice, const at::Tensor& loss, bool last_pass);
  // To be called after a step.
  void drop_gradients();

 private:
  struct Replica;
  std::vector<std::unique_ptr<Replica>> replicas_;
};

}  // namespace ql::train
