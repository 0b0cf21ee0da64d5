// Compares the cross entropy over clusters, and its gradients, with log p of every id written as
// one matrix.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/softmax.h"
#include "unit/float32_error.h"
#include "unit/torch_doctest.h"

namespace ql::kernels {
namespace {

constexpr std::int64_t kModel = 6;

enum class Tables { kOwn, kShared };
enum class Projections { kNone, kOwn, kTied };

struct ClustersProblem {
  at::Tensor states, targets;
  SoftmaxWeights weights;

  // Returns every tensor once: a tied projection occurs in several places.
  std::vector<at::Tensor> leaves() const {
    std::vector<at::Tensor> all = {states, weights.cluster_weight, weights.cluster_bias};
    for (const auto* list : {&weights.weights, &weights.biases, &weights.projections}) {
      all.insert(all.end(), list->begin(), list->end());
    }
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& tensor : all) {
      const bool known = std::any_of(leaves.begin(), leaves.end(),
                                     [&](const at::Tensor& leaf) { return leaf.is_same(tensor); });
      if (tensor.defined() && !known) leaves.push_back(tensor);
    }
    return leaves;
  }
};

at::Tensor leaf(at::IntArrayRef shape) {
  return at::randn(shape, at::kDouble).set_requires_grad(true);
}

ClustersProblem make_problem(const std::vector<std::int64_t>& ends, Tables tables,
                             Projections projections, const at::Tensor& targets) {
  ClustersProblem problem;
  problem.states = leaf({targets.size(0), kModel});
  problem.targets = targets;
  SoftmaxWeights& weights = problem.weights;
  weights.ends = ends;
  std::int64_t width = projections == Projections::kNone ? kModel : 4, begin = 0;
  at::Tensor tied;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (tables == Tables::kOwn) {
      weights.weights.push_back(leaf({ends[i] - begin, width}));
      weights.biases.push_back(leaf({ends[i] - begin}));
    }
    if (projections == Projections::kTied && !tied.defined()) tied = leaf({kModel, width});
    weights.projections.push_back(projections == Projections::kOwn ? leaf({kModel, width}) : tied);
    begin = ends[i];
    // The width shrinks as with div_val. A tied projection has one width.
    if (tables == Tables::kOwn && projections == Projections::kOwn && width > 1) width /= 2;
  }
  const std::int64_t first = projections == Projections::kNone ? kModel : 4;
  if (tables == Tables::kShared) {
    weights.weights = {leaf({ends.back(), first})};
    weights.biases = {leaf({ends.back()})};
  }
  if (ends.size() > 1) {
    weights.cluster_weight = leaf({static_cast<std::int64_t>(ends.size()) - 1, first});
    weights.cluster_bias = leaf({static_cast<std::int64_t>(ends.size()) - 1});
  }
  return problem;
}

at::Tensor plain_cluster_losses(const ClustersProblem& problem) {
  const SoftmaxWeights& weights = problem.weights;
  const std::size_t clusters = weights.ends.size();
  std::vector<at::Tensor> columns;
  at::Tensor head;
  for (std::size_t i = 0; i < clusters; ++i) {
    const std::int64_t begin = i == 0 ? 0 : weights.ends[i - 1];
    const bool shared = weights.weights.size() < clusters;
    const at::Tensor weight =
        shared ? weights.weights[0].slice(0, begin, weights.ends[i]) : weights.weights[i];
    const at::Tensor bias =
        shared ? weights.biases[0].slice(0, begin, weights.ends[i]) : weights.biases[i];
    const at::Tensor& projection = weights.projections[i];
    const at::Tensor states =
        projection.defined() ? at::matmul(problem.states, projection) : problem.states;
    const at::Tensor logits = at::linear(states, weight, bias);
    if (i > 0) {
      // Column -i of the head belongs to cluster i.
      const at::Tensor cluster = head.slice(1, head.size(1) - static_cast<std::int64_t>(i),
                                            head.size(1) - static_cast<std::int64_t>(i) + 1);
      columns.push_back(at::log_softmax(logits, 1) + cluster);
    } else if (clusters > 1) {
      head = at::log_softmax(
          at::cat({logits, at::linear(states, weights.cluster_weight, weights.cluster_bias)}, 1),
          1);
      columns.push_back(head.slice(1, 0, weights.ends[0]));
    } else {
      columns.push_back(at::log_softmax(logits, 1));
    }
  }
  return -at::cat(columns, 1).gather(1, problem.targets.unsqueeze(1)).squeeze(1);
}

// Returns zeros where there is no gradient.
std::vector<at::Tensor> gradients_of(const ClustersProblem& problem, const at::Tensor& loss) {
  loss.backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& leaf : problem.leaves()) {
    gradients.push_back(leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf));
    leaf.mutable_grad() = at::Tensor();
  }
  return gradients;
}

void check_all_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    CHECK(test::largest_difference(a[i], b[i]) < 1e-11);
  }
}

void check_problem(const ClustersProblem& problem) {
  const std::int64_t rows = problem.states.size(0);
  const auto losses = [&] {
    return cross_entropy(problem.states, problem.weights, problem.targets);
  };
  const at::Tensor expected = plain_cluster_losses(problem);
  CHECK(test::largest_difference(losses(), expected) < 1e-11);
  CHECK(test::largest_difference(composed_losses(problem.states, problem.weights, problem.targets),
                                 expected) < 1e-11);
  {
    const at::NoGradGuard no_gradient;
    CHECK(test::largest_difference(losses(), expected) < 1e-11);
    const at::Tensor sum = cross_entropy_sum(problem.states, problem.weights, problem.targets, 0.5);
    CHECK(test::largest_difference(sum, expected.sum() * 0.5) < 1e-11);
  }
  const std::vector<at::Tensor> sums =
      gradients_of(problem, plain_cluster_losses(problem).sum() * 0.75);
  check_all_equal(gradients_of(problem, losses().sum() * 0.75), sums);
  check_all_equal(
      gradients_of(problem,
                   cross_entropy_sum(problem.states, problem.weights, problem.targets, 0.25) * 3),
      sums);
  check_all_equal(gradients_of(problem, cross_entropy_sum(problem.states, problem.weights,
                                                          problem.targets, 0.75)),
                  sums);
  const at::Tensor factors = at::randn({rows}, at::kDouble);
  const std::vector<at::Tensor> weighted =
      gradients_of(problem, (plain_cluster_losses(problem) * factors).sum());
  check_all_equal(gradients_of(problem, (losses() * factors).sum()), weighted);
  check_all_equal(
      gradients_of(
          problem,
          (composed_losses(problem.states, problem.weights, problem.targets) * factors).sum()),
      weighted);
}

std::vector<std::pair<std::string, at::Tensor>> targets_of(std::int64_t vocab_size) {
  return {{"any", at::randint(vocab_size, {40}, at::kLong)},
          {"one", at::randint(vocab_size, {1}, at::kLong)},
          {"first", at::zeros({3}, at::kLong)},
          {"last", at::full({5}, vocab_size - 1, at::kLong)},
          {"strided", at::randint(vocab_size, {7, 2}, at::kLong).select(1, 1)}};
}

}  // namespace

TEST_CASE("cross_entropy: losses and gradients over clusters equal those of the complete matrix") {
  at::manual_seed(1);
  const std::vector<std::vector<std::int64_t>> divisions = {
      {1}, {13}, {1, 2}, {5, 13}, {3, 4, 17, 30}, {2050, 2060, 4500}};
  for (const std::vector<std::int64_t>& ends : divisions) {
    for (const auto& [name, targets] : targets_of(ends.back())) {
      for (const Tables tables : {Tables::kOwn, Tables::kShared}) {
        for (const Projections projections :
             {Projections::kNone, Projections::kOwn, Projections::kTied}) {
          CAPTURE(ends.back());
          CAPTURE(name);
          CAPTURE(static_cast<int>(tables));
          CAPTURE(static_cast<int>(projections));
          check_problem(make_problem(ends, tables, projections, targets));
        }
      }
    }
  }
}

TEST_CASE("cross_entropy: only tensors that require a gradient get one") {
  at::manual_seed(2);
  const at::Tensor targets = at::arange(30, at::kLong);
  const ClustersProblem all =
      make_problem({3, 4, 17, 30}, Tables::kOwn, Projections::kOwn, targets);
  const std::vector<at::Tensor> expected = gradients_of(all, plain_cluster_losses(all).sum());
  const std::vector<at::Tensor> leaves = all.leaves();
  for (std::size_t kept = 0; kept < leaves.size(); ++kept) {
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      at::Tensor(leaves[i]).set_requires_grad(i == kept);
    }
    cross_entropy(all.states, all.weights, targets).sum().backward();
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      CHECK(leaves[i].grad().defined() == (i == kept));
    }
    CHECK(test::largest_difference(leaves[kept].grad(), expected[kept]) < 1e-11);
    leaves[kept].mutable_grad() = at::Tensor();
  }
}

TEST_CASE("cross_entropy: a cluster without targets computes no separate gradient") {
  const ClustersProblem problem =
      make_problem({3, 9, 20}, Tables::kOwn, Projections::kOwn, at::full({4}, 15, at::kLong));
  cross_entropy(problem.states, problem.weights, problem.targets).sum().backward();
  CHECK(problem.weights.weights[0].grad().defined());
  CHECK(!problem.weights.weights[1].grad().defined());
  CHECK(!problem.weights.biases[1].grad().defined());
  CHECK(!problem.weights.projections[1].grad().defined());
  CHECK(problem.weights.weights[2].grad().defined());
}

TEST_CASE("cross_entropy: a second backward pass over clusters gives the same gradients") {
  at::manual_seed(3);
  const ClustersProblem problem = make_problem({3, 9, 20}, Tables::kShared, Projections::kTied,
                                               at::randint(20, {15}, at::kLong));
  const at::Tensor loss = cross_entropy_sum(problem.states, problem.weights, problem.targets, 0.5);
  loss.backward({}, true);
  std::vector<at::Tensor> once;
  for (const at::Tensor& leaf : problem.leaves()) once.push_back(leaf.grad() * 2);
  loss.backward();
  for (std::size_t i = 0; i < once.size(); ++i) {
    CHECK(test::largest_difference(problem.leaves()[i].grad(), once[i]) < 1e-12);
  }
}

TEST_CASE("cross_entropy: weights that changed before a second pass are noticed") {
  const ClustersProblem problem =
      make_problem({3, 9, 20}, Tables::kOwn, Projections::kNone, at::arange(20, at::kLong));
  const at::Tensor losses = cross_entropy(problem.states, problem.weights, problem.targets);
  {
    const at::NoGradGuard no_gradient;
    at::Tensor(problem.weights.weights[1]).add_(1);
  }
  CHECK_THROWS((losses * at::arange(20, at::kDouble)).sum().backward());
}

TEST_CASE("rows_by_cluster: equals a search") {
  at::manual_seed(4);
  const std::vector<std::int64_t> ends = {3, 4, 17, 30};
  for (const std::int64_t count : {0, 1, 2, 50}) {
    const at::Tensor ids = at::randint(30, {count}, at::kLong);
    const ClusterRows rows = rows_by_cluster(ids, ends);
    CHECK(rows.begins.front() == 0);
    CHECK(rows.begins.back() == count);
    CHECK(rows.rows.index_select(0, rows.places).equal(at::arange(count, at::kLong)));
    const at::Tensor heads = head_targets(ids, ends);
    for (std::size_t i = 0; i < ends.size(); ++i) {
      const std::int64_t begin = i == 0 ? 0 : ends[i - 1];
      const at::Tensor inside = at::nonzero(ids.ge(begin).logical_and(ids.lt(ends[i]))).squeeze(1);
      CHECK(rows.rows_of(i).equal(inside));
      CHECK(rows.ids_of(i).equal(ids.index_select(0, inside) - begin));
      const at::Tensor head = heads.index_select(0, inside);
      CHECK(head.equal(i == 0 ? rows.ids_of(0)
                              : at::full_like(head, 6 - static_cast<std::int64_t>(i))));
    }
  }
}

}  // namespace ql::kernels
