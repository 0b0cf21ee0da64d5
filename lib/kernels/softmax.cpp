// Implements the cross entropy over clusters of the vocabulary, by our own kernels and by ATen's
// operations.

#include "kernels/softmax.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/autograd.h"
#include "kernels/product.h"
#include "kernels/projection.h"
#include "kernels/softmax_blocks.h"
#include "machine/device.h"

namespace ql::kernels {

ClusterRows rows_by_cluster(const at::Tensor& ids, const std::vector<std::int64_t>& ends) {
  const at::Tensor own_ids = ids.to(at::kCPU).contiguous();
  const std::int64_t* values = own_ids.data_ptr<std::int64_t>();
  const std::int64_t count = own_ids.numel();
  const auto cluster_of = [&](std::int64_t row) {
    return static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), values[row]) -
                                    ends.begin());
  };
  ClusterRows result;
  result.begins.assign(ends.size() + 1, 0);
  for (std::int64_t row = 0; row < count; ++row) ++result.begins[cluster_of(row) + 1];
  for (std::size_t i = 0; i < ends.size(); ++i) result.begins[i + 1] += result.begins[i];
  const at::Tensor rows = at::empty_like(own_ids), inside = at::empty_like(own_ids);
  const at::Tensor places = at::empty_like(own_ids);
  std::vector<std::int64_t> next = result.begins;
  for (std::int64_t row = 0; row < count; ++row) {
    const std::size_t cluster = cluster_of(row);
    const std::int64_t place = next[cluster]++;
    rows.data_ptr<std::int64_t>()[place] = row;
    inside.data_ptr<std::int64_t>()[place] = values[row] - (cluster > 0 ? ends[cluster - 1] : 0);
    places.data_ptr<std::int64_t>()[row] = place;
  }
  result.rows = rows.to(ids.device());
  result.ids = inside.to(ids.device());
  result.places = places.to(ids.device());
  return result;
}

at::Tensor head_targets(const at::Tensor& ids, const std::vector<std::int64_t>& ends) {
  const auto clusters = static_cast<std::int64_t>(ends.size());
  const std::int64_t head_size = ends.front() + clusters - 1;
  at::Tensor targets = ids.clone();
  // Iteration i also sets the targets of later clusters' ids, which later iterations overwrite.
  for (std::size_t i = 1; i < ends.size(); ++i) {
    targets.masked_fill_(ids.ge(ends[i - 1]), head_size - static_cast<std::int64_t>(i));
  }
  return targets;
}

namespace {

struct SoftmaxGradients {
  at::Tensor states;
  SoftmaxWeights weights;
};

// Returns true if several clusters share one tensor of weights.
bool are_shared(const SoftmaxWeights& weights) {
  return weights.weights.size() < weights.ends.size();
}

// Returns one tensor per cluster, and splits a tensor that all clusters share. The backward pass of
// one split makes one gradient, whereas every narrow() would make one of the tensor's full size.
std::vector<at::Tensor> by_cluster(const SoftmaxWeights& weights,
                                   const std::vector<at::Tensor>& tensors) {
  if (!are_shared(weights)) return tensors;
  if (!tensors.front().defined()) return std::vector<at::Tensor>(weights.ends.size());
  std::vector<std::int64_t> sizes = weights.ends;
  std::adjacent_difference(sizes.begin(), sizes.end(), sizes.begin());
  return tensors.front().split_with_sizes(sizes);
}

// Allocates the wanted gradients. For a cluster of ids without rows, the gradients of its own
// weights stay undefined, and its part of a gradient that all clusters share is set to 0.
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
    for (const at::Tensor& tensor :
         {by_cluster(weights, own.weights)[i], by_cluster(weights, own.biases)[i]}) {
      if (counts[i] == 0 && tensor.defined()) tensor.zero_();
    }
  }
  return gradients;
}

std::vector<SoftmaxColumns> columns_of(const SoftmaxWeights& weights,
                                       const SoftmaxWeights& gradients, std::size_t cluster) {
  std::vector<SoftmaxColumns> columns = {
      {by_cluster(weights, weights.weights)[cluster].contiguous(),
       by_cluster(weights, weights.biases)[cluster].contiguous(),
       by_cluster(weights, gradients.weights)[cluster],
       by_cluster(weights, gradients.biases)[cluster]}};
  if (cluster == 0 && weights.ends.size() > 1) {
    columns.push_back({weights.cluster_weight.contiguous(), weights.cluster_bias.contiguous(),
                       gradients.cluster_weight, gradients.cluster_bias});
  }
  return columns;
}

// Holds the losses of one cluster's rows, and the gradient of their states if it is wanted.
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
  const at::Tensor map = projection.defined() ? weight_factor(projection) : at::Tensor();
  const at::Tensor projected = map.defined() ? product(states, map) : states;
  SoftmaxRows rows{projected, targets, factors, at::Tensor()};
  if (states_wanted || projection_wanted) rows.state_gradient = at::empty_like(rows.states);
  ClusterResult result;
  result.losses = softmax_blocks(rows, columns_of(weights, gradients.weights, cluster));
  if (projection_wanted) {
    gradients.weights.projections[cluster] =
        product(to_operand(states, map).t(), to_operand(rows.state_gradient, map));
  }
  if (states_wanted) {
    result.state_gradient =
        map.defined() ? product(rows.state_gradient, map.t()) : rows.state_gradient;
  }
  return result;
}

// Returns the weights, with separate weights and biases for every cluster.
SoftmaxWeights separated(const SoftmaxWeights& weights) {
  SoftmaxWeights separate = weights;
  separate.weights = by_cluster(weights, weights.weights);
  separate.biases = by_cluster(weights, weights.biases);
  return separate;
}

// Returns the logits [rows, columns] for the ids of `cluster`. For the head (cluster 0), one logit
// for each other cluster follows. `weights` must come from separated().
at::Tensor cluster_logits(const at::Tensor& states, const SoftmaxWeights& weights,
                          std::size_t cluster) {
  const at::Tensor& projection = weights.projections[cluster];
  const at::Tensor projected = projection.defined() ? project(states, projection.t()) : states;
  at::Tensor logits = project(projected, weights.weights[cluster], weights.biases[cluster]);
  if (cluster == 0 && weights.ends.size() > 1) {
    logits = at::cat({logits, project(projected, weights.cluster_weight, weights.cluster_bias)}, 1);
  }
  return logits;
}

// Returns the logarithm of the softmax over cluster_logits().
at::Tensor cluster_log_softmax(const at::Tensor& states, const SoftmaxWeights& weights,
                               std::size_t cluster) {
  // The logits may be rounded (machine/device.h); their softmax never is.
  return at::log_softmax(cluster_logits(states, weights, cluster), -1,
                         weights.weights[cluster].scalar_type());
}

// Returns the log probabilities [rows, ids] of all ids if `head` holds log probabilities, or their
// logits if `head` holds logits. An id of the first cluster gets the value in its column of `head`.
// Another id gets the value in the column of its cluster, plus its log softmax inside the cluster.
at::Tensor join_clusters(const at::Tensor& head, const at::Tensor& states,
                         const SoftmaxWeights& weights) {
  std::vector<at::Tensor> parts = {head.narrow(1, 0, weights.ends.front())};
  for (std::size_t i = 1; i < weights.ends.size(); ++i) {
    // In the head, the other clusters come after the ids, the last cluster first (head_targets()).
    const std::int64_t column = head.size(1) - static_cast<std::int64_t>(i);
    parts.push_back(head.narrow(1, column, 1) + cluster_log_softmax(states, weights, i));
  }
  return at::cat(parts, 1);
}

// Lists the tensors that may have a gradient, including undefined ones, in a fixed order.
variable_list all_of(const at::Tensor& states, const SoftmaxWeights& weights) {
  variable_list all = {states, weights.cluster_weight, weights.cluster_bias};
  for (const auto* list : {&weights.weights, &weights.biases, &weights.projections}) {
    all.insert(all.end(), list->begin(), list->end());
  }
  return all;
}

struct SoftmaxProblem {
  at::Tensor states;
  SoftmaxWeights weights;
  at::Tensor targets;
  double factor = 1;    // of every loss
  bool summed = false;  // the result is the sum of the losses times the factor
};

struct ClusteredLosses {
  at::Tensor losses;        // [rows], not multiplied by SoftmaxProblem::factor
  variable_list gradients;  // in the order of all_of()
};

// Computes the losses on the CPU and outside of autograd. With contiguous `factors` [rows] it also
// computes the gradients of sum(factors * losses) for the tensors that require a gradient. Other
// gradients stay undefined. The gradients for a cluster without rows also stay undefined, except
// for weights and biases that all clusters share.
ClusteredLosses clustered_losses(const SoftmaxProblem& problem, const at::Tensor& factors) {
  const at::NoGradGuard no_grad;
  const SoftmaxWeights& weights = problem.weights;
  const at::Tensor states = problem.states.contiguous(), targets = problem.targets.contiguous();
  const std::size_t clusters = weights.ends.size();
  const ClusterRows rows = clusters > 1 ? rows_by_cluster(targets, weights.ends) : ClusterRows();
  // Every row goes through the head.
  std::vector<std::int64_t> counts = {states.size(0)};
  for (std::size_t i = 1; i < clusters; ++i) counts.push_back(rows.count(i));
  SoftmaxGradients gradients = make_gradients(problem.states, weights, counts, factors.defined());
  if (counts[0] == 0) {
    return {at::empty({0}, states.options()), all_of(gradients.states, gradients.weights)};
  }
  ClusterResult head =
      run_cluster(states, weights, head_targets(targets, weights.ends), factors, gradients, 0);
  for (std::size_t i = 1; i < clusters; ++i) {
    if (counts[i] == 0) continue;
    const at::Tensor own = rows.rows_of(i);
    const ClusterResult tail =
        run_cluster(states.index_select(0, own), weights, rows.ids_of(i),
                    factors.defined() ? factors.index_select(0, own) : factors, gradients, i);
    head.losses.index_add_(0, own, tail.losses);
    if (tail.state_gradient.defined()) head.state_gradient.index_add_(0, own, tail.state_gradient);
  }
  gradients.states = head.state_gradient;
  return {head.losses, all_of(gradients.states, gradients.weights)};
}

// The forward pass hands this to the backward pass.
struct KeptInputs : torch::CustomClassHolder {
  SoftmaxProblem problem;
  // Holds the gradients of problem.factor * (sum of the losses), until a backward pass takes them.
  variable_list gradients;
};

at::Tensor equal_factors(const SoftmaxProblem& problem) {
  return at::full({problem.states.size(0)}, problem.factor, problem.states.options());
}

struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  // `variables` are the problem's tensors that are defined. Autograd has to see them as arguments.
  static at::Tensor forward(AutogradContext* context, at::TensorList variables,
                            const SoftmaxProblem& problem) {
    auto kept = c10::make_intrusive<KeptInputs>();
    kept->problem = problem;
    ClusteredLosses found = clustered_losses(problem, equal_factors(problem));
    kept->gradients = std::move(found.gradients);
    // The backward pass may have to compute the gradients again. Because the variables are saved,
    // autograd first checks that they have not been changed in place.
    context->save_for_backward(variables.vec());
    context->saved_data["kept"] =
        c10::IValue::make_capsule(c10::intrusive_ptr<torch::CustomClassHolder>(std::move(kept)));
    return problem.summed ? found.losses.sum() * problem.factor : found.losses;
  }

  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const auto holder = context->saved_data["kept"].toCapsule();
    KeptInputs& kept = static_cast<KeptInputs&>(*holder);
    const at::Tensor factors = outputs[0].reshape({-1}).contiguous();
    const at::Tensor first = factors.select(0, 0);
    const bool equal = kept.problem.summed || factors.eq(first).all().item<bool>();
    variable_list gradients = std::move(kept.gradients);
    kept.gradients.clear();
    if (gradients.empty() || !equal) {
      gradients.clear();
      context->get_saved_variables();
      gradients =
          clustered_losses(kept.problem, equal ? equal_factors(kept.problem) : factors).gradients;
    }
    variable_list result;
    const variable_list inputs = all_of(kept.problem.states, kept.problem.weights);
    const bool scaled = equal && first.item<double>() != 1;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].defined()) continue;
      if (scaled && gradients[i].defined()) gradients[i].mul_(first);
      // A moved gradient has a single owner, so autograd need not copy it.
      result.push_back(std::move(gradients[i]));
    }
    result.emplace_back();
    return result;
  }
};

at::Tensor run(const SoftmaxProblem& problem) {
  const variable_list all = all_of(problem.states, problem.weights);
  variable_list variables;
  bool with_gradients = false;
  for (const at::Tensor& tensor : all) {
    if (tensor.defined()) {
      variables.push_back(tensor);
      with_gradients = with_gradients || (at::GradMode::is_enabled() && tensor.requires_grad());
    }
  }
  if (machine::uses_kernels(problem.states) && with_gradients) {
    return CrossEntropy::apply(at::TensorList(variables), problem);
  }
  const at::Tensor losses = machine::uses_kernels(problem.states)
                                ? clustered_losses(problem, at::Tensor()).losses
                                : composed_losses(problem.states, problem.weights, problem.targets);
  return problem.summed ? losses.sum() * problem.factor : losses;
}

}  // namespace

at::Tensor cross_entropy(const at::Tensor& states, const SoftmaxWeights& weights,
                         const at::Tensor& targets) {
  return run({states, weights, targets, 1, false});
}

at::Tensor cross_entropy_sum(const at::Tensor& states, const SoftmaxWeights& weights,
                             const at::Tensor& targets, double factor) {
  return run({states, weights, targets, factor, true});
}

at::Tensor composed_losses(const at::Tensor& states, const SoftmaxWeights& weights,
                           const at::Tensor& targets) {
  const SoftmaxWeights separate = separated(weights);
  const auto losses = [&](std::size_t cluster, const at::Tensor& own, const at::Tensor& ids) {
    return -cluster_log_softmax(own, separate, cluster).gather(1, ids.unsqueeze(1)).squeeze(1);
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
  const SoftmaxWeights separate = separated(weights);
  return join_clusters(cluster_log_softmax(states, separate, 0), states, separate);
}

at::Tensor logits(const at::Tensor& states, const SoftmaxWeights& weights) {
  const SoftmaxWeights separate = separated(weights);
  const at::Tensor head = cluster_logits(states, separate, 0);
  return join_clusters(head.to(weights.weights[0].scalar_type()), states, separate);
}

}  // namespace ql::kernels
