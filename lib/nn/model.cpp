// Implements the model's embedding and softmax.

#include "nn/model.h"

#include <cmath>

#include "kernels/projection.h"
#include "net/cost.h"
#include "nn/encoding.h"

namespace ql::nn {

static void check_states(const at::Tensor& states, const net::Network& network) {
  if (states.dim() != 3 || states.size(2) != network.d_model) {
    throw ConfigError("states", fmt::format("expected the shape batch x segment x {}, found {}",
                                            network.d_model, fmt::join(states.sizes(), " x ")));
  }
}

// With `sparse` the gradient of the table has only the rows of the ids.
static at::Tensor look_up(const at::Tensor& table, const at::Tensor& projection,
                          const at::Tensor& ids, bool sparse = false) {
  at::Tensor vectors = at::embedding(table, ids, /*padding_idx=*/-1,
                                     /*scale_grad_by_freq=*/false, sparse);
  if (!projection.defined()) return vectors;
  // On a GPU the product may have 16 bits, but states are summed in float32.
  return kernels::project(vectors, projection).to(table.scalar_type());
}

// Looks up ids [rows] cluster by cluster, and returns [rows, d_model] in the order of the ids.
static at::Tensor look_up_clusters(const Parameters& parameters, const at::Tensor& ids) {
  const std::vector<at::Tensor>& tables = parameters.softmax.weights;
  const kernels::ClusterRows rows = kernels::rows_by_cluster(ids, parameters.softmax.ends);
  std::vector<at::Tensor> vectors;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    if (rows.count(i) > 0) {
      vectors.push_back(look_up(tables[i], parameters.embedding_projections[i], rows.ids_of(i)));
    }
  }
  return at::cat(vectors).index_select(0, rows.places);
}

Model::Model(const net::Network& network, const at::TensorOptions& options)
    : Model(network, options, at::Tensor()) {}

Model::Model(const net::Network& network, const at::TensorOptions& options, const at::Tensor& all)
    : network_(network), options_(options) {
  network.check();
  if (network.vocab_size < 1) {
    throw ConfigError("vocab_size",
                      fmt::format("expected at least 1, found {}", network.vocab_size),
                      "take it from the vocabulary of the training data");
  }
  parameters_ = make_parameters(network, options, all);
}

Model Model::with_shared_weights() const { return {network_, options_, parameters_.flat.all}; }

std::int64_t Model::parameter_count() const {
  std::int64_t count = 0;
  for (const NamedTensor& parameter : parameters()) count += parameter.tensor.numel();
  return count;
}

void Model::initialise(std::uint64_t seed) { nn::initialise(parameters_, network_, seed); }

at::Tensor Model::check_ids(const at::Tensor& ids, const char* what) const {
  if (!ids.defined() || ids.dim() != 2 || ids.scalar_type() != at::kLong || ids.numel() == 0) {
    throw ConfigError(what, "expected a batch x segment tensor of int64");
  }
  // Reading ids that are on an accelerator would make the host wait, so the caller must have
  // checked such ids before, on the CPU.
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
  const at::Tensor ids = check_ids(tokens, "tokens");
  // The softmax gives all rows of a shared table a gradient, to which autograd then adds a few
  // rows. On a GPU, a sparse gradient would wait for the host.
  const bool sparse = ids.device().is_cpu();
  const at::Tensor vectors = net::shares_embedding(network_)
                                 ? look_up(parameters_.softmax.weights[0],
                                           parameters_.embedding_projections[0], ids, sparse)
                                 : look_up_clusters(parameters_, ids.flatten())
                                       .view({ids.size(0), ids.size(1), network_.d_model});
  const at::Tensor scaled = vectors * std::sqrt(static_cast<double>(network_.d_model));
  return add_places(network_, scaled, place);
}

at::Tensor Model::check_targets(const at::Tensor& states, const at::Tensor& targets) const {
  at::Tensor ids = check_ids(targets, "targets");
  if (states.dim() != 3 || states.size(0) != ids.size(0) || states.size(1) != ids.size(1) ||
      states.size(2) != network_.d_model) {
    throw ConfigError("states", fmt::format("expected {} x {} x {} for these targets", ids.size(0),
                                            ids.size(1), network_.d_model));
  }
  return ids;
}

at::Tensor Model::losses(const at::Tensor& states, const at::Tensor& targets) const {
  const at::Tensor ids = check_targets(states, targets);
  return kernels::cross_entropy(states.flatten(0, 1), parameters_.softmax, ids.flatten())
      .view(ids.sizes());
}

at::Tensor Model::log_probabilities(const at::Tensor& states) const {
  check_states(states, network_);
  return kernels::log_probabilities(states.flatten(0, 1), parameters_.softmax)
      .view({states.size(0), states.size(1), network_.vocab_size});
}

at::Tensor Model::logits(const at::Tensor& states) const {
  check_states(states, network_);
  return kernels::logits(states.flatten(0, 1), parameters_.softmax)
      .view({states.size(0), states.size(1), network_.vocab_size});
}

at::Tensor Model::loss(const at::Tensor& states, const at::Tensor& targets, double factor) const {
  const at::Tensor ids = check_targets(states, targets);
  return kernels::cross_entropy_sum(states.flatten(0, 1), parameters_.softmax, ids.flatten(),
                                    factor);
}

ModelPrecision::ModelPrecision(const Model& model, machine::Precision precision)
    : autocast_(model.options().device(), precision) {
  const at::Tensor& weights = model.weights().flat.all;
  const bool on_cpu = machine::uses_kernels(weights);
  const bool needs_gpu =
      precision == machine::Precision::kTf32 || precision == machine::Precision::kFloat16;
  if (precision == machine::Precision::kAuto || (on_cpu && needs_gpu)) {
    throw ConfigError("precision",
                      fmt::format("is {}, but {}", to_text(precision),
                                  needs_gpu ? "the CPU supports float32 and bfloat16"
                                            : "set_up_precision() has to choose one first"));
  }
  if (on_cpu && weights.scalar_type() == at::kFloat && precision == machine::Precision::kBfloat16) {
    rounded_.emplace(weights);
  }
}

}  // namespace ql::nn
