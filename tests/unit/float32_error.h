// Checks float32 results of our own kernels: their error against float64 is compared with that of
// ATen's operations on the same float32 values. How much rounding matters depends on the problem (a
// layer norm over two elements may amplify it a thousandfold) and on the order of sums on the
// processor, so that a fixed tolerance would be too wide for most cases and fail by chance in some.
#pragma once

#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "torch_doctest.h"

namespace ql::test {

using Tensors = std::vector<at::Tensor>;

// Our error may be this many times ATen's.
inline constexpr double kErrorFactor = 4;
// Errors below this many units of the last place of the largest value do not matter.
inline constexpr double kLeastError = 8;
// ATen's error is the largest of this many runs, whose inputs are moved by a rounding: in one run
// errors may cancel by chance.
inline constexpr int kRuns = 6;

// Moves every element by a unit of its last place, up or down.
inline at::Tensor moved_by_rounding(const at::Tensor& tensor) {
  const at::Tensor signs = at::randint(2, tensor.sizes(), tensor.options()).mul_(2).sub_(1);
  return tensor * (1 + signs * std::numeric_limits<float>::epsilon());
}

inline double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

inline double largest_error(const at::Tensor& found, const at::Tensor& exact) {
  return (found.to(at::kDouble) - exact).abs().max().item<double>();
}

// Own and Operations make tensors, some of them perhaps undefined, from float32 inputs; Operations
// also from float64 ones.
template <typename Own, typename Operations>
void check_float32(const Tensors& inputs, const Own& own, const Operations& operations) {
  Tensors narrow, wide;
  for (const at::Tensor& input : inputs) {
    narrow.push_back(input.detach().to(at::kFloat));
    wide.push_back(narrow.back().to(at::kDouble));
  }
  const Tensors exact = operations(wide), found = own(narrow);
  REQUIRE(found.size() == exact.size());
  std::vector<double> allowed(exact.size());
  for (int run = 0; run < kRuns; ++run) {
    const Tensors rounded = operations(narrow);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      if (exact[i].defined()) {
        allowed[i] = std::max(allowed[i], kErrorFactor * largest_error(rounded[i], exact[i]));
      }
    }
    narrow.clear();
    for (const at::Tensor& input : wide) narrow.push_back(moved_by_rounding(input).to(at::kFloat));
  }
  for (std::size_t i = 0; i < exact.size(); ++i) {
    CAPTURE(i);
    REQUIRE(found[i].defined() == exact[i].defined());
    if (exact[i].defined()) {
      CHECK((found[i].scalar_type() == at::kFloat));
      const double least =
          kLeastError * std::numeric_limits<float>::epsilon() * exact[i].abs().max().item<double>();
      CHECK(largest_error(found[i], exact[i]) <= allowed[i] + least);
    }
  }
}

}  // namespace ql::test
