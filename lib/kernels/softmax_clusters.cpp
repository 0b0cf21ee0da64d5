#include "kernels/softmax_clusters.h"

#include <ATen/core/grad_mode.h>

#include "kernels/cluster_rows.h"
#include "kernels/product.h"
#include "kernels/projection.h"
#include "kernels/softmax_blocks.h"

namespace ql::kernels {
namespace {

// Tells whether all clusters share one tensor.
bool are_shared(const SoftmaxWeights& weights) {
  return weights.weights.size() < weights.ends.size();
}

// Returns the cluster's part of `tensors`, which are the weights, the biases or their gradients.
at::Tensor part(const SoftmaxWeights& weights, const std::vector<at::Tensor>& tensors,
                std::size_t cluster) {
  if (!are_shared(weights)) return tensors[cluster];
  const std::int64_t begin = cluster == 0 ? 0 : weights.ends[cluster - 1];
  const at::Tensor& all = tensors.front();
  return all.defined() ? all.narrow(0, begin, weights.ends[cluster] - begin) : all;
}

// Makes room for the gradients. They stay undefined where none is wanted or no row has a part in
// it.
SoftmaxGradients make_gradients(const at::Tensor& states, const SoftmaxWeights& weights,
                                const std::vector<std::int64_t>& counts, bool wanted) {
  const auto room = [wanted](const at::Tensor& tensor, bool used) {
    return wanted && used && tensor.defined() && tensor.requires_grad()
               ? at::empty(tensor.sizes(), tensor.options())
               : at::Tensor();
  };
  SoftmaxGradients gradients;
  SoftmaxWeights& own = gradients.weights;
  for (std::size_t i = 0; i < weights.weights.size(); ++i) {
    const bool used = are_shared(weights) || counts[i] > 0;
    own.weights.push_back(room(weights.weights[i], used));
    own.biases.push_back(room(weights.biases[i], used));
  }
  own.projections.resize(weights.projections.size());
  gradients.states = room(states, true);
  own.cluster_weight = room(weights.cluster_weight, true);
  own.cluster_bias = room(weights.cluster_bias, true);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    for (const at::Tensor& tensor : {part(weights, own.weights, i), part(weights, own.biases, i)}) {
      if (counts[i] == 0 && tensor.defined()) tensor.zero_();
    }
  }
  return gradients;
}

std::vector<SoftmaxColumns> columns_of(const SoftmaxWeights& weights,
                                       const SoftmaxWeights& gradients, std::size_t cluster) {
  std::vector<SoftmaxColumns> columns = {{part(weights, weights.weights, cluster).contiguous(),
                                          part(weights, weights.biases, cluster).contiguous(),
                                          part(weights, gradients.weights, cluster),
                                          part(weights, gradients.biases, cluster)}};
  if (cluster == 0 && weights.ends.size() > 1) {
    columns.push_back({weights.cluster_weight.contiguous(), weights.cluster_bias.contiguous(),
                       gradients.cluster_weight, gradients.cluster_bias});
  }
  return columns;
}

// The losses of one cluster's rows, and the gradient of their states if it is wanted.
struct ClusterResult {
  at::Tensor losses, state_gradient;
};

ClusterResult run_cluster(const at::Tensor& states, const SoftmaxWeights& weights,
                          const at::Tensor& targets, const at::Tensor& factors,
                          SoftmaxGradients& gradients, std::size_t cluster) {
  const at::Tensor& projection = weights.projections[cluster];
  const bool states_wanted = gradients.states.defined();
  const bool projection_wanted =
      factors.defined() && projection.defined() && projection.requires_grad();
  const at::Tensor map =
      projection.defined() && factors.defined() ? weight_factor(projection) : at::Tensor();
  at::Tensor projected = states;
  if (map.defined()) {
    projected = product(as_factor(states), map);
  } else if (projection.defined()) {
    // Without gradients no bit may depend on the number of threads.
    projected = project(states, projection.t());
  }
  SoftmaxRows rows{projected, targets, factors, at::Tensor()};
  if (states_wanted || projection_wanted) rows.state_gradient = at::empty_like(rows.states);
  ClusterResult result;
  result.losses = softmax_blocks(rows, columns_of(weights, gradients.weights, cluster));
  if (projection_wanted) {
    gradients.weights.projections[cluster] =
        product(as_factor(states).t(), as_factor(rows.state_gradient));
  }
  if (states_wanted) {
    result.state_gradient =
        map.defined() ? product(as_factor(rows.state_gradient), map.t()) : rows.state_gradient;
  }
  return result;
}

// The weights and biases of every cluster. The head's have the rows of the other clusters behind
// those of its ids.
struct Tables {
  std::vector<at::Tensor> weights, biases;
};

Tables tables_of(const SoftmaxWeights& weights) {
  Tables tables{weights.weights, weights.biases};
  if (are_shared(weights)) {
    // A split has one gradient. Every narrow() would have one of the whole table's size.
    std::vector<std::int64_t> sizes;
    for (const std::int64_t end : weights.ends) {
      sizes.push_back(sizes.empty() ? end : end - weights.ends[sizes.size() - 1]);
    }
    tables.weights = tables.weights.front().split_with_sizes(sizes);
    tables.biases = tables.biases.front().split_with_sizes(sizes);
  }
  return tables;
}

// Returns the logits of `cluster` over its own table; those of the other clusters follow the
// head's.
at::Tensor cluster_logits(const at::Tensor& states, const SoftmaxWeights& weights,
                          const Tables& tables, std::size_t cluster) {
  const at::Tensor& projection = weights.projections[cluster];
  const at::Tensor projected = projection.defined() ? project(states, projection.t()) : states;
  at::Tensor logits = project(projected, tables.weights[cluster], tables.biases[cluster]);
  if (cluster == 0 && weights.ends.size() > 1) {
    logits = at::cat({logits, project(projected, weights.cluster_weight, weights.cluster_bias)}, 1);
  }
  return logits;
}

// Returns the logarithms of the softmax that `cluster` has over its own table.
at::Tensor cluster_log_softmax(const at::Tensor& states, const SoftmaxWeights& weights,
                               const Tables& tables, std::size_t cluster) {
  // The logits may be rounded (machine/device.h); their softmax never is.
  return at::log_softmax(cluster_logits(states, weights, tables, cluster), -1,
                         tables.weights[cluster].scalar_type());
}

// Returns the columns of all ids: the head's own, and for a tail the head's column of that cluster
// plus the logarithms of the tail's softmax.
at::Tensor join_clusters(const at::Tensor& head, const at::Tensor& states,
                         const SoftmaxWeights& weights, const Tables& tables) {
  std::vector<at::Tensor> parts = {head.narrow(1, 0, weights.ends.front())};
  for (std::size_t i = 1; i < weights.ends.size(); ++i) {
    // The head has the clusters after its own ids, the last cluster first (head_targets()).
    const std::int64_t column = head.size(1) - static_cast<std::int64_t>(i);
    parts.push_back(head.narrow(1, column, 1) + cluster_log_softmax(states, weights, tables, i));
  }
  return at::cat(parts, 1);
}

}  // namespace

at::Tensor clustered_losses(const at::Tensor& states, const SoftmaxWeights& weights,
                            const at::Tensor& targets, const at::Tensor& factors,
                            SoftmaxGradients& gradients) {
  const at::NoGradGuard no_grad;
  const at::Tensor all_states = states.contiguous(), all_targets = targets.contiguous();
  const std::size_t clusters = weights.ends.size();
  const ClusterRows rows =
      clusters > 1 ? rows_by_cluster(all_targets, weights.ends) : ClusterRows();
  // Every row goes through the head.
  std::vector<std::int64_t> counts = {states.size(0)};
  for (std::size_t i = 1; i < clusters; ++i) counts.push_back(rows.count(i));
  gradients = make_gradients(states, weights, counts, factors.defined());
  if (counts[0] == 0) return at::empty({0}, states.options());
  ClusterResult head = run_cluster(all_states, weights, head_targets(all_targets, weights.ends),
                                   factors, gradients, 0);
  for (std::size_t i = 1; i < clusters; ++i) {
    if (counts[i] == 0) continue;
    const at::Tensor own = rows.rows_of(i);
    const ClusterResult tail =
        run_cluster(all_states.index_select(0, own), weights, rows.ids_of(i),
                    factors.defined() ? factors.index_select(0, own) : factors, gradients, i);
    head.losses.index_add_(0, own, tail.losses);
    if (tail.state_gradient.defined()) head.state_gradient.index_add_(0, own, tail.state_gradient);
  }
  gradients.states = head.state_gradient;
  return head.losses;
}

at::Tensor composed_losses(const at::Tensor& states, const SoftmaxWeights& weights,
                           const at::Tensor& targets) {
  const Tables tables = tables_of(weights);
  const auto losses = [&](std::size_t cluster, const at::Tensor& own, const at::Tensor& ids) {
    return -cluster_log_softmax(own, weights, tables, cluster)
                .gather(1, ids.unsqueeze(1))
                .squeeze(1);
  };
  if (weights.ends.size() == 1) return losses(0, states, targets);
  const ClusterRows rows = rows_by_cluster(targets, weights.ends);
  at::Tensor sum = losses(0, states, head_targets(targets, weights.ends));
  for (std::size_t i = 1; i < weights.ends.size(); ++i) {
    if (rows.count(i) > 0) {
      const at::Tensor own = rows.rows_of(i);
      sum = sum.index_add(0, own, losses(i, states.index_select(0, own), rows.ids_of(i)));
    }
  }
  return sum;
}

at::Tensor log_probabilities(const at::Tensor& states, const SoftmaxWeights& weights) {
  const Tables tables = tables_of(weights);
  return join_clusters(cluster_log_softmax(states, weights, tables, 0), states, weights, tables);
}

at::Tensor logits(const at::Tensor& states, const SoftmaxWeights& weights) {
  const Tables tables = tables_of(weights);
  const at::Tensor head = cluster_logits(states, weights, tables, 0);
  return join_clusters(head.to(tables.weights[0].scalar_type()), states, weights, tables);
}

}  // namespace ql::kernels
