// The Transformer-QL family as one network driven by its geometry (share/doc/design.md, "The
// network"). Parameters are named as the public PyTorch Transformer-XL names them, so published
// weights load.
//
// Shapes: tokens [batch, segment] int64, states [batch, length, d_model], losses [batch, segment]
// in nats.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "net/geometry.h"
#include "net/network.h"

namespace ql::nn {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// What a step leaves for the next one: the memory of every layer's input (and of the accumulated
// states when there is an output block), without gradient. Starts as zeros.
struct Memory {
  std::vector<NamedTensor>
      states;  // "memory.0" ..., each [batch, n_m(i), d_model]; the order is fixed
};

// How a step runs. Training needs seed and step: the random bits of dropout, attention dropout and
// droppath are a function of (seed, step, place, element), so there is no random state to save.
struct StepOptions {
  bool training = false;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
};

class Model {
 public:
  // Parameters are allocated but not initialised. `options` carries dtype (float32, or float64 in
  // tests) and device. Throws ConfigError when the network cannot be built.
  Model(const net::Network& network, const at::TensorOptions& options);

  const net::Network& network() const { return network_; }
  // In a fixed order; requires_grad is set. Tied parameters appear once.
  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  std::int64_t parameter_count() const;

  // Paper, appendix E: weights normal(0, init_std), projections normal(0, proj_init_std), biases 0,
  // layer norms normal(1, init_std) and 0. The same seed gives the same weights.
  void initialise(std::uint64_t seed);

  Memory start_memory(const net::Geometry& geometry, std::int64_t batch) const;

  // The last layer's output states [batch, segment, d_model] for tokens [batch, segment]. Replaces
  // `memory` by the next step's.
  at::Tensor forward(const net::Geometry& geometry, const at::Tensor& tokens, Memory& memory,
                     const StepOptions& options) const;

  // Negative log-likelihood of every target [batch, segment] under the softmax over `states`.
  at::Tensor losses(const at::Tensor& states, const at::Tensor& targets) const;

 private:
  net::Network network_;
  at::TensorOptions options_;
  std::vector<NamedTensor> parameters_;
};

}  // namespace ql::nn
