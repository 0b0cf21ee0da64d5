// Tests the sums of the gradients of slices, and their norms.

#include "train/gradients.h"

#include <ATen/Parallel.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "unit/torch_doctest.h"

namespace ql::train {
namespace {

// The sizes are below, at and above the size of a block of work.
const std::vector<std::int64_t> kSizes = {1, 3, 16384, 40001};

std::vector<nn::NamedTensor> made_parameters(at::ScalarType type) {
  std::vector<nn::NamedTensor> made;
  for (const std::int64_t size : kSizes) {
    made.push_back({"p" + std::to_string(size), at::zeros({size}, type).set_requires_grad(true)});
  }
  return made;
}

std::vector<Gradients> random_gradients(std::size_t slices, at::ScalarType type) {
  at::manual_seed(7);
  std::vector<Gradients> made(slices);
  for (Gradients& slice : made) {
    for (const std::int64_t size : kSizes) slice.push_back(at::randn({size}, type));
  }
  return made;
}

std::vector<Gradients> copy_of(const std::vector<Gradients>& gradients) {
  std::vector<Gradients> copies = gradients;
  for (Gradients& slice : copies) {
    for (at::Tensor& gradient : slice) gradient = gradient.defined() ? gradient.clone() : gradient;
  }
  return copies;
}

}  // namespace

TEST_CASE("group_norms: are those of layers and of the other parameters") {
  std::vector<nn::NamedTensor> made;
  const auto add = [&made](const char* name, const std::vector<double>& gradient) {
    const at::Tensor values = at::tensor(gradient, at::kFloat);
    made.push_back({name, at::zeros_like(values).set_requires_grad(true)});
    made.back().tensor.mutable_grad() = values;
  };
  add("word_emb.emb_layers.0.weight", {3, 4});
  add("layers.1.dec_attn.qkv_net.weight", {1, 2, 2});
  add("layers.10.pos_ff.layer_norm.bias", {-7});
  add("r_w_bias", {std::numeric_limits<double>::quiet_NaN(), 1});
  add("layers.1.pos_ff.layer_norm.bias", {4});
  made.push_back({"crit.out_layers.0.bias", at::zeros({2}).set_requires_grad(true)});
  const std::vector<GroupNorm> groups = group_norms(made);
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

TEST_CASE("join_gradients: slices are added up, and the norm is over all parameters" *
          doctest::test_suite("numeric")) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const std::size_t slices : {1U, 2U, 5U}) {
      CAPTURE(slices);
      const auto made = made_parameters(type);
      std::vector<Gradients> gradients = random_gradients(slices, type);
      gradients.back()[0] = at::Tensor();  // this slice does not depend on it
      for (Gradients& slice : gradients) {
        slice[1] = at::Tensor();  // and none on that
      }
      const std::vector<Gradients> before = copy_of(gradients);
      made[1].tensor.mutable_grad() = at::ones({3}, type);  // of an earlier step
      const double norm = join_gradients(made, gradients);
      double squares = 0;
      for (std::size_t p = 0; p < made.size(); ++p) {
        at::Tensor sum = at::zeros({kSizes[p]}, type);
        for (const Gradients& slice : before) sum = slice[p].defined() ? sum + slice[p] : sum;
        const at::Tensor& found = made[p].tensor.grad();
        CHECK(found.defined() == (p != 1 && (p != 0 || slices > 1)));
        CHECK((!found.defined() || at::equal(found, sum)));
        squares += sum.to(at::kDouble).square().sum().item<double>();
      }
      CHECK(norm == doctest::Approx(std::sqrt(squares)).epsilon(1e-12));
    }
  }
}

TEST_CASE("join_gradients: does not depend on the number of threads") {
  const int threads = at::get_num_threads();
  std::vector<double> norms;
  std::vector<at::Tensor> sums;
  for (const int used : {1, 2, 3}) {
    at::set_num_threads(used);
    const auto made = made_parameters(at::kFloat);
    norms.push_back(join_gradients(made, random_gradients(3, at::kFloat)));
    sums.push_back(made.back().tensor.grad());
  }
  at::set_num_threads(threads);
  CHECK(norms[1] == norms[0]);
  CHECK(norms[2] == norms[0]);
  CHECK(at::equal(sums[1], sums[0]));
  CHECK(at::equal(sums[2], sums[0]));
}

TEST_CASE("join_gradients: a gradient that is not contiguous is joined in the parameter's order") {
  const at::Tensor weight = at::zeros({2, 3}).set_requires_grad(true);
  const at::Tensor gradient = at::arange(6, at::kFloat).view({3, 2}).t();
  join_gradients({{"w", weight}}, {{gradient}, {gradient}});
  CHECK(at::equal(weight.grad(), gradient * 2));
}

}  // namespace ql::train
