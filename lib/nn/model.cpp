#include "nn/model.h"

#include <fmt/format.h>

#include "base/error.h"
#include "machine/device.h"
#include "nn/adaptive_softmax_internal.h"
#include "nn/embedding_internal.h"
#include "nn/initialisation_internal.h"

namespace ql::nn {
namespace {

void check_network(const net::Network& network) {
  network.check();
  if (network.vocab_size < 1) {
    throw ConfigError("vocab_size",
                      fmt::format("expected at least 1, found {}", network.vocab_size),
                      "take it from the vocabulary of the training data");
  }
}

void check_states(const at::Tensor& states, const net::Network& network) {
  if (states.dim() != 3 || states.size(2) != network.d_model) {
    throw ConfigError("states", fmt::format("expected batch x segment x {}", network.d_model));
  }
}

}  // namespace

Model::Model(const net::Network& network, const at::TensorOptions& options)
    : network_(network), options_(options) {
  check_network(network);
  parameters_ = make_parameters(network, options);
}

std::int64_t Model::parameter_count() const {
  std::int64_t count = 0;
  for (const NamedTensor& parameter : parameters_.named) count += parameter.tensor.numel();
  return count;
}

void Model::initialise(std::uint64_t seed) { nn::initialise(parameters_, network_, seed); }

at::Tensor Model::check_ids(const at::Tensor& ids, const char* what) const {
  if (!ids.defined() || ids.dim() != 2 || ids.scalar_type() != at::kLong || ids.numel() == 0) {
    throw ConfigError(what, "expected a batch x segment tensor of int64");
  }
  // On an accelerator the look at the values would stall it; they came through the CPU.
  if (machine::uses_kernels(ids)) {
    const std::int64_t lowest = ids.min().item<std::int64_t>();
    const std::int64_t highest = ids.max().item<std::int64_t>();
    if (lowest < 0 || highest >= network_.vocab_size) {
      throw FormatError(what,
                        fmt::format("id {} is outside the vocabulary of {} entries",
                                    lowest < 0 ? lowest : highest, network_.vocab_size),
                        "use data that was encoded with the model's vocabulary");
    }
  }
  return ids.to(options_.device());
}

at::Tensor Model::embed(const at::Tensor& tokens, std::int64_t place) const {
  return nn::embed(network_, parameters_, check_ids(tokens, "tokens"), place);
}

at::Tensor Model::check_targets(const at::Tensor& states, const at::Tensor& targets) const {
  const at::Tensor ids = check_ids(targets, "targets");
  if (states.dim() != 3 || states.size(0) != ids.size(0) || states.size(1) != ids.size(1) ||
      states.size(2) != network_.d_model) {
    throw ConfigError("states", fmt::format("expected {} x {} x {} for these targets", ids.size(0),
                                            ids.size(1), network_.d_model));
  }
  return ids;
}

at::Tensor Model::losses(const at::Tensor& states, const at::Tensor& targets) const {
  const at::Tensor ids = check_targets(states, targets);
  return kernels::cross_entropy(states.flatten(0, 1), softmax_weights(network_, parameters_),
                                ids.flatten())
      .view(ids.sizes());
}

at::Tensor Model::log_probabilities(const at::Tensor& states) const {
  check_states(states, network_);
  return kernels::log_probabilities(states.flatten(0, 1), softmax_weights(network_, parameters_))
      .view({states.size(0), states.size(1), network_.vocab_size});
}

at::Tensor Model::logits(const at::Tensor& states) const {
  check_states(states, network_);
  return kernels::logits(states.flatten(0, 1), softmax_weights(network_, parameters_))
      .view({states.size(0), states.size(1), network_.vocab_size});
}

at::Tensor Model::loss(const at::Tensor& states, const at::Tensor& targets, double factor) const {
  const at::Tensor ids = check_targets(states, targets);
  return kernels::cross_entropy_sum(states.flatten(0, 1), softmax_weights(network_, parameters_),
                                    ids.flatten(), factor);
}

}  // namespace ql::nn
