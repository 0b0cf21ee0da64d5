// Projections against ATen's, their rows independently and their bits for any threads.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdint>
#include <vector>

#include "kernels/projection.h"
#include "unit/float32_error.h"
#include "unit/thread_count.h"
#include "unit/torch_doctest.h"

namespace ql::test {

constexpr std::int64_t kRows = 70;

TEST_CASE("BatchInvariant: rows computed independently are ATen's, whatever the sizes" *
          doctest::test_suite("numeric")) {
  const at::NoGradGuard no_gradient;
  const kernels::BatchInvariant apart;
  at::manual_seed(1);
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 8, 11, 64}) {
    for (const std::int64_t width : {1, 3, 16, 17, 64, 100}) {
      for (const std::int64_t columns : {1, 2, 5, 32, 67}) {
        CAPTURE(rows);
        CAPTURE(width);
        CAPTURE(columns);
        const at::Tensor states = at::randn({rows, width}, at::kDouble);
        const at::Tensor weight = at::randn({columns, width}, at::kDouble);
        const at::Tensor bias = at::randn({columns}, at::kDouble);
        CHECK(largest_difference(kernels::project(states, weight, bias),
                                 at::linear(states, weight, bias)) < 1e-12);
        CHECK(largest_difference(kernels::project(states, weight), at::linear(states, weight)) <
              1e-12);
        // The input is a part of a tensor, and has more dimensions.
        const at::Tensor wide = at::randn({rows, 2 * width}, at::kDouble).narrow(1, 1, width);
        CHECK(largest_difference(kernels::project(wide.unsqueeze(0), weight.t().contiguous().t()),
                                 at::linear(wide.unsqueeze(0), weight)) < 1e-12);
      }
    }
  }
}

TEST_CASE("BatchInvariant: a row of a product has the same bits with any others" *
          doctest::test_suite("numeric")) {
  const at::NoGradGuard no_gradient;
  const kernels::BatchInvariant apart;
  at::manual_seed(2);
  for (const std::int64_t width : {7, 96}) {
    const at::Tensor states = at::randn({kRows, width});
    const at::Tensor weight = at::randn({45, width});
    for (std::int64_t rows = 1; rows <= kRows; ++rows) {
      const at::Tensor some = kernels::project(states.narrow(0, 0, rows), weight);
      const at::Tensor last = kernels::project(states.narrow(0, rows - 1, 1), weight);
      CHECK(at::equal(some.narrow(0, rows - 1, 1), last));
    }
  }
}

TEST_CASE("project: a product without gradients is ATen's, with the same bits for any threads" *
          doctest::test_suite("numeric")) {
  const at::NoGradGuard no_gradient;
  at::manual_seed(3);
  for (const std::int64_t rows : {1, 3, 255, 256, 257, 700}) {
    for (const std::int64_t columns : {1, 127, 128, 300}) {
      CAPTURE(rows);
      CAPTURE(columns);
      const at::Tensor states = at::randn({1, rows, 40}, at::kDouble);
      const at::Tensor weight = at::randn({columns, 40}, at::kDouble);
      const at::Tensor bias = at::randn({columns}, at::kDouble);
      CHECK(largest_difference(kernels::project(states, weight, bias),
                               at::linear(states, weight, bias)) < 1e-12);
      const at::Tensor few_digits = states.to(at::kFloat), of_weight = weight.to(at::kFloat);
      const auto by_threads = [&](int threads) {
        const WithThreads with_threads(threads);
        return kernels::project(few_digits, of_weight);
      };
      CHECK(at::equal(by_threads(3), by_threads(1)));
    }
  }
}

TEST_CASE("project: a product and its gradients have the same bits for any threads" *
          doctest::test_suite("numeric")) {
  at::manual_seed(4);
  for (const std::int64_t rows : {3, 200, 700}) {
    for (const bool rounds : {false, true}) {
      CAPTURE(rows);
      CAPTURE(rounds);
      const at::Tensor states = at::randn({2, rows, 40}).requires_grad_();
      const at::Tensor weight = at::randn({300, 40}).requires_grad_();
      std::optional<kernels::RoundedWeights> rounded;
      if (rounds) rounded.emplace(weight);
      const at::Tensor bias = at::randn({300}).requires_grad_();
      const at::Tensor by_output = at::randn({2, rows, 300});
      const auto by_threads = [&](int threads) {
        const WithThreads with_threads(threads);
        const at::Tensor output = kernels::project(states, weight, bias);
        std::vector<at::Tensor> found =
            torch::autograd::grad({output}, {states, weight, bias}, {by_output});
        found.push_back(output);
        return found;
      };
      const std::vector<at::Tensor> by_one = by_threads(1), by_three = by_threads(3);
      for (std::size_t i = 0; i < by_one.size(); ++i) CHECK(at::equal(by_one[i], by_three[i]));
      const at::Tensor expected = at::linear(states, weight, bias);
      CHECK(at::allclose(by_one.back(), expected, rounds ? 0.1 : 1e-5, rounds ? 0.3 : 1e-5));
      const std::vector<at::Tensor> gradients =
          torch::autograd::grad({expected}, {states, weight, bias}, {by_output});
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        const double size = gradients[i].norm().item<double>();
        CHECK((by_one[i] - gradients[i]).norm().item<double>() < (rounds ? 0.01 : 1e-5) * size);
      }
    }
  }
}

TEST_CASE("project: a product that requires a gradient has one") {
  const kernels::BatchInvariant apart;
  const at::Tensor states = at::randn({2, 3}), weight = at::randn({4, 3}).requires_grad_();
  kernels::project(states, weight).sum().backward();
  CHECK(largest_difference(weight.grad(), states.sum(0).expand({4, 3})) < 1e-6);
}

}  // namespace ql::test
