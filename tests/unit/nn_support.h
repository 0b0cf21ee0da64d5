// Networks, weights and streams for the tests of lib/nn.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "net/network.h"
#include "nn/model_at_lengths.h"

namespace ql::test {

// A small network with every probability 0; change what the test is about.
inline net::Network small_network(net::Architecture architecture, std::vector<std::int64_t> scales,
                                  std::int64_t output_layers, net::Lengths lengths) {
  net::Network network;
  network.architecture = architecture;
  network.vocab_size = 11;
  network.d_model = 8;
  network.n_head = 2;
  network.d_head = 3;
  network.d_inner = 10;
  network.scales = std::move(scales);
  network.output_layers = output_layers;
  network.lengths = lengths;
  network.init_std = 0.5;
  return network;
}

inline nn::Model random_model(const net::Network& network, std::uint64_t seed,
                              at::ScalarType type = at::kDouble) {
  nn::Model model(network, type);
  model.initialise(seed);
  // Biases of linear layers start at zero; tests want every parameter to matter.
  const at::NoGradGuard no_grad;
  std::uint64_t step = 0;
  for (const nn::NamedTensor& parameter : model.parameters()) {
    at::Tensor tensor = parameter.tensor;
    ++step;
    if (tensor.dim() == 1) {
      tensor.add_(nn::dropout_mask(tensor.sizes(), 0.5, {true, seed, step},
                                   {nn::DropoutSite::kFinal}, tensor.options()) -
                      1,
                  0.1);
    }
  }
  return model;
}

// Tokens [batch, length] that depend on the seed alone.
inline at::Tensor random_tokens(std::int64_t batch, std::int64_t length, std::int64_t vocab_size,
                                std::uint64_t seed) {
  at::Tensor tokens = at::empty({batch, length}, at::kLong);
  std::uint64_t state = seed * 2 + 1;
  for (std::int64_t i = 0; i < tokens.numel(); ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    tokens.data_ptr<std::int64_t>()[i] =
        static_cast<std::int64_t>((state >> 33) % static_cast<std::uint64_t>(vocab_size));
  }
  return tokens;
}

// The losses [batch, length] of streams read segment by segment from zero memories.
inline at::Tensor read_streams(const nn::Model& model, const net::Lengths& lengths,
                               const at::Tensor& tokens, const at::Tensor& targets) {
  const at::NoGradGuard no_grad;
  const nn::ModelAtLengths at_lengths(model, lengths);
  nn::Memory memory = at_lengths.start_memory(tokens.size(0));
  std::vector<at::Tensor> losses;
  for (std::int64_t start = 0; start < tokens.size(1); start += lengths.segment) {
    const at::Tensor states =
        at_lengths.forward(tokens.narrow(1, start, lengths.segment), memory, {});
    losses.push_back(model.losses(states, targets.narrow(1, start, lengths.segment)));
  }
  return at::cat(losses, 1);
}

inline double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

}  // namespace ql::test
