// Compares the cross entropy by blocks with ATen's log_softmax over the complete matrix.
#include "kernels/softmax.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <cstdint>
#include <thread>
#include <vector>

#include "unit/float32_error.h"
#include "unit/torch_doctest.h"

namespace ql::kernels {
namespace {

struct SoftmaxProblem {
  at::Tensor states, weight, bias, targets;
};

SoftmaxProblem random_problem(std::int64_t rows, std::int64_t vocab, at::ScalarType type,
                              double size = 1) {
  SoftmaxProblem problem;
  problem.states = at::randn({rows, 6}, type).mul_(size).set_requires_grad(true);
  problem.weight = at::randn({vocab, 6}, type).set_requires_grad(true);
  problem.bias = at::randn({vocab}, type).set_requires_grad(true);
  problem.targets = at::randint(vocab, {rows}, at::kLong);
  return problem;
}

// Returns the losses of a softmax with one cluster.
at::Tensor losses(const SoftmaxProblem& problem) {
  const SoftmaxWeights weights{
      {problem.weight.size(0)}, {problem.weight}, {problem.bias}, {at::Tensor()}, {}, {}};
  return cross_entropy(problem.states, weights, problem.targets);
}

at::Tensor plain_losses(const SoftmaxProblem& problem) {
  return -at::log_softmax(at::linear(problem.states, problem.weight, problem.bias), -1)
              .gather(1, problem.targets.unsqueeze(1))
              .squeeze(1);
}

struct Gradients {
  at::Tensor states, weight, bias;
};

Gradients gradients(const SoftmaxProblem& problem, const at::Tensor& loss) {
  loss.backward();
  Gradients result{problem.states.grad().clone(), problem.weight.grad().clone(),
                   problem.bias.grad().clone()};
  for (const at::Tensor& leaf : {problem.states, problem.weight, problem.bias}) {
    leaf.mutable_grad() = at::Tensor();
  }
  return result;
}

void check_equal(const Gradients& a, const Gradients& b, double tolerance) {
  CHECK(test::largest_difference(a.states, b.states) < tolerance);
  CHECK(test::largest_difference(a.weight, b.weight) < tolerance);
  CHECK(test::largest_difference(a.bias, b.bias) < tolerance);
}

}  // namespace

TEST_CASE("cross_entropy: losses and gradients equal those of the complete matrix") {
  at::manual_seed(1);
  // Panels have 1024 columns. The last shape makes two blocks, the second a row shorter.
  const std::int64_t shapes[][2] = {{1, 1},     {1, 2},     {3, 17},   {5, 1000},   {40, 1024},
                                    {40, 1025}, {40, 2049}, {7, 9000}, {141, 60000}};
  for (const auto& shape : shapes) {
    CAPTURE(shape[0]);
    CAPTURE(shape[1]);
    const SoftmaxProblem problem = random_problem(shape[0], shape[1], at::kDouble);
    CHECK(test::largest_difference(losses(problem), plain_losses(problem)) < 1e-10);
    {
      const at::NoGradGuard no_grad;
      CHECK(test::largest_difference(losses(problem), plain_losses(problem)) < 1e-10);
    }
    check_equal(gradients(problem, losses(problem).mean()),
                gradients(problem, plain_losses(problem).mean()), 1e-10);
    const at::Tensor factors = at::randn({shape[0]}, at::kDouble);
    check_equal(gradients(problem, (losses(problem) * factors).sum()),
                gradients(problem, (plain_losses(problem) * factors).sum()), 1e-10);
  }
}

TEST_CASE("softmax_blocks: maxima that rise and fall from panel to panel change nothing" *
          doctest::test_suite("numeric")) {
  at::manual_seed(6);
  for (const double slope : {-0.01, 0.0001, 0.01, 0.1}) {
    CAPTURE(slope);
    SoftmaxProblem problem = random_problem(9, 7001, at::kDouble);
    problem.bias = at::arange(7001, at::kDouble).mul_(slope).set_requires_grad(true);
    CHECK(test::largest_difference(losses(problem), plain_losses(problem)) < 1e-10);
    check_equal(gradients(problem, losses(problem).sum()),
                gradients(problem, plain_losses(problem).sum()), 1e-10);
  }
}

TEST_CASE("cross_entropy: losses of few rows without gradients have the same bits for any threads" *
          doctest::test_suite("numeric")) {
  at::manual_seed(8);
  const at::NoGradGuard no_grad;
  const int threads = at::get_num_threads();
  for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{5}, kFewSoftmaxRows}) {
    for (const double slope : {-0.01, 0.0, 0.01}) {
      CAPTURE(rows);
      CAPTURE(slope);
      SoftmaxProblem problem = random_problem(rows, 7001, at::kDouble);
      problem.bias = at::arange(7001, at::kDouble).mul_(slope);
      at::set_num_threads(1);
      const at::Tensor alone = losses(problem);
      CHECK(test::largest_difference(alone, plain_losses(problem)) < 1e-10);
      for (const int count : {2, 3}) {
        at::set_num_threads(count);
        CHECK(losses(problem).equal(alone));
      }
    }
  }
  at::set_num_threads(threads);
}

TEST_CASE("cross_entropy: threads change nothing, of a tensor or of the caller") {
  at::manual_seed(7);
  const int threads = at::get_num_threads();
  const SoftmaxProblem problem = random_problem(50, 5000, at::kDouble);
  const at::Tensor expected = plain_losses(problem);
  const Gradients slow = gradients(problem, expected.mean());
  for (const int count : {1, 2, 5}) {
    at::set_num_threads(count);
    CHECK(test::largest_difference(losses(problem), expected) < 1e-10);
    check_equal(gradients(problem, losses(problem).mean()), slow, 1e-10);
  }
  at::set_num_threads(threads);
  std::vector<std::thread> callers;
  std::vector<Gradients> found(3);
  for (Gradients& own : found) {
    callers.emplace_back([&problem, &own] {
      SoftmaxProblem copy = problem;
      for (at::Tensor* leaf : {&copy.states, &copy.weight, &copy.bias}) {
        *leaf = leaf->detach().requires_grad_(true);
      }
      own = gradients(copy, losses(copy).mean());
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const Gradients& own : found) check_equal(own, slow, 1e-10);
}

TEST_CASE("cross_entropy: strided input is read as such") {
  at::manual_seed(5);
  SoftmaxProblem problem = random_problem(4, 9, at::kDouble);
  problem.targets = at::randint(9, {4, 3}, at::kLong).select(1, 1);
  problem.states = at::randn({6, 4}, at::kDouble).t();
  CHECK(test::largest_difference(losses(problem), plain_losses(problem)) < 1e-12);
}

TEST_CASE("cross_entropy: float32 losses stay exact for large vocabularies and far logits" *
          doctest::test_suite("numeric")) {
  at::manual_seed(2);
  for (const double size : {0.1, 1.0, 30.0}) {
    CAPTURE(size);
    const SoftmaxProblem problem = random_problem(20, 50000, at::kDouble, size);
    const auto run = [&problem](const test::Tensors& from, auto losses_of) {
      SoftmaxProblem own = problem;
      own.states = from[0].detach().clone().set_requires_grad(true);
      own.weight = from[1].detach().clone().set_requires_grad(true);
      own.bias = from[2].detach().clone().set_requires_grad(true);
      const at::Tensor found = losses_of(own);
      const Gradients slopes = gradients(own, found.sum());
      return test::Tensors{found, slopes.states, slopes.weight, slopes.bias};
    };
    test::check_float32(
        {problem.states, problem.weight, problem.bias},
        [&](const test::Tensors& from) { return run(from, losses); },
        [&](const test::Tensors& from) { return run(from, plain_losses); });
  }
}

TEST_CASE("log_probabilities: probabilities sum to 1") {
  at::manual_seed(3);
  const std::int64_t vocab = 101;
  SoftmaxProblem problem = random_problem(4, vocab, at::kDouble);
  at::Tensor sums = at::zeros({4}, at::kDouble);
  for (std::int64_t id = 0; id < vocab; ++id) {
    problem.targets = at::full({4}, id, at::kLong);
    sums += losses(problem).detach().neg().exp();
  }
  CHECK(test::largest_difference(sums, at::ones({4}, at::kDouble)) < 1e-12);
}

TEST_CASE("cross_entropy: a second backward pass gives the same gradients") {
  at::manual_seed(4);
  const SoftmaxProblem problem = random_problem(3, 9, at::kDouble);
  const at::Tensor loss = losses(problem).sum();
  loss.backward({}, true);
  const at::Tensor once = problem.weight.grad().clone();
  loss.backward();
  CHECK(test::largest_difference(problem.weight.grad(), once * 2) < 1e-12);
}

}  // namespace ql::kernels
