// Tests the sums of the gradients of slices, and their norms.

#include "train/gradients.h"

#include <ATen/Parallel.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "unit/torch_doctest.h"
#include "unit/train/flat_support.h"

namespace ql::train {
namespace {

// The sizes are below, at and above the size of a block of work.
const std::vector<std::int64_t> kSizes = {1, 3, 16384, 40001};

nn::FlatTensors made_parameters() {
  std::vector<nn::NamedTensor> made;
  for (const std::int64_t size : kSizes) made.push_back({std::to_string(size), at::zeros({size})});
  return nn::make_flat(made);
}

// Holds a gradient for each parameter.
using Slices = std::vector<std::vector<at::Tensor>>;

Slices random_gradients(std::size_t slices) {
  at::manual_seed(7);
  Slices made(slices);
  for (std::vector<at::Tensor>& slice : made) {
    for (const std::int64_t size : kSizes) slice.push_back(at::randn({size}));
  }
  return made;
}

// Adds up the slices, and returns the sum for each parameter.
std::vector<at::Tensor> sums_of(const nn::FlatTensors& parameters, const Slices& slices,
                                std::vector<double>& squares) {
  GradientExchange exchange(machine::ProcessGroup::single(), parameters, slices.size());
  for (std::size_t slice = slices.size(); slice-- > 0;) {
    for (std::size_t p = 0; p < parameters.named.size(); ++p) {
      if (slices[slice][p].defined()) exchange.put(slice, p, slices[slice][p].clone());
    }
  }
  const Gradient gradient = exchange.finish();
  squares = sums_of_squares(parameters, gradient);
  return test::by_parameter(parameters, gradient);
}

}  // namespace

TEST_CASE("group_norms: are those of layers and of the other parameters") {
  std::vector<nn::NamedTensor> named;
  for (const char* name : {"word_emb.emb_layers.0.weight", "layers.1.dec_attn.qkv_net.weight",
                           "layers.10.pos_ff.layer_norm.bias", "r_w_bias",
                           "layers.1.pos_ff.layer_norm.bias", "crit.out_layers.0.bias"}) {
    named.push_back({name, at::zeros({2})});
  }
  const double unknown = std::numeric_limits<double>::quiet_NaN();
  const std::vector<GroupNorm> groups =
      group_norms(nn::make_flat(named), {25, 9, 49, unknown, 16, 0});
  REQUIRE(groups.size() == 5);
  CHECK(groups[0].name == "word_emb");
  CHECK(groups[0].norm == doctest::Approx(5));
  CHECK(groups[1].name == "layers.1");
  CHECK(groups[1].norm == doctest::Approx(5));
  CHECK(groups[2].name == "layers.10");
  CHECK(groups[2].norm == doctest::Approx(7));
  CHECK(groups[3].name == "r_w_bias");
  CHECK(std::isnan(groups[3].norm));
  CHECK(groups[4].name == "crit");
  CHECK(groups[4].norm == 0);
}

TEST_CASE("GradientExchange: slices are added up in their order" * doctest::test_suite("numeric")) {
  for (const std::size_t slices : {1U, 2U, 5U}) {
    CAPTURE(slices);
    const nn::FlatTensors parameters = made_parameters();
    Slices gradients = random_gradients(slices);
    gradients.back()[0] = at::Tensor();  // this slice does not depend on it
    for (std::vector<at::Tensor>& slice : gradients) slice[1].reset();  // and none on that
    std::vector<double> squares;
    const std::vector<at::Tensor> sums = sums_of(parameters, gradients, squares);
    for (std::size_t p = 0; p < kSizes.size(); ++p) {
      at::Tensor sum = at::zeros({kSizes[p]});
      for (const std::vector<at::Tensor>& slice : gradients) {
        sum = slice[p].defined() ? sum + slice[p] : sum;
      }
      CHECK(at::equal(sums[p], sum));
      CHECK(squares[p] ==
            doctest::Approx(sum.to(at::kDouble).square().sum().item<double>()).epsilon(1e-12));
    }
  }
}

TEST_CASE("sums_of_squares: do not depend on the number of threads") {
  const int threads = at::get_num_threads();
  std::vector<std::vector<double>> found(3);
  for (const int used : {1, 2, 3}) {
    at::set_num_threads(used);
    sums_of(made_parameters(), random_gradients(3), found[static_cast<std::size_t>(used - 1)]);
  }
  at::set_num_threads(threads);
  CHECK(found[1] == found[0]);
  CHECK(found[2] == found[0]);
}

TEST_CASE("sums_of_squares: float64 gradients of one range, as the tests of other devices have") {
  const nn::FlatTensors parameters = nn::make_flat({{"a", at::zeros({3}, at::kDouble)}});
  const Gradient gradient = {concatenate(parameters, {at::tensor({1.0, 2.0, 1e-9}, at::kDouble)})};
  CHECK(sums_of_squares(parameters, gradient).front() == doctest::Approx(5));
  CHECK(norm_by_operations(gradient.front()).item<double>() == doctest::Approx(std::sqrt(5)));
}

TEST_CASE("GradientExchange: a gradient that is not contiguous is read in the parameter's order") {
  const nn::FlatTensors parameters = nn::make_flat({{"w", at::zeros({2, 3})}});
  const at::Tensor gradient = at::arange(6, at::kFloat).view({3, 2}).t();
  std::vector<double> squares;
  const std::vector<at::Tensor> sums = sums_of(parameters, {{gradient}, {gradient}}, squares);
  CHECK(at::equal(sums.front(), gradient * 2));
}

}  // namespace ql::train
