// The Transformer-QL family as one network driven by its geometry (share/doc/design.md, "The
// network"). Parameters are named as the public PyTorch Transformer-XL names them, so that
// published weights load.
//
// Shapes: tokens [batch, segment] int64, states [batch, length, d_model], losses [batch, segment]
// in nats.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "net/geometry.h"
#include "net/network.h"
#include "nn/dropout.h"
#include "nn/memory.h"
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
  // In a fixed order; requires_grad is set. Tied parameters appear once.
  const std::vector<NamedTensor>& parameters() const { return parameters_.named; }
  std::int64_t parameter_count() const;

  // Paper, appendix E (nn/initialisation_internal.h). The same seed gives the same weights.
  void initialise(std::uint64_t seed);

  // The vectors [batch, segment, d_model] that tokens [batch, segment] enter the network as.
  // Throws as forward() does.
  at::Tensor embed(const at::Tensor& tokens) const;

  Memory start_memory(const net::Geometry& geometry, std::int64_t batch) const;

  // The last layer's output states [batch, segment, d_model] for tokens [batch, segment]. Replaces
  // `memory` by the next step's. `geometry` is of this network with any lengths. Throws
  // ConfigError when tokens, geometry, memory and `step.ages` do not fit together, FormatError for
  // a token that is not in the vocabulary (checked for tokens on the CPU).
  //
  // `reconstruction`, if given, becomes the auxiliary loss by which a compressive network learns
  // its convolution and decoder (nn/compression_internal.h): a scalar to add to the loss with a
  // small weight (the paper: 0.01), or undefined when there is nothing to learn.
  at::Tensor forward(const net::Geometry& geometry, const at::Tensor& tokens, Memory& memory,
                     const StepOptions& step, at::Tensor* reconstruction = nullptr) const;

  // The same from the vectors that embed() makes of a segment's tokens: who holds them can ask for
  // the gradient with respect to a token.
  at::Tensor forward_embedded(const net::Geometry& geometry, const at::Tensor& embedded,
                              Memory& memory, const StepOptions& step,
                              at::Tensor* reconstruction = nullptr) const;

  // forward() without dropout and gradient for consecutive segments of one stream: tokens
  // [segments, segment] go through the first layer, then through the second, and so on; `memory` is
  // of batch 1, `ages` those of StepOptions, one a segment. The states equal those of forward(),
  // segment by segment. With the pool most-used a layer still takes its segments one by one: what
  // it keeps of one depends on the one before.
  at::Tensor forward_stream(const net::Geometry& geometry, const at::Tensor& tokens, Memory& memory,
                            const std::vector<std::int64_t>& ages = {}) const;

  // Negative log-likelihood of every target [batch, segment] under the softmax over `states`.
  // Throws as forward() does.
  at::Tensor losses(const at::Tensor& states, const at::Tensor& targets) const;

  // The sum of losses() times `factor`, a scalar: the mean with 1 / targets.numel(). For training,
  // whose gradients are made with the factor from the start (kernels/softmax.h).
  at::Tensor loss(const at::Tensor& states, const at::Tensor& targets, double factor) const;

 private:
  at::Tensor check_tokens(const net::Geometry& geometry, const at::Tensor& tokens) const;
  at::Tensor check_ids(const at::Tensor& ids, const char* what) const;
  at::Tensor check_targets(const at::Tensor& states, const at::Tensor& targets) const;

  net::Network network_;
  at::TensorOptions options_;
  Parameters parameters_;
};

}  // namespace ql::nn
