// Holds a network of the Transformer-QL family with its parameters, embedding and softmax.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/product.h"
#include "machine/device.h"
#include "net/network.h"
#include "nn/parameters.h"

namespace ql::nn {

// A Model has the parameters of a network, its embedding and its softmax. ModelAtLengths
// (nn/model_at_lengths.h) runs the layers. Parameters have the names of the public PyTorch
// Transformer-XL, so that published weights load.
//
// Shapes: tokens [batch, segment] int64, states [batch, length, d_model], losses [batch, segment]
// in nats.
class Model {
 public:
  // Parameters are zero until initialise() or load_weights(). `options` has the dtype (float32, or
  // float64 in tests and in measure_context()) and the device. Throws ConfigError if the network
  // cannot be built.
  Model(const net::Network& network, const at::TensorOptions& options);
  Model(Model&&) = default;
  Model& operator=(Model&&) = default;
  // Returns a model of the same weights, in the same memory. Its parameters have gradients of their
  // own.
  Model with_shared_weights() const;

  const net::Network& network() const { return network_; }
  const at::TensorOptions& options() const { return options_; }
  // Returns the parameters in a fixed order, with requires_grad set. Tied parameters appear once.
  const std::vector<NamedTensor>& parameters() const { return parameters_.flat.named; }
  std::int64_t parameter_count() const;
  // Returns the same parameters by role, and as parts of one tensor.
  const Parameters& weights() const { return parameters_; }

  // Draws initial weights (paper, appendix E; nn/parameters.h). The same seed gives the same
  // weights.
  void initialise(std::uint64_t seed);

  // Returns the embeddings [batch, segment, d_model] of tokens [batch, segment], scaled by
  // sqrt(d_model) and then changed by add_places() (nn/encoding.h). `place` is the index of the
  // first token in its segment. Throws ConfigError for another shape or dtype, and FormatError for
  // a token that is not in the vocabulary (which is checked only for tokens on the CPU).
  at::Tensor embed(const at::Tensor& tokens, std::int64_t place = 0) const;

  // Returns the negative log-likelihood of every target, [batch, segment]. `states` are the states
  // from which the targets are predicted. Throws as embed() does.
  at::Tensor losses(const at::Tensor& states, const at::Tensor& targets) const;

  // Returns the log probability of every token of the vocabulary, [batch, length, vocab_size]. The
  // size of the result limits how many states a caller can pass at a time. Throws ConfigError for
  // states of another shape.
  at::Tensor log_probabilities(const at::Tensor& states) const;

  // Returns logits [batch, length, vocab_size] whose log-softmax is log_probabilities()
  // (kernels/softmax.h).
  at::Tensor logits(const at::Tensor& states) const;

  // Returns the sum of losses() times `factor`, a scalar. With the factor 1 / targets.numel() this
  // is the mean. Training uses this function, because it computes the gradients together with the
  // loss (kernels/softmax.h).
  at::Tensor loss(const at::Tensor& states, const at::Tensor& targets, double factor) const;

 private:
  Model(const net::Network& network, const at::TensorOptions& options, const at::Tensor& all);
  at::Tensor check_ids(const at::Tensor& ids, const char* what) const;
  at::Tensor check_targets(const at::Tensor& states, const at::Tensor& targets) const;

  net::Network network_;
  at::TensorOptions options_;
  Parameters parameters_;
};

// While an object of this class lives, matrix products with the weights of `model` use `precision`,
// in this thread and in the pieces into which this thread divides its work (machine/threads.h). For
// bfloat16 on the CPU, the parameters get a rounded copy (kernels/product.h), so they must not
// change before the object's end. On other devices LibTorch's autocast rounds. A model has at
// most one such object at a time. Throws ConfigError for kAuto, and on the CPU for a precision that
// only a GPU has. machine::set_up_precision() sets up tf32, and says what the device has.
class ModelPrecision {
 public:
  ModelPrecision(const Model& model, machine::Precision precision);
  ModelPrecision(ModelPrecision&&) = delete;

 private:
  machine::Autocast autocast_;
  std::optional<kernels::RoundedWeights> rounded_;
};

}  // namespace ql::nn
