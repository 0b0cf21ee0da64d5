// The parameters of a network of the Transformer-QL family, its embedding and its softmax. The
// layers between them run at some lengths (nn/model_at_lengths.h). Parameters are named as the
// public PyTorch Transformer-XL names them, so that published weights load.
//
// Shapes: tokens [batch, segment] int64, states [batch, length, d_model], losses [batch, segment]
// in nats.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "net/network.h"
#include "nn/named_tensor.h"
#include "nn/parameters.h"

namespace ql::nn {

class Model {
 public:
  // Parameters are zero until initialise() or load_weights(). `options` carries dtype (float32, or
  // float64 in tests) and device. Throws ConfigError when the network cannot be built.
  Model(const net::Network& network, const at::TensorOptions& options);
  Model(Model&&) = default;
  Model& operator=(Model&&) = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  ~Model() = default;

  const net::Network& network() const { return network_; }
  const at::TensorOptions& options() const { return options_; }
  // The parameters are in a fixed order, and requires_grad is set. Tied parameters appear once.
  const std::vector<NamedTensor>& parameters() const { return parameters_.named; }
  std::int64_t parameter_count() const;
  // The same by role.
  const Parameters& weights() const { return parameters_; }

  // Paper, appendix E (nn/initialisation_internal.h). The same seed gives the same weights.
  void initialise(std::uint64_t seed);

  // Returns the vectors [batch, segment, d_model] as which tokens [batch, segment] enter the
  // network; `place` is that of the first one in its segment. Throws ConfigError for another shape,
  // FormatError for a token that is not in the vocabulary (checked for tokens on the CPU).
  at::Tensor embed(const at::Tensor& tokens, std::int64_t place = 0) const;

  // Negative log-likelihood of every target [batch, segment] under the softmax over `states`.
  // Throws as embed() does.
  at::Tensor losses(const at::Tensor& states, const at::Tensor& targets) const;

  // The logarithm of the probability of every token, [batch, segment, vocab_size], which bounds how
  // many states a caller gives at a time. Throws ConfigError for states of another shape.
  at::Tensor log_probabilities(const at::Tensor& states) const;

  // Logits of the same shape whose softmax gives these probabilities (kernels/softmax.h).
  at::Tensor logits(const at::Tensor& states) const;

  // The sum of losses() times `factor`, a scalar; 1 / targets.numel() makes it the mean. Training
  // uses this one: its gradients are made with the factor from the start (kernels/softmax.h).
  at::Tensor loss(const at::Tensor& states, const at::Tensor& targets, double factor) const;

 private:
  at::Tensor check_ids(const at::Tensor& ids, const char* what) const;
  at::Tensor check_targets(const at::Tensor& states, const at::Tensor& targets) const;

  net::Network network_;
  at::TensorOptions options_;
  Parameters parameters_;
};

}  // namespace ql::nn
