// Makes networks, weights and streams for the tests of lib/nn, and runs models for all tests that
// compare their output for a stream.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "float32_error.h"
#include "net/geometry.h"
#include "net/network.h"
#include "nn/dropout.h"
#include "nn/model_at_lengths.h"

namespace ql::test {

// These are short names for tables of networks.
constexpr auto kQl = net::Architecture::kTransformerQl;
constexpr auto kXl = net::Architecture::kTransformerXl;
constexpr auto kMultiScale = net::Architecture::kMultiScale;
constexpr auto kCompressive = net::Architecture::kCompressive;

// Returns a small network with every probability 0; a test changes the keys that it is about.
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
  // Biases of linear layers start at zero; tests need every parameter to matter.
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

// Returns tokens [batch, length] that depend on the seed alone.
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

// Starts are the tokens at which the documents of a stream start, in increasing order.
using Starts = std::vector<std::int64_t>;

// Counts the tokens of its document before a token.
inline std::int64_t offset_of(const Starts& starts, std::int64_t token) {
  const auto after = std::upper_bound(starts.begin(), starts.end(), token);
  return token - (after == starts.begin() ? 0 : *(after - 1));
}

// Returns the states [streams, length, d_model] of streams that are read segment by segment from
// zero memories; `starts` are those of each stream for a network that resets its memory at
// documents. `step` is that of the first segment, and counts on. `reconstruction`, if given, gets
// every step's loss.
inline at::Tensor read_states(const nn::Model& model, const net::Lengths& lengths,
                              const at::Tensor& tokens, const std::vector<Starts>& starts = {},
                              nn::StepOptions step = {},
                              std::vector<at::Tensor>* reconstruction = nullptr) {
  const nn::ModelAtLengths at_lengths(model, lengths);
  nn::Memory memory = at_lengths.start_memory(tokens.size(0));
  std::vector<at::Tensor> states;
  for (std::int64_t begin = 0; begin < tokens.size(1); begin += lengths.segment, ++step.step) {
    step.document_offsets.clear();
    for (const Starts& of_stream : starts)
      step.document_offsets.push_back(offset_of(of_stream, begin));
    at::Tensor loss;
    states.push_back(
        at_lengths.forward(tokens.narrow(1, begin, lengths.segment), memory, step, &loss));
    if (reconstruction != nullptr) reconstruction->push_back(loss);
  }
  return at::cat(states, 1);
}

// Returns the same [1, length, d_model] of one stream [1, length], layer by layer over `segments`
// segments at a time.
inline at::Tensor read_layer_by_layer(const nn::Model& model, const net::Lengths& lengths,
                                      const at::Tensor& tokens, std::int64_t segments,
                                      const std::vector<Starts>& starts = {}) {
  const nn::ModelAtLengths at_lengths(model, lengths);
  nn::Memory memory = at_lengths.start_memory(1);
  const at::Tensor rows = tokens.view({-1, lengths.segment});
  std::vector<at::Tensor> states;
  for (std::int64_t row = 0; row < rows.size(0); row += segments) {
    const std::int64_t count = std::min(segments, rows.size(0) - row);
    std::vector<std::int64_t> document_offsets;
    for (std::int64_t i = row; !starts.empty() && i < row + count; ++i) {
      document_offsets.push_back(offset_of(starts.front(), i * lengths.segment));
    }
    states.push_back(
        at_lengths.forward_stream(rows.narrow(0, row, count), memory, document_offsets));
  }
  return at::cat(states).flatten(0, 1).unsqueeze(0);
}

// Returns the losses [streams, length] of streams read segment by segment from zero memories.
inline at::Tensor read_streams(const nn::Model& model, const net::Lengths& lengths,
                               const at::Tensor& tokens, const at::Tensor& targets) {
  const at::NoGradGuard no_grad;
  return model.losses(read_states(model, lengths, tokens), targets);
}

}  // namespace ql::test
